"""π(B; θ): an LSTM that predicts an architecture for a budget, decision by decision (FocusFormer, Sec. 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...spaces import ABSENT, SearchSpace

_INITIAL = 0.1
"""Heads start uniform in ±0.1 as in ENAS, which the paper follows: options are nearly equally likely at first."""


class BudgetPolicy(nn.Module):
    """A distribution over the architectures of a space for each budget of a grid, and for budgets between them.

    The LSTM reads the embedding of the budget, then that of each decision. One linear layer per kind of choice turns
    its state into the distribution of the next decision. Choices of one kind have the same name and options, e.g.
    depth, embedding dimension, heads and MLP ratio. Choices of absent blocks are skipped, so that each architecture has
    one sequence.

    All is computed in float64 on the CPU: processes of one training must draw the same architectures.

    Args:
        space: The search space.
        num_budgets: Number of budgets on the grid.
        width: Width of the LSTM and of every embedding.
        generator: Draws the initial weights.
    """

    def __init__(self, space: SearchSpace, num_budgets: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.dimensions = space.dimensions
        kinds = list(dict.fromkeys((dim.name, dim.options) for dim in self.dimensions if len(dim.options) > 1))
        self._kind = [kinds.index((d.name, d.options)) if len(d.options) > 1 else None for d in self.dimensions]
        self.budgets = nn.Embedding(num_budgets, width)
        self.cell = nn.LSTMCell(width, width)
        self.heads = nn.ModuleList(nn.Linear(width, len(options)) for _, options in kinds)
        self.decisions = nn.ModuleList(nn.Embedding(len(options), width) for _, options in kinds)
        self.double()
        self._init_parameters(width, generator)

    def _init_parameters(self, width: int, generator: torch.Generator) -> None:
        """Initialise as torch does, except the heads. With embeddings as small as ENAS's, the budget has no effect at
        first, and π learns one architecture for all budgets."""
        for name, parameter in self.named_parameters():
            if name.startswith('cell.'):
                nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator)
            elif name.startswith('heads.'):
                nn.init.uniform_(parameter, -_INITIAL, _INITIAL, generator)
            else:
                nn.init.normal_(parameter, generator=generator)

    def sample(self, budgets: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw an architecture for each budget.

        Args:
            budgets: (N,), their places on the grid: 0 is the first budget, 1.5 halfway between two.
            uniforms: (N, dimensions), numbers from 0 to 1 that determine the draws.

        Returns:
            Their encodings (N, dimensions) by :meth:`SearchSpace.encode`; log π of each and the entropy of the
            decisions on its path, both (N,).
        """
        return self._run(budgets, None, uniforms)

    def log_prob(self, budgets: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return log π of given architectures and the entropy of the decisions on their paths.

        Args:
            budgets: (N,), as in :meth:`sample`.
            codes: (N, dimensions), the encodings.

        Returns:
            Two tensors of shape (N,). The mean of the second over draws estimates the entropy of π.
        """
        return self._run(budgets, codes, None)[1:]

    def _run(self, budgets: Tensor, given: Tensor | None, uniforms: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        inputs = self._embed(budgets)
        hidden = cell = inputs.new_zeros(inputs.shape)
        codes = torch.zeros(len(budgets), len(self.dimensions), dtype=torch.int64)
        log_prob, entropy = inputs.new_zeros(len(budgets)), inputs.new_zeros(len(budgets))
        for entry, (dim, kind) in enumerate(zip(self.dimensions, self._kind)):
            there = torch.ones(len(budgets), dtype=torch.bool)
            for other, least in dim.needs:
                there &= codes[:, other] >= least
            codes[~there, entry] = ABSENT
            if kind is None or not there.any():
                continue
            next_hidden, next_cell = self.cell(inputs, (hidden, cell))
            logs = self.heads[kind](next_hidden).log_softmax(-1)
            if given is None:
                assert uniforms is not None
                picked = _invert(logs.detach().exp(), uniforms[:, entry])
            else:
                picked = given[:, entry].clamp(min=0)  # absent ones are masked below
            codes[:, entry] = torch.where(there, picked, ABSENT)
            mask = there[:, None]
            log_prob = log_prob + torch.where(there, logs.gather(1, picked[:, None])[:, 0], 0.0)
            entropy = entropy - torch.where(there, (logs.exp() * logs).sum(-1), 0.0)
            hidden, cell = torch.where(mask, next_hidden, hidden), torch.where(mask, next_cell, cell)
            inputs = torch.where(mask, self.decisions[kind](picked), inputs)
        return codes, log_prob, entropy

    def _embed(self, budgets: Tensor) -> Tensor:
        """(N,) → (N, width): embed budgets, linearly between two of the grid."""
        low = budgets.floor().long()
        high = budgets.ceil().long()
        return torch.lerp(self.budgets(low), self.budgets(high), (budgets - low)[:, None])


def _invert(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Return the option (N,) that a number from 0 to 1 falls on, given probabilities (N, options)."""
    return (probs.cumsum(-1)[:, :-1] <= uniforms[:, None]).sum(-1)
