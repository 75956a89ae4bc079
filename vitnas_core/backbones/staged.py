"""Backbones of stages: each halves the map of the one before, and any of them may be an output."""

from __future__ import annotations

from torch import nn

from ..elastic import Channels, ElasticLayerNorm
from ..spaces import Arch
from .base import ElasticBackbone


class StagedBackbone(ElasticBackbone):
    """A backbone whose stages have a width and half the resolution of the one before, each output behind a norm.

    Subclasses set ``embed_dims``, ``stride`` and, where architectures do not have the first channels, ``shared``, leave
    the blocks of a stage in ``stages[s].blocks``, and call :meth:`add_norms`.
    """

    embed_dims: tuple[int, ...]
    """Channels of each stage."""

    stride: int
    """Image pixels a pixel of the first stage."""

    shared: tuple[Channels | None, ...]
    """Whose channels those of each stage are; None where an architecture has the first ones."""

    stages: nn.ModuleList

    def add_norms(self, eps: float = 1e-5) -> None:
        """Add the norm of each output, ``norm0`` behind the first stage; ``out_indices`` may count from the last."""
        count = len(self.embed_dims)
        self.shared = (None,) * count
        self.out_indices: tuple[int, ...] = self.settings['out_indices']
        self.outs = tuple(index % count for index in self.out_indices)
        """The stages whose features are returned."""
        for s in sorted(set(self.outs)):
            self.add_module(f'norm{s}', ElasticLayerNorm(self.embed_dims[s], eps))

    def out_norm(self, s: int) -> ElasticLayerNorm:
        """The norm of a stage that is an output."""
        return self.get_submodule(f'norm{s}')  # type: ignore[return-value]

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The blocks of each stage, or the places for them."""
        return tuple(tuple(stage.blocks) for stage in self.stages)  # type: ignore[arg-type, union-attr]

    def out_channels(self, arch: Arch | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, of an architecture, those that are not zero."""
        widths = self.embed_dims if arch is None else [int(stage['embed_dim']) for stage in arch.stages]
        return tuple(widths[s] for s in self.outs)

    def out_shared(self) -> tuple[Channels | None, ...]:
        """Those of the stages."""
        return tuple(self.shared[s] for s in self.outs)

    def out_strides(self) -> tuple[int, ...]:
        """The first stage's, twice as much with every stage."""
        return tuple(self.stride * 2**s for s in self.outs)

    def is_output_weight(self, name: str) -> bool:
        """Those of the norms: a norm an output."""
        return name.startswith('norm')
