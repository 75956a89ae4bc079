"""``ElasticBackbone``: what every searchable backbone can do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from .. import zoo
from ..elastic import Axis
from ..errors import VitnasError
from ..utils import checks
from .depths import layer_depths
from .mixed import Mixture, run_sliced
from .module import ArchRef, ElasticModule


class ElasticBackbone(ElasticModule):
    """A backbone that runs any architecture of its space; a fixed network is a space of one.

    A family builds layers between axes in the order in which an image passes them, calls :meth:`set_outputs`, ends its
    constructor with ``self.set_arch(self.space.largest())``, and implements :meth:`widths`, :meth:`stage_blocks` and
    :meth:`run`. Further methods are for what is special: :meth:`check_weights`, :meth:`entry` with
    :meth:`entry_modules`, :meth:`why_not_masked`, :meth:`why_not_sorted`, :meth:`fit_positions`.

    Args:
        given: See :class:`ElasticModule`.
    """

    global_pool: ClassVar[str] = 'avg'
    """What its classifiers read: the mean over the last map, ``'avg'``, or the class token, ``'token'``."""

    resolved_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that a supernet works out by itself and its extracted networks are built with."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.output_axes: tuple[Axis, ...] = ()
        self.strides: tuple[int, ...] = ()

    # what a family writes

    @abstractmethod
    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The modules of each stage's blocks, at the positions that they have in an architecture."""

    @abstractmethod
    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """What :meth:`entry` made → the features of what is active; see :meth:`forward`."""

    def entry_modules(self) -> tuple[nn.Module, ...]:
        """The modules that :meth:`entry` runs: the same for every architecture, on all samples of a batch."""
        return ()

    def entry(self, x: Tensor) -> Tensor:
        """Images → what all architectures have in common of them."""
        return x

    def why_not_masked(self) -> str:
        """Which setting makes architectures differ by more than a masked pass can express; ``''`` if none."""
        return ''

    # outputs

    def set_outputs(self, axes: Sequence[Axis], strides: Sequence[int]) -> None:
        """Say which channels each output has, and how many image pixels one of its pixels stands for."""
        self.output_axes, self.strides = tuple(axes), tuple(strides)

    def out_channels(self, arch: ArchRef | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, for an architecture, those that are not zero."""
        if arch is None:
            return tuple(axis.most for axis in self.output_axes)
        widths = dict(self.widths(self.schema.read(zoo.load_arch(arch))))
        return tuple(widths[axis] for axis in self.output_axes)

    def out_masks(self, arch: ArchRef) -> tuple[Tensor, ...]:
        """Which channels of each output are not zero for an architecture, one boolean per channel."""
        return tuple(axis.active(width) for axis, width in zip(self.output_axes, self.out_channels(arch)))

    def out_strides(self) -> tuple[int, ...]:
        """Stride of each output; a map of an H × W image has ceil(H / stride) × ceil(W / stride) pixels."""
        return self.strides

    # several architectures, both sides of a pattern

    def set_archs(self, archs: Sequence[ArchRef], way: str = 'auto', interleaved: bool = False) -> None:
        """Share the samples of the next batches among several architectures, until :meth:`set_arch`.

        One forward pass then gives what each architecture gives for its own samples, in the order of the batch, and
        one backward pass the sum of their gradients.

        Args:
            archs: The architectures; each gets as many samples as the others, give or take one.
            way: ``'sliced'``: one after another, each at its own width; ``'masked'``: all at once at full width,
                with zeros in the channels that a sample's architecture lacks; ``'auto'``: sliced on a CPU and where
                :meth:`why_not_masked` has a reason, masked elsewhere. Defaults to ``'auto'``.
            interleaved: Whether sample r has architecture r mod n. Defaults to False: neighbours have the same.

        Raises:
            VitnasError: ``archs`` is empty, ``way`` is invalid, or the settings do not allow it.
            ArchError: One does not fit the weights; what was active stays.
        """
        loaded = [self.load(arch) for arch in archs]
        mixture = Mixture(tuple(a for a, _ in loaded), tuple(n for _, n in loaded), way, interleaved)
        if way == 'masked' and self.why_not_masked():
            raise VitnasError(f"{self.why_not_masked()}; use way='sliced'")
        self.active.mixture = mixture

    def slices(self, way: str, device: torch.device) -> bool:
        """Whether architectures that share a batch run one after another there; else all at once, masked."""
        return way == 'sliced' or (way == 'auto' and (device.type == 'cpu' or bool(self.why_not_masked())))

    def each_side(self) -> Iterator[str]:
        """Take channels from each end in turn that the pattern knows, and then from the left again."""
        return self.pattern.each_side()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one per ``out_index``, at full width with zeros in inactive channels.

        Maps are contiguous: mmcv's RoIAlign reads memory as (B, C, H, W) whatever the strides, and a convolution hands
        other strides on.

        Raises:
            VitnasError: The images have another shape.
        """
        if x.ndim != 4 or x.shape[1] != 3:
            raise VitnasError(f'images should have shape (B, 3, H, W), but got {tuple(x.shape)}')
        x, mixture = self.entry(x), self.active.mixture
        if mixture is None or not len(x):
            return self.run_sides(x)
        if self.slices(mixture.way, x.device):
            return run_sliced(self, x, mixture)
        with self.active.masked(self, x):
            return self.run(x)

    def run_sides(self, x: Tensor) -> tuple[Tensor, ...]:
        """:meth:`run`; while a bilateral pattern is trained, the sum over both sides (BCNet: one loss on the sum)."""
        if not self.training or not self.pattern.two_sided:
            return self.run(x)
        runs = [self.run(x) for _ in self.each_side()]
        return tuple(sum(outs[1:], outs[0]) for outs in zip(*runs))

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """The depth of a weight and the number of depths, as mmpretrain's layer-wise learning rates ask for them.

        Args:
            param_name: Its name in the whole model.
            prefix: Where the backbone is in it, e.g. ``'backbone.'``. Defaults to ``''``.
        """
        depths, count = layer_depths(self)
        return depths.get(param_name.removeprefix(prefix), count - 1), count

    @classmethod
    def priced_size(cls, arch: ArchRef, input_size: Any, out_indices: Sequence[int] | None = None) -> tuple[int, int]:
        """(height, width) of the image that a price holds for, where a family resizes images by itself."""
        return checks.size('input_size', input_size)


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
