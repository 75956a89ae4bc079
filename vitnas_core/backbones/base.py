"""What every searchable backbone can do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from mmengine.model import BaseModule
from torch import Tensor

from .. import zoo
from ..costs import Cost
from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices, SearchSpace

ArchRef = Arch | Mapping[str, Any] | str | Path
SpaceRef = SearchSpace | Mapping[str, Any] | str | Path


class ElasticBackbone(BaseModule):
    """A backbone that runs any architecture of its space; a fixed network is a space of one.

    Subclasses build layers for the largest architecture, implement :meth:`set_arch`,
    :meth:`forward` and :meth:`cost`, and leave the arguments that rebuild them in ``settings``.

    Args:
        arch: A fixed architecture: a zoo name, the path of an architecture file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        settings: The other arguments that an extracted network is built with.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: Both or neither of ``arch`` and ``space`` are given, or of another family.
    """

    family: ClassVar[str]
    """What ``family`` says in the files of its architectures."""

    cost_settings: ClassVar[tuple[str, ...]]
    """Which of the settings :meth:`cost` takes."""

    def __init__(
        self, arch: ArchRef | None, space: SpaceRef | None, settings: dict[str, Any], init_cfg: dict | None = None
    ) -> None:
        super().__init__(init_cfg)
        name = type(self).__name__
        if (arch is None) == (space is None):
            raise VitnasError(
                f'{name} should be given either `arch` or `space`, but got arch={arch!r}, space={space!r}'
            )
        self.space = zoo.load_space(space) if space is not None else SearchSpace.of(zoo.load_arch(arch))  # type: ignore[arg-type]
        if self.space.family != self.family:
            raise VitnasError(f'{name} should be given {self.family}, but got {self.space.family}: {arch or space}')
        self.settings = settings
        self.arch: Arch

    @property
    def is_fixed(self) -> bool:
        """Whether the backbone holds one architecture only."""
        return self.space.size() == 1

    def set_arch(self, arch: ArchRef) -> None:
        """Activate an architecture; allocates no parameter.

        Anything that fits the weights runs, so that a published architecture beside the space's
        options can be run too (AutoFormer-T is one); ``space.validate`` is the strict check.

        Raises:
            ArchError: The architecture does not fit the weights.
        """
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one an ``out_index``, at full width with zeros in inactive channels."""
        raise NotImplementedError

    @classmethod
    def cost(cls, arch: ArchRef, input_size: int | tuple[int, int], num_classes: int = 0) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
        """
        raise NotImplementedError

    def price(self, arch: ArchRef, input_size: int | tuple[int, int], num_classes: int = 0) -> Cost:
        """:meth:`cost` with this backbone's own settings."""
        settings = {name: self.settings[name] for name in self.cost_settings}
        return self.cost(arch, input_size, num_classes, **settings)

    def extract(self, arch: ArchRef | None = None) -> ElasticBackbone:
        """A fixed copy that holds only one architecture's weights; its outputs are equal bit for bit.

        Args:
            arch: Which one. Defaults to None: the active one.

        Raises:
            ArchError: The architecture does not fit the weights.
        """
        arch = self.arch if arch is None else zoo.load_arch(arch)
        self.check_fits(arch)
        fixed = type(self)(arch=arch, **self.settings)  # type: ignore[call-arg, misc]
        fixed.load_state_dict(cut_to_shape(self.state_dict(), fixed.state_dict()))
        like = next(self.parameters())
        return fixed.to(like.device, like.dtype).train(self.training)

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        raise NotImplementedError


def cut_to_shape(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cut tensors, by name, to the leading part that a smaller network holds.

    Args:
        source: State dict of the larger network.
        target: State dict of the smaller one; only its shapes are read.

    Raises:
        ArchError: A tensor is missing or smaller than asked.
    """
    cut = {}
    for name, wanted in target.items():
        if name not in source:
            raise ArchError(f'the weights have no {name}')
        tensor = source[name]
        if tensor.ndim != wanted.ndim or any(have < want for have, want in zip(tensor.shape, wanted.shape)):
            raise ArchError(f'{name} has shape {tuple(tensor.shape)}, too small for {tuple(wanted.shape)}')
        cut[name] = tensor[tuple(slice(0, size) for size in wanted.shape)].clone()
    return cut


def as_size(input_size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of an image size that may be given as its side."""
    return (input_size, input_size) if isinstance(input_size, int) else (input_size[0], input_size[1])


def number(choices: Choices, name: str, path: str) -> int | float:
    """A numeric choice, or an error that says where it should have been.

    Raises:
        ArchError: It is missing or not a number above 0.
    """
    value = choices.get(name)
    if not isinstance(value, (int, float)) or value <= 0:
        raise ArchError(f'{path}.{name} should be a number above 0, but got {value!r}')
    return value
