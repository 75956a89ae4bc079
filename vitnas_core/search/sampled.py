"""Search by a learned sampler: draw for the budget, keep the best of a few (FocusFormer, Sec. 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import VitnasError
from ..registry import ARCH_SAMPLERS, LOOPS
from ..spaces import Arch
from ..training.samplers import FocusSampler
from ..utils.fileio import atomic_write
from .candidate import Candidate, ranked
from .checks import digest_weights
from .loops import Proposal, SearchLoop

_DRAWS = 100
"""How many architectures are drawn for each that is wanted, before a budget gets fewer."""


@LOOPS.register_module()
class SamplerSearchLoop(SearchLoop):
    """Draw architectures of π(B), drop those above B, evaluate the others, all different, and keep the best.

    ``load_from`` is a checkpoint with a trained sampler: of a supernet that was trained with
    :class:`~vitnas_core.training.samplers.FocusSampler`, or what
    :class:`~vitnas_core.training.SamplerTrainLoop` made of any other. Several budgets in one run give a front;
    the best under each is written to ``best_arch_<budget>.json``, the best of all to ``best_arch.json``.

    Args:
        sampler: The sampler, as it was trained; architectures are priced as it says.
        budgets: One budget in MACs, or several.
        num_candidates: How many architectures are evaluated for each budget. Defaults to 30, as in the paper.
        **kwargs: Arguments of :class:`SearchLoop`, without ``racing``, ``input_size`` and ``num_classes``.

    Raises:
        VitnasError: A budget is out of range, a number is, or racing is asked for.
        CheckpointError: The checkpoint has no sampler, or one of another space or other budgets.
    """

    def __init__(
        self,
        *args: Any,
        sampler: FocusSampler | dict,
        budgets: float | Sequence[float],
        num_candidates: int = 30,
        **kwargs: Any,
    ) -> None:
        if type(num_candidates) is not int or num_candidates < 1:
            raise VitnasError(f'`num_candidates` should be a whole number of at least 1, but got {num_candidates!r}')
        if given := {'input_size', 'num_classes'} & set(kwargs):
            raise VitnasError(
                f'`{sorted(given)[0]}` of vitnas.SamplerSearchLoop is that of its `sampler`; leave it out'
            )
        if kwargs.get('racing') is not None:
            raise VitnasError(
                '`racing` should be left out of vitnas.SamplerSearchLoop, whose candidates have no parents'
            )
        self.sampler: FocusSampler = ARCH_SAMPLERS.build(sampler) if isinstance(sampler, dict) else sampler
        if not isinstance(self.sampler, FocusSampler):
            raise VitnasError(f'`sampler` should be a vitnas.FocusSampler, but got a {type(self.sampler).__name__}')
        self.budgets = _read_budgets(budgets)
        self.num_candidates = num_candidates
        priced = dict(input_size=self.sampler.input_size, num_classes=self.sampler.num_classes)
        super().__init__(*args, **{**kwargs, **priced})

    def prepare(self) -> None:
        """Take over what the sampler has learned, and check the budgets."""
        self.sampler.bind(self.space, self.backbone.price, seed=0)
        for budget in self.budgets:
            self.sampler.check_budget(budget)
        self.sampler.load_file(self.load_from)

    @property
    def generations(self) -> int:
        """One: nothing is learned from a candidate."""
        return 1

    @property
    def num_proposals(self) -> int:
        """As many as asked for, for each budget."""
        return self.num_candidates * len(self.budgets)

    def settings(self) -> dict[str, Any]:
        """The budgets, the number of candidates and what the sampler has learned."""
        learned = digest_weights(self.sampler.policy)
        return {'budgets': list(self.budgets), 'num_candidates': self.num_candidates, 'sampler': learned}

    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """Draws of each budget.

        Raises:
            VitnasError: No budget has any.
        """
        made: dict[Arch, Proposal] = {}
        for budget in self.budgets:
            found = self._draw(budget, rng, made)
            made.update((arch, Proposal(arch)) for arch in found)
            if len(found) < self.num_candidates:
                self.runner.logger.warning(
                    f'Search: {_DRAWS * self.num_candidates} draws for {budget:.6g} MACs gave {len(found)} new '
                    f'architectures within the limits, fewer than the {self.num_candidates} that are wanted'
                )
        if not made:
            raise VitnasError(
                f'the sampler drew no architecture within {", ".join(f"{b:.6g}" for b in self.budgets)} MACs in '
                f'{_DRAWS * self.num_candidates} draws each: train it longer, with a larger `beta`, or raise the budget'
            )
        return list(made.values())

    @torch.no_grad()
    def _draw(self, budget: float, rng: np.random.Generator, made: dict[Arch, Proposal]) -> list[Arch]:
        """Different architectures within a budget that are not drawn yet, in a bounded number of draws."""
        found: dict[Arch, None] = {}
        for _ in range(_DRAWS):
            for arch in self.sampler.draw([budget] * self.num_candidates, rng).archs:
                met = self.price(arch).macs <= budget and arch in self.feasible
                if met and arch not in made and len(found) < self.num_candidates:
                    found[arch] = None
            if len(found) == self.num_candidates:
                break
        return list(found)

    def write_results(self, history: Sequence[Candidate]) -> Candidate:
        """Write also the best architecture under each budget."""
        if len(self.budgets) > 1:
            for budget in self.budgets:
                within = ranked(candidate for candidate in history if candidate.cost['macs'] <= budget)
                if within:
                    name = f'best_arch_{budget_name(budget)}.json'
                    atomic_write(Path(self.runner.work_dir) / name, within[0].arch.to_json() + '\n')
        return super().write_results(history)


def budget_name(budget: float) -> str:
    """A budget in the name of a file, as in those of configs: ``1.4g``, ``2m``."""
    for size, unit in ((1e9, 'g'), (1e6, 'm'), (1e3, 'k')):
        if budget >= size:
            return f'{budget / size:.6g}{unit}'
    return f'{budget:.6g}'


def _read_budgets(budgets: Any) -> tuple[float, ...]:
    """Different budgets, smallest first."""
    found = tuple(budgets) if isinstance(budgets, (list, tuple)) else (budgets,)
    if not found or any(isinstance(b, bool) or not isinstance(b, (int, float)) or not b > 0 for b in found):
        raise VitnasError(f'`budgets` should be a number of MACs above 0, or several, but got {budgets!r}')
    return tuple(sorted({float(budget) for budget in found}))
