"""Search by a learned sampler: draw for the budget, keep the best of a few (FocusFormer, Sec. 3.3)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...errors import VitnasError
from ...registry import ALGORITHMS, ARCH_SAMPLERS
from ...spaces import Arch
from ...training.samplers import FocusSampler
from ..arguments import check_counts
from ..candidate import ranked
from ..checks import digest_weights
from ..feasible import FeasibleSpace
from .base import Proposal, SearchAlgorithm

_DRAWS = 100
"""Draws per wanted architecture; after these, a budget gets fewer architectures."""


@ALGORITHMS.register_module()
@dataclass
class Policy(SearchAlgorithm):
    """Draw architectures from π(B), drop those above B, score the others, all different, and keep the best.

    The supernet's checkpoint holds the trained sampler: a :class:`~vitnas_core.training.samplers.FocusSampler` that was
    trained with the supernet, or, for any other supernet, by :class:`~vitnas_core.training.SamplerTrainLoop`. Several
    budgets in one run give a front. The best architecture under each is written to ``best_arch_<budget>.json``, the
    best of all to ``best_arch.json``.

    Args:
        sampler: The sampler, with the settings of its training; it decides the image size and classes for costs.
        budgets: One budget in MACs, or several.
        num_candidates: Architectures that are scored per budget. Defaults to 30, as in the paper.

    Raises:
        VitnasError: A budget or a number is out of range.
    """

    sampler: FocusSampler | dict
    budgets: float | Sequence[float]
    num_candidates: int = 30

    journal_name = 'SamplerSearchLoop'
    max_rounds = 1

    def __post_init__(self) -> None:
        check_counts(self, num_candidates=1)
        self.policy: FocusSampler = (
            ARCH_SAMPLERS.build(self.sampler) if isinstance(self.sampler, dict) else self.sampler
        )
        if not isinstance(self.policy, FocusSampler):
            raise VitnasError(f'`sampler` should be a vitnas.FocusSampler, but got a {type(self.policy).__name__}')
        self.budgets = self._limits = _read_budgets(self.budgets)

    def priced_for(self) -> dict[str, Any]:
        """Image size and classes that the sampler states."""
        return dict(input_size=self.policy.input_size, num_classes=self.policy.num_classes)

    def setup(self, space: FeasibleSpace) -> None:
        """Start a search; refuse budgets outside the sampler's range."""
        super().setup(space)
        self.policy.bind(space.space, lambda arch, *_: space.price(arch), seed=0)
        for budget in self._limits:
            self.policy.check_budget(budget)

    def load(self, checkpoint: str | os.PathLike) -> None:
        """Load the trained sampler."""
        self.policy.load_file(checkpoint)

    @property
    def max_candidates(self) -> int:
        """Number of candidates per budget, times the number of budgets."""
        return self.num_candidates * len(self._limits)

    def settings(self) -> dict[str, Any]:
        """The budgets, the number of candidates and a digest of the trained sampler."""
        return {**super().settings(), 'sampler': digest_weights(self.policy.policy)}

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Draw for each budget.

        Raises:
            VitnasError: No budget has an architecture.
        """
        made: dict[Arch, Proposal] = {}
        for budget in self._limits:
            found = self._draw(budget, rng, made)
            made.update((arch, Proposal(arch)) for arch in found)
            if len(found) < self.num_candidates:
                self.say(
                    f'{_DRAWS * self.num_candidates} draws for {budget:.6g} MACs gave {len(found)} new '
                    f'architectures within the limits, fewer than the {self.num_candidates} that are wanted',
                    warn=True,
                )
        if not made:
            raise VitnasError(
                f'the sampler drew no architecture within {", ".join(f"{b:.6g}" for b in self._limits)} MACs in '
                f'{_DRAWS * self.num_candidates} draws each: train it longer, with a larger `beta`, or raise the budget'
            )
        return list(made.values())

    @torch.no_grad()
    def _draw(self, budget: float, rng: np.random.Generator, made: dict[Arch, Proposal]) -> list[Arch]:
        """Draw different architectures within a budget that are not drawn yet, in a bounded number of draws."""
        found: dict[Arch, None] = {}
        for _ in range(_DRAWS):
            for arch in self.policy.draw([budget] * self.num_candidates, rng).archs:
                met = self.space.price(arch).macs <= budget and arch in self.space
                if met and arch not in made and len(found) < self.num_candidates:
                    found[arch] = None
            if len(found) == self.num_candidates:
                break
        return list(found)

    def texts(self) -> dict[str, str]:
        """Files with the best architecture under each of several budgets."""
        found = {}
        for budget in self._limits if len(self._limits) > 1 else ():
            within = ranked(candidate for candidate in self.history if candidate.cost['macs'] <= budget)
            if within:
                found[f'best_arch_{budget_name(budget)}.json'] = within[0].arch.to_json() + '\n'
        return found


def budget_name(budget: float) -> str:
    """Spell a budget as in the names of configs: ``1.4g``, ``2m``."""
    for size, unit in ((1e9, 'g'), (1e6, 'm'), (1e3, 'k')):
        if budget >= size:
            return f'{budget / size:.6g}{unit}'
    return f'{budget:.6g}'


def _read_budgets(budgets: Any) -> tuple[float, ...]:
    """Return different budgets, smallest first."""
    found = tuple(budgets) if isinstance(budgets, (list, tuple)) else (budgets,)
    if not found or any(isinstance(b, bool) or not isinstance(b, (int, float)) or not b > 0 for b in found):
        raise VitnasError(f'`budgets` should be a number of MACs above 0, or several, but got {budgets!r}')
    return tuple(sorted({float(budget) for budget in found}))
