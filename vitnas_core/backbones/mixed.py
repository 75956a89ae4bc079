"""``Active``: the active architecture of a backbone, or several architectures that split a batch.

Several architectures split a batch in one of two ways. *Sliced*: one after another, each at its own width on its own
samples. *Masked*: all at once at full width, with zeros in the channels that a sample's architecture lacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..elastic import ElasticConv2d, ElasticLinear, GradientPool
from ..errors import VitnasError
from ..spaces import Arch

if TYPE_CHECKING:
    from .base import ElasticBackbone
    from .module import ElasticModule

WAYS = ('auto', 'sliced', 'masked')
"""Ways to run several architectures in one pass."""


@dataclass(frozen=True)
class Mixture:
    """Several architectures that split the samples of a batch.

    Args:
        archs: The architectures.
        networks: Their typed choices.
        way: ``'sliced'``, ``'masked'``, or ``'auto'``: sliced on a CPU or if the backbone cannot be masked, masked
            otherwise.
        interleaved: Whether sample r has architecture r mod n, as in ViT-ResNAS's code. Otherwise, neighbours have the
            same one.

    Raises:
        VitnasError: ``archs`` is empty or ``way`` is invalid.
    """

    archs: tuple[Arch, ...]
    networks: tuple[Any, ...]
    way: str = 'auto'
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not self.archs:
            raise VitnasError('`archs` should have at least one architecture, but got none')
        if self.way not in WAYS:
            raise VitnasError(f'`way` should be one of {", ".join(WAYS)}, but got {self.way!r}')

    def sliced(self, backbone: ElasticBackbone, device: torch.device) -> bool:
        """Return whether the architectures run one after another on a device; otherwise masked, all at once."""
        if self.way == 'auto':
            return device.type == 'cpu' or bool(backbone.why_not_masked())
        return self.way == 'sliced'

    def owners(self, batch: int) -> list[int]:
        """Index of each sample's architecture. Parts differ by at most one sample; some are empty in a small batch."""
        count = len(self.archs)
        return [row % count if self.interleaved else row * count // batch for row in range(batch)]


class Active:
    """The active state of a backbone.

    Args:
        arch: The active architecture.
        network: Its typed choices.
    """

    def __init__(self, arch: Arch, network: Any) -> None:
        self.arch, self.network = arch, network
        self.mixture: Mixture | None = None
        """The architectures that split the next batches."""
        self._owners: list[int] = []
        self._device = torch.device('cpu')

    @property
    def archs(self) -> tuple[Arch, ...]:
        """The architectures that are running: the active one, or all of a masked pass."""
        return self.mixture.archs if self._owners and self.mixture else (self.arch,)

    @property
    def _networks(self) -> tuple[Any, ...]:
        return self.mixture.networks if self._owners and self.mixture else (self.network,)

    def switch(self, backbone: ElasticModule, arch: Arch, network: Any) -> None:
        """Set the axes of a backbone for an architecture that fits, given its typed choices too."""
        for axis, width in backbone.widths(network):
            axis.set(width)
        self.arch, self.network = arch, network

    def depth(self, stage: int) -> int:
        """Number of blocks of a stage; the largest one if samples differ."""
        return max(len(network.stages[stage].blocks) for network in self._networks)

    def value(self, stage: int, block: int, name: str) -> Any:
        """Value of a choice of the active block; one value per sample if the samples of a masked pass differ.

        None if the block is absent. A sample that lacks the block gets the largest value.
        """
        found = [getattr(_block(network, stage, block), name, None) for network in self._networks]
        present = [value for value in found if value is not None]
        if len(set(present)) <= 1:
            return present[0] if present else None
        filled = [max(present) if value is None else value for value in found]
        return [filled[owner] for owner in self._owners]

    def pass_block(self, module: nn.Module, stage: int, block: int, x: Tensor, *args: Any) -> Tensor:
        """Run a block on the samples whose architecture has it."""
        present = [_block(network, stage, block) is not None for network in self._networks]
        if not any(present):
            return x
        if all(present):
            return module(x, *args)
        kept = self._each(present).view(-1, *(1,) * (x.ndim - 1))
        return torch.where(kept, module(x, *args), x)

    def _each(self, values: Sequence[Any]) -> Tensor:
        """Repeat one value per architecture for each of its samples."""
        return torch.tensor([values[owner] for owner in self._owners], device=self._device)

    @contextlib.contextmanager
    def masked(self, backbone: ElasticBackbone, x: Tensor) -> Iterator[None]:
        """Set all axes to their full width, with the masks of the samples; restore them afterwards."""
        mixture = self.mixture
        assert mixture is not None
        self._owners, self._device = mixture.owners(len(x)), x.device
        widths = [dict(backbone.widths(network)) for network in mixture.networks]
        axes = {axis for own in widths for axis in own}
        made: dict[tuple[int, ...], Tensor] = {}
        try:
            for axis in axes:
                # A sample does not use the outputs of blocks it lacks: any width works, but norms must not divide by 0.
                wanted = [own.get(axis, axis.most) for own in widths]
                key = (axis.most, *wanted)
                if key not in made:
                    made[key] = torch.arange(axis.most, device=x.device) < self._each(wanted)[:, None]
                axis.set(axis.most, made[key])
            yield
        finally:
            self._owners = []
            for axis in axes:
                axis.set(axis.most)
            self.switch(backbone, self.arch, self.network)


def _block(network: Any, stage: int, block: int) -> Any:
    """Return the choices of a block, None if the architecture lacks it."""
    blocks = network.stages[stage].blocks
    return blocks[block] if block < len(blocks) else None


def run_sides(backbone: ElasticBackbone, x: Tensor) -> tuple[Tensor, ...]:
    """Run the active architecture; sum both sides while a bilateral pattern is trained (BCNet: one loss on the sum)."""
    if not backbone.training or not backbone.pattern.two_sided:
        return backbone.run(x)
    runs = [backbone.run(x) for _ in backbone.pattern.each_side()]
    return tuple(sum(outs[1:], outs[0]) for outs in zip(*runs))


def run_sliced(backbone: ElasticBackbone, x: Tensor, mixture: Mixture) -> tuple[Tensor, ...]:
    """Run each architecture on its samples of the entry's output; return outputs in the order of the batch."""
    owners = mixture.owners(len(x))
    parts, order = [], []
    with _pools(backbone):
        for i, (arch, network) in enumerate(zip(mixture.archs, mixture.networks)):
            rows = [row for row, owner in enumerate(owners) if owner == i]
            if not rows:
                continue
            backbone.active.switch(backbone, arch, network)
            own = x[rows] if mixture.interleaved else x[rows[0] : rows[-1] + 1]
            parts.append(run_sides(backbone, own))
            order += rows
    outs = (torch.cat(out) for out in zip(*parts))
    if not mixture.interleaved:
        return tuple(outs)
    back = torch.tensor(order, device=x.device).argsort()
    return tuple(out[back] for out in outs)


@contextlib.contextmanager
def _pools(backbone: ElasticBackbone) -> Iterator[None]:
    """Let layers gather the gradients of their slices; restore layers and architecture afterwards."""
    arch, network = backbone.active.arch, backbone.active.network
    layers = [
        module
        for module in backbone.modules()
        if isinstance(module, ElasticLinear | ElasticConv2d)
        and module.weight.requires_grad
        and module.inputs.channels is module.outputs.channels is None  # a pool gathers prefixes
    ]
    try:
        for layer in layers:
            layer.pool = GradientPool(layer.weight) if torch.is_grad_enabled() else None
        yield
    finally:
        for layer in layers:
            layer.pool = None
        backbone.active.switch(backbone, arch, network)
