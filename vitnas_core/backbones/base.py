"""What every searchable backbone can do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from mmengine.model import BaseModule, is_model_wrapper
from torch import Tensor, nn
from typing_extensions import Self

from .. import zoo
from ..costs import Cost
from ..errors import ArchError, SpaceError, VitnasError
from ..spaces import Arch, SearchSpace

ArchRef = Arch | Mapping[str, Any] | str | Path
SpaceRef = SearchSpace | Mapping[str, Any] | str | Path


class ElasticBackbone(BaseModule):
    """A backbone that runs any architecture of its space; a fixed network is a space of one.

    Subclasses build layers for the largest architecture, implement :meth:`check_fits`,
    :meth:`activate`, :meth:`stage_blocks`, :meth:`out_channels`, :meth:`forward` and :meth:`cost`, and
    leave the arguments that rebuild them in ``settings``.

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

    def set_arch(self, arch: ArchRef) -> None:
        """Activate an architecture; allocates no parameter.

        Anything that fits the weights runs, so that a published architecture beside the space's
        options can be run too (AutoFormer-T is one); ``space.validate`` is the strict check.

        Raises:
            ArchError: The architecture does not fit the weights; the active one stays.
        """
        loaded = self._load(arch)
        self.activate(loaded)
        self.arch = loaded

    def _load(self, ref: ArchRef) -> Arch:
        """The architecture of a reference, if the weights can run it; an error names the file."""
        arch = zoo.load_arch(ref)
        try:
            self.check_fits(arch)
        except ArchError as err:
            raise ArchError(f'{err} ({ref})' if isinstance(ref, (str, Path)) else str(err)) from None
        return arch

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        raise NotImplementedError

    def activate(self, arch: Arch) -> None:
        """Set the widths of the layers for an architecture that fits; called by :meth:`set_arch`."""
        raise NotImplementedError

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The modules of each stage's blocks, at the positions that they have in an architecture."""
        raise NotImplementedError

    def out_channels(self, arch: Arch | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, of an architecture, those that are not zero."""
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

    def extract(self, arch: ArchRef | None = None) -> Self:
        """A fixed copy that holds only one architecture's weights; its outputs are equal bit for bit.

        Where stochastic depth is on, its rates are spread over the copy's own depth, so that random
        draws while training differ.

        Args:
            arch: Which one. Defaults to None: the active one.

        Raises:
            ArchError: The architecture does not fit the weights.
        """
        fixed_arch = self._load(self.arch if arch is None else arch)
        with torch.device('meta'):  # nothing is drawn, nothing is allocated twice
            fixed = type(self)(arch=fixed_arch, **self.settings)  # type: ignore[call-arg, misc]
        fixed.load_state_dict(cut_to_shape(self.state_dict(), fixed.state_dict()), assign=True)
        trainable = {name: parameter.requires_grad for name, parameter in self.named_parameters()}
        for name, parameter in fixed.named_parameters():
            parameter.requires_grad_(trainable[name])
        return fixed.train(self.training)


def check_ascending(space: SearchSpace, who: str) -> None:
    """Check that every choice lists numbers, smallest first, so that the largest sizes the weights.

    Raises:
        SpaceError: One does not.
    """
    choices = [space.choices, *(stage.choices for stage in space.stages)]
    choices += [block for stage in space.stages for block in stage.blocks if block is not None]
    for name, options in (entry for choice in choices for entry in choice.options):
        if any(isinstance(a, str) or isinstance(b, str) or a > b for a, b in zip(options, options[1:])):
            raise SpaceError(f'{name} of an {who} space should list numbers, smallest first, but got {list(options)}')


def unwrap(model: Any) -> Any:
    """The model itself, without its distributed wrapper."""
    return model.module if is_model_wrapper(model) else model


def elastic_backbone(model: nn.Module) -> ElasticBackbone:
    """The elastic backbone of a model, wherever it stands in it (also inside a distributed wrapper).

    Raises:
        VitnasError: The model has none, or several.
    """
    found = [module for module in model.modules() if isinstance(module, ElasticBackbone)]
    if len(found) != 1:
        raise VitnasError(
            f'the model should hold one elastic backbone, e.g. backbone=dict(type="vitnas.AutoFormer", space=…), '
            f'but {type(model).__name__} holds {len(found) or "none"}'
        )
    return found[0]


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
