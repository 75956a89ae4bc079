"""Backbones of several stages: each stage halves the map of the one before, and any stage may be an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ..elastic import ElasticLayerNorm
from ..utils import checks
from .base import ElasticBackbone


class StagedBackbone(ElasticBackbone):
    """A backbone of stages, each with its own width and half the resolution of the one before; outputs are normed.

    Subclasses store the blocks of a stage in ``stages[s].blocks`` and call :meth:`add_norms`.

    Args:
        given: See :class:`ElasticModule`.
    """

    output_weights = ('norm',)

    stages: nn.ModuleList

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.embeds = [self.axis(stage.choices.values_of('embed_dim')) for stage in self.space.stages]
        """Axis of the width of each stage."""
        count = len(self.embeds)
        indices = checks.stage_indices('out_indices', self.settings['out_indices'], count)
        self.outs = tuple(index % count for index in indices)
        """Indices of the stages whose features are returned."""

    @property
    def embed_dims(self) -> tuple[int, ...]:
        """Width of the weights of each stage."""
        return tuple(embed.most for embed in self.embeds)

    def add_norms(self, stride: int, eps: float = 1e-5) -> None:
        """Add the norm of each output, ``norm0`` behind the first stage.

        Args:
            stride: Stride of the first stage.
            eps: Added to the variance. Defaults to 1e-5.
        """
        for s in sorted(set(self.outs)):
            self.add_module(f'norm{s}', ElasticLayerNorm(self.embeds[s], eps))
        self.set_outputs([self.embeds[s] for s in self.outs], [stride * 2**s for s in self.outs])

    def out_norm(self, s: int) -> nn.Module:
        """Return the norm of a stage that is an output."""
        return self.get_submodule(f'norm{s}')

    def output(self, s: int, x: Tensor) -> Tensor:
        """Turn tokens (B, H, W, E) of a stage into its output (B, C, H, W): normed, at full width, contiguous."""
        return self.embeds[s].pad(self.out_norm(s)(x).permute(0, 3, 1, 2), 1).contiguous()

    def drop_path_rates(self) -> list[list[float]]:
        """Rates of stochastic depth of each stage's blocks: rising over all of them, absent ones too."""
        return drop_path_rates(self.settings['drop_path_rate'], [len(stage.blocks) for stage in self.largest.stages])

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The blocks of each stage, or the slots for them."""
        return tuple(tuple(stage.get_submodule('blocks').children()) for stage in self.stages)


def drop_path_rates(rate: float, counts: Sequence[int]) -> list[list[float]]:
    """Rates of stochastic depth that rise linearly from 0 at the first block to ``rate`` at the last.

    Args:
        rate: Rate of the last block.
        counts: Number of blocks of each stage.
    """
    last, first, rates = max(1, sum(counts) - 1), 0, []
    for count in counts:
        rates.append([rate * i / last for i in range(first, first + count)])
        first += count
    return rates
