"""Several architectures in one batch, each with some of its samples: one pass gives the gradients of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ..elastic import ElasticConv2d, ElasticLayerNorm, ElasticLinear, GradientPool
from ..errors import VitnasError
from ..spaces import Arch

if TYPE_CHECKING:
    from .base import ElasticBackbone

WAYS = ('auto', 'sliced', 'masked')
"""How architectures may share a pass."""


@dataclass(frozen=True)
class Mixture:
    """Which architectures share the samples of a batch, and how.

    Args:
        archs: The architectures.
        way: ``'sliced'``: one after another, each at its own width; ``'masked'``: all at once at full width, with
            zeros in the channels that a sample's architecture lacks; ``'auto'``: sliced on a CPU and where the backbone
            cannot be masked, masked elsewhere.
        interleaved: Whether sample r has architecture r mod n, as in ViT-ResNAS's code; else each has neighbours.

    Raises:
        VitnasError: There is no architecture, or ``way`` is none of these.
    """

    archs: tuple[Arch, ...]
    way: str = 'auto'
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not self.archs:
            raise VitnasError('a batch should be shared among at least one architecture, but got none')
        if self.way not in WAYS:
            raise VitnasError(f'`way` should be one of {", ".join(WAYS)}, but got {self.way!r}')

    def owners(self, batch: int) -> list[int]:
        """Which architecture each sample has; parts differ by at most one, and may be empty in a small batch."""
        count = len(self.archs)
        return [row % count if self.interleaved else row * count // batch for row in range(batch)]


class Sharing(NamedTuple):
    """What a masked pass knows of its samples.

    Args:
        archs: The architectures.
        owners: Which of them each sample has.
        device: Where the pass runs.
    """

    archs: tuple[Arch, ...]
    owners: list[int]
    device: torch.device

    def each(self, values: list) -> Tensor:
        """What each sample has of something that each architecture has."""
        return torch.tensor([values[owner] for owner in self.owners], device=self.device)

    def present(self, stage: int, block: int) -> bool | Tensor:
        """Whether the samples have a block; a tensor (B,) where they differ."""
        here = [has_block(arch, stage, block) for arch in self.archs]
        return here[0] if len(set(here)) == 1 else self.each(here)


def has_block(arch: Arch, stage: int, block: int) -> bool:
    """Whether an architecture has the block at a place."""
    blocks = arch.stages[stage].blocks
    return block < len(blocks) and blocks[block] is not None


def run_sliced(backbone: ElasticBackbone, x: Tensor, mixture: Mixture) -> tuple[Tensor, ...]:
    """Run each architecture on its samples of what ``prepare`` made; outputs are in the order of the batch."""
    owners = mixture.owners(len(x))
    parts, order = [], []
    with _pools(backbone):
        for i, arch in enumerate(mixture.archs):
            rows = [row for row, owner in enumerate(owners) if owner == i]
            if not rows:
                continue
            backbone.switch(arch)
            own = x[rows] if mixture.interleaved else x[rows[0] : rows[-1] + 1]
            parts.append(backbone.run_sides(own))
            order += rows
    outs = (torch.cat(out) for out in zip(*parts))
    if not mixture.interleaved:
        return tuple(outs)
    back = torch.tensor(order, device=x.device).argsort()
    return tuple(out[back] for out in outs)


@contextlib.contextmanager
def _pools(backbone: ElasticBackbone) -> Iterator[None]:
    """Layers whose slices gather their gradients; as before afterwards, and at the architecture of before."""
    before = backbone.arch
    layers = [
        module
        for module in backbone.modules()
        if isinstance(module, ElasticLinear | ElasticConv2d)
        and module.weight.requires_grad
        and module.inputs is module.outputs is None  # a pool gathers prefixes
    ]
    try:
        for layer in layers:
            layer.pool = GradientPool(layer.weight) if torch.is_grad_enabled() else None
        yield
    finally:
        for layer in layers:
            layer.pool = None
        backbone.switch(before)


@contextlib.contextmanager
def masks(backbone: ElasticBackbone, sharing: Sharing) -> Iterator[None]:
    """Layers at full width that know which channels each sample has; as before afterwards."""
    widths = [backbone.input_widths(arch) for arch in sharing.archs]
    layers = {layer for own in widths for layer in own}
    made: dict[tuple[int, ...], Tensor] = {}
    try:
        for layer in layers:
            channels = _channels(layer)
            # What a block that a sample lacks makes of it is not used: any width will do, but none divides by zero.
            wanted = [own.get(layer, channels) for own in widths]
            key = (channels, *wanted)
            if key not in made:
                made[key] = torch.arange(channels, device=sharing.device) < sharing.each(wanted)[:, None]
            layer.mask = made[key]  # type: ignore[assignment]
        for module in backbone.modules():
            if isinstance(module, ElasticLinear):
                module.width = module.out_features
            elif isinstance(module, ElasticConv2d):
                module.width = module.out_channels
        yield
    finally:
        for layer in layers:
            layer.mask = None  # type: ignore[assignment]
        backbone.switch(backbone.arch)


def _channels(layer: nn.Module) -> int:
    """Largest input width."""
    if isinstance(layer, ElasticLayerNorm):
        return layer.normalized_shape[0]
    assert isinstance(layer, ElasticLinear)
    return layer.in_features
