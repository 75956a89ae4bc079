"""``ElasticBackbone``: base class of all searchable backbones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from .. import zoo
from ..elastic import Axis
from ..errors import VitnasError
from ..utils import checks
from .depths import layer_depths
from .mixed import Mixture, run_sides, run_sliced
from .module import ArchRef, ElasticModule

FAMILIES: dict[str, type[ElasticBackbone]] = {}
"""Family name of architecture files → backbone. A class with a ``schema`` registers itself when it is defined."""


class ElasticBackbone(ElasticModule):
    """A backbone that runs any architecture of its space; a fixed network has a space of one architecture.

    A family builds layers between axes in the order of its forward pass, calls :meth:`set_outputs`, and ends its
    constructor with ``self.set_arch(self.space.largest())``. It implements :meth:`widths`, :meth:`stage_blocks` and
    :meth:`run`. Other methods are overridden only for special cases: :meth:`check_weights`, :meth:`entry` with
    :meth:`entry_modules`, :meth:`why_not_masked`, :meth:`why_not_sorted`, :meth:`fit_positions`,
    :meth:`priced_size`.

    Args:
        given: See :class:`ElasticModule`.
    """

    global_pool: ClassVar[str] = 'avg'
    """Input of its classifiers: ``'avg'``, the mean over the last map, or ``'token'``, the class token."""

    resolved_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that a supernet resolves by itself and passes on to its extracted networks."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.output_axes: tuple[Axis, ...] = ()
        self.strides: tuple[int, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register a family in :data:`FAMILIES`.

        Raises:
            VitnasError: Another class has the name of this family.
        """
        super().__init_subclass__(**kwargs)
        if 'schema' in cls.__dict__:
            names = [f'{known.__module__}.{known.__qualname__}' for known in (FAMILIES.get(cls.family, cls), cls)]
            if names[0] != names[1]:  # reloading a module, as in a notebook, replaces its own class
                raise VitnasError(f'family {cls.family!r} of {names[1]} is taken by {names[0]}; name it otherwise')
            FAMILIES[cls.family] = cls

    # written by a family

    @abstractmethod
    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The modules of each stage's blocks, at their positions in an architecture."""

    @abstractmethod
    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Compute the features of the active architecture from the output of :meth:`entry`; see :meth:`forward`."""

    def entry_modules(self) -> tuple[nn.Module, ...]:
        """The modules that :meth:`entry` runs: the same for every architecture, on all samples of a batch."""
        return ()

    def entry(self, x: Tensor) -> Tensor:
        """Compute the part of the forward pass that all architectures have in common."""
        return x

    def why_not_masked(self) -> str:
        """Return the reason why the settings rule out a masked pass; ``''`` if they allow it."""
        return ''

    # outputs

    def set_outputs(self, axes: Sequence[Axis], strides: Sequence[int]) -> None:
        """Set the axis and the stride of each output."""
        self.output_axes, self.strides = tuple(axes), tuple(strides)

    def set_arch(self, arch: ArchRef) -> None:
        """Activate an architecture, as :meth:`ElasticModule.set_arch`.

        Raises:
            ArchError: The architecture does not fit the weights; the active one stays.
            TypeError: The constructor of the family has not called :meth:`set_outputs`.
        """
        if not self.output_axes:
            raise TypeError(f'{type(self).__name__} should call `set_outputs` (or `add_norms`) before `set_arch`')
        super().set_arch(arch)

    def out_channels(self, arch: ArchRef | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, for an architecture, those that are not zero."""
        if arch is None:
            return tuple(axis.most for axis in self.output_axes)
        widths = dict(self.widths(self.schema.read(zoo.load_arch(arch))))
        return tuple(widths[axis] for axis in self.output_axes)

    def out_masks(self, arch: ArchRef) -> tuple[Tensor, ...]:
        """Masks of the channels of each output that an architecture fills, one boolean per channel."""
        return tuple(axis.active(width) for axis, width in zip(self.output_axes, self.out_channels(arch)))

    def out_strides(self) -> tuple[int, ...]:
        """Stride of each output; a map of an H × W image has ceil(H / stride) × ceil(W / stride) pixels."""
        return self.strides

    # several architectures; both sides of a pattern

    def set_archs(self, archs: Sequence[ArchRef], way: str = 'auto', interleaved: bool = False) -> None:
        """Split the samples of the next batches among several architectures, until :meth:`set_arch`.

        One forward pass then returns the features of each sample under its own architecture, in the order of the batch.
        One backward pass gives the sum of the architectures' gradients.

        Args:
            archs: The architectures. Their numbers of samples differ by at most one.
            way: ``'sliced'`` runs them one after another, each at its own width. ``'masked'`` runs all at once at full
                width, with zeros in the channels that a sample's architecture lacks. ``'auto'`` is sliced on a CPU or
                if :meth:`why_not_masked` gives a reason, masked otherwise. Defaults to ``'auto'``.
            interleaved: Whether sample r has architecture r mod n. Defaults to False: neighbours have the same.

        Raises:
            VitnasError: ``archs`` is empty, ``way`` is invalid, or the settings rule it out.
            ArchError: An architecture does not fit the weights; the active one stays.
        """
        loaded = [self.load(arch) for arch in archs]
        mixture = Mixture(tuple(a for a, _ in loaded), tuple(n for _, n in loaded), way, interleaved)
        if way == 'masked' and self.why_not_masked():
            raise VitnasError(f"{self.why_not_masked()}; use way='sliced'")
        self.active.mixture = mixture

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one per ``out_index``, at full width with zeros in inactive channels.

        Maps are contiguous: mmcv's RoIAlign reads memory as (B, C, H, W) and ignores strides, while a convolution
        passes other strides on.

        Raises:
            VitnasError: The input is not of shape (B, 3, H, W).
        """
        if x.ndim != 4 or x.shape[1] != 3:
            raise VitnasError(f'images should have shape (B, 3, H, W), but got {tuple(x.shape)}')
        x, mixture = self.entry(x), self.active.mixture
        if mixture is None or not len(x):
            return run_sides(self, x)
        if mixture.sliced(self, x.device):
            return run_sliced(self, x, mixture)
        with self.active.masked(self, x):
            return self.run(x)

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the depth of a weight and the number of depths, for mmpretrain's layer-wise learning rates.

        Args:
            param_name: Name of the weight in the whole model.
            prefix: Prefix of the backbone in this name, e.g. ``'backbone.'``. Defaults to ``''``.
        """
        depths, count = layer_depths(self)
        return depths.get(param_name.removeprefix(prefix), count - 1), count

    @classmethod
    def priced_size(cls, arch: ArchRef, input_size: Any, out_indices: Sequence[int] | None = None) -> tuple[int, int]:
        """(height, width) of the image for which a price holds; for families that resize images themselves."""
        return checks.size('input_size', input_size)


def unwrap(model: Any) -> Any:
    """Return the model without its distributed wrapper."""
    return model.module if is_model_wrapper(model) else model


def elastic_backbone(model: nn.Module) -> ElasticBackbone:
    """Return the elastic backbone of a model, at any place in it (also inside a distributed wrapper).

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
