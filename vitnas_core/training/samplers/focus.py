"""A learned sampler: it prefers architectures near the Pareto front of accuracy and cost (FocusFormer)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...checkpoints import load_file
from ...costs import reachable_range
from ...errors import CheckpointError, VitnasError
from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from ...utils import checks
from .base import SAMPLER, ArchSampler, Pricing
from .policy import BudgetPolicy

_MOST_BUDGETS = 10_000
"""More embeddings than this mean a wrong unit of ``step``."""
_PRICED = 2**16
"""Number of cached prices."""


class Stateful(Protocol):
    """An object with a state for checkpoints."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state."""


@dataclass(frozen=True)
class Draws:
    """Architectures that π drew.

    Args:
        archs: The architectures, one per budget.
        log_probs: log π(B) of each, (N,), with gradients.
        entropies: Entropy of the decisions on the path to each, (N,), with gradients.
    """

    archs: list[Arch]
    log_probs: Tensor
    entropies: Tensor


@ARCH_SAMPLERS.register_module()
class FocusSampler(ArchSampler):
    """Draw a budget uniformly from the reachable range, then an architecture from π(B) (FocusFormer, Alg. 1).

    :class:`~vitnas_core.training.hooks.SamplerTrainHook` trains π while the supernet trains,
    :class:`~vitnas_core.training.SamplerTrainLoop` afterwards. Before its training, π is nearly uniform.

    Args:
        input_size: Image side, or (height, width), for the cost of architectures. Defaults to None: that of the
            validation images.
        num_classes: Number of classes of the linear head in the cost; 0 for no head. Defaults to None: those of a
            classifier's head.
        step: Distance s of two budgets with an embedding, in MACs. Defaults to 200 M, as in the paper.
        width: Width of the LSTM and the embeddings; the paper does not give it. Defaults to 64.

    Raises:
        VitnasError: ``step`` or ``width`` is out of range.
    """

    num_archs = 1
    any_space = False

    def __init__(
        self,
        input_size: int | tuple[int, int] | None = None,
        num_classes: int | None = None,
        step: float = 200e6,
        width: int = 64,
    ) -> None:
        self.input_size, self.num_classes = input_size, num_classes
        self.step, self.width = float(checks.positive('step', step)), checks.whole('width', width)
        self.training: Stateful | None = None
        """The training of π; its state is stored with that of π."""

    def bind(self, space: SearchSpace, price: Pricing, seed: int) -> None:
        """Build π for a space; budgets range from the cheapest to the most expensive architecture.

        Raises:
            VitnasError: ``step`` gives far too many budgets.
        """
        self.space = space
        self.price = lru_cache(_PRICED)(lambda arch: price(arch, self.input_size, self.num_classes))
        self.low, self.high = reachable_range(space, self.price, 'macs')
        # At least half a step from the ends: those have their own embeddings and should be drawn often enough.
        inner = range(math.ceil(self.low / self.step + 0.5), math.floor(self.high / self.step - 0.5) + 1)
        if len(inner) > _MOST_BUDGETS:
            raise VitnasError(
                f'`step` of vitnas.FocusSampler is {self.step:g} MACs, which gives {len(inner)} budgets from '
                f'{self.low:.4g} to {self.high:.4g}; give a larger one'
            )
        self.grid = np.unique([self.low, *(self.step * number for number in inner), self.high])
        """Budgets with an embedding: the ends of the range and the multiples of the step between them."""
        self.policy = BudgetPolicy(space, len(self.grid), self.width, torch.Generator().manual_seed(seed))

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw one architecture for a random budget."""
        if space is not self.space:
            raise VitnasError('vitnas.FocusSampler draws from the space that it was built for, not from a part of it')
        with torch.no_grad():
            return self.draw(self.draw_budgets(1, rng), rng).archs

    def draw_budgets(self, num: int, rng: np.random.Generator) -> list[float]:
        """Draw budgets B ~ U(lowest, highest), each rounded to the nearest on the grid."""
        return [float(self.grid[self.grid_index(b)]) for b in rng.uniform(self.low, self.high, num)]

    def draw(self, budgets: Sequence[float], rng: np.random.Generator) -> Draws:
        """Draw one architecture from π(B) for each budget, in one batch.

        Raises:
            VitnasError: A budget is out of range.
        """
        uniforms = torch.from_numpy(rng.random((len(budgets), len(self.space.dimensions))))
        codes, log_probs, entropies = self.policy.sample(self._places(budgets), uniforms)
        return Draws([self.space.decode(code) for code in codes.numpy()], log_probs, entropies)

    def log_prob(self, budgets: Sequence[float], archs: Sequence[Arch]) -> Tensor:
        """Return log π(B) of one architecture per budget, (N,), with gradients.

        Raises:
            VitnasError: A budget is out of range, or an architecture is not in the space.
        """
        codes = torch.from_numpy(np.stack([self.space.encode(arch) for arch in archs]))
        return self.policy.log_prob(self._places(budgets), codes)[0]

    def grid_index(self, budget: float) -> int:
        """Return the index of the nearest budget on the grid."""
        return int(np.abs(self.grid - budget).argmin())

    def check_budget(self, budget: float) -> None:
        """Refuse a budget outside the reachable range.

        Raises:
            VitnasError: The budget is out of range.
        """
        if not self.low <= budget <= self.high:
            raise VitnasError(
                f'a budget of {self.space.name or self.space.family} should be from {self.low:.6g} to {self.high:.6g} '
                f'MACs, the range of its architectures, but got {budget:.6g}'
            )

    def _places(self, budgets: Sequence[float]) -> Tensor:
        """Return the places of budgets on the grid: 0 is the first, 1.5 halfway between the second and the third."""
        for budget in budgets:
            self.check_budget(budget)
        return torch.from_numpy(np.interp(budgets, self.grid, np.arange(len(self.grid), dtype=np.float64)))

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of π, their space and budgets, and the state of their training, if any."""
        training = {} if self.training is None else {'training': self.training.state_dict()}
        return {'about': self._about(), 'policy': self.policy.state_dict(), **training}

    def load_state_dict(self, state: Mapping[str, Any], resume: bool = False) -> None:
        """Load the weights of a sampler of the same space and budgets; with ``resume`` also its training.

        Raises:
            CheckpointError: Space or budgets differ.
        """
        for name, value in self._about().items():
            theirs = state['about'].get(name)
            if theirs != value:
                what = 'it is of another space' if name == 'space' else f'its {name} is {theirs}, not {value}'
                raise CheckpointError(f'the architecture sampler of the checkpoint does not fit: {what}')
        self.policy.load_state_dict(state['policy'])
        if resume and self.training is not None and 'training' in state:
            self.training.load_state_dict(state['training'])

    def load_file(self, path: str | os.PathLike) -> None:
        """Load the weights from a checkpoint file.

        Raises:
            CheckpointError: The file has no sampler, or one of another space or other budgets.
        """
        checkpoint = load_file(path)
        if SAMPLER not in checkpoint:
            raise CheckpointError(
                f'{path} has no architecture sampler: train the supernet with vitnas.FocusSampler and '
                f'vitnas.SamplerTrainHook, or train a sampler on it with vitnas.SamplerTrainLoop'
            )
        try:
            self.load_state_dict(checkpoint[SAMPLER])
        except CheckpointError as err:
            raise CheckpointError(f'{err} ({path})') from None

    def _about(self) -> dict[str, Any]:
        return {
            'space': {**self.space.to_dict(), 'name': ''},
            'step': self.step,
            'width': self.width,
            'range of budgets': f'{self.low:.12g} to {self.high:.12g}',
        }
