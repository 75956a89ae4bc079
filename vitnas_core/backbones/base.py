"""What every searchable backbone can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from mmengine.model import BaseModule, PretrainedInit, initialize, is_model_wrapper
from torch import Tensor, nn
from typing_extensions import Self

from .. import zoo
from ..costs import Cost
from ..elastic import Axes, Channels, Pattern, Reorder
from ..errors import ArchError, SpaceError, VitnasError
from ..spaces import Arch, SearchSpace
from .mixed import Mixture, Sharing, has_block, masks, run_sliced
from .pretrained import NOTE, Note, check_note, cut_to_shape, load_pretrained

ArchRef = Arch | Mapping[str, Any] | str | Path
SpaceRef = SearchSpace | Mapping[str, Any] | str | Path

PRETRAINED = ('Pretrained', PretrainedInit)
"""What ``type`` of an ``init_cfg`` says for the weights of a file."""


class ElasticBackbone(BaseModule):
    """A backbone that runs any architecture of its space; a fixed network is a space of one.

    Subclasses build layers for the largest architecture, in the order in which an image passes them, implement
    :meth:`check_fits`, :meth:`activate`, :meth:`input_widths`, :meth:`stage_blocks`, :meth:`out_channels`,
    :meth:`out_strides`, :meth:`run` and :meth:`cost`, and leave the arguments that rebuild them in ``settings``.

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

    weight_settings: ClassVar[tuple[str, ...]] = ()
    """Which of the settings change what the same weights compute, so that a checkpoint's should be the same."""

    supernet_settings: ClassVar[tuple[str, ...]] = ('sharing',)
    """Which of the settings, where it has them, tell how the weights of a supernet are shared."""

    global_pool: ClassVar[str] = 'avg'
    """What its classifiers read: the mean over the last map, ``'avg'``, or the class token, ``'token'``."""

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
        shared = Pattern(settings.get('sharing', 'ordinal'))
        self.pattern = shared if self.space.size() > 1 else Pattern('ordinal')
        """How architectures of different widths share channels; a fixed network, which shares none, has one side."""
        self.arch: Arch
        self._mixture: Mixture | None = None
        self._sharing: Sharing | None = None

    def set_arch(self, arch: ArchRef) -> None:
        """Activate an architecture; allocates no parameter.

        Anything that fits the weights runs, so that a published architecture beside the space's
        options can be run too (AutoFormer-T is one); ``space.validate`` is the strict check.

        Raises:
            ArchError: The architecture does not fit the weights; the active one stays.
        """
        self.switch(self._load(arch))
        self._mixture = None

    def switch(self, arch: Arch) -> None:
        """Activate an architecture that fits."""
        self.activate(arch)
        self.arch = arch

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
            VitnasError: There is none, ``way`` is none of these, or the settings do not allow it.
            ArchError: One does not fit the weights; what was active stays.
        """
        mixture = Mixture(tuple(self._load(arch) for arch in archs), way, interleaved)
        if way == 'masked' and self.why_not_masked():
            raise VitnasError(f"{self.why_not_masked()}; use way='sliced'")
        self._mixture = mixture

    @property
    def running(self) -> tuple[Arch, ...]:
        """The architectures of the samples that run now: the active one, or all that share a masked pass."""
        return (self.arch,) if self._sharing is None else self._sharing.archs

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

    def out_shared(self) -> tuple[Channels | None, ...]:
        """Whose channels those of each output are; None where an architecture has the first ones."""
        return (None,) * len(self.out_channels())

    def out_masks(self, arch: Arch) -> tuple[Tensor, ...]:
        """Which channels of each output are not zero, of an architecture; boolean, one a channel."""
        counts = zip(self.out_channels(), self.out_channels(arch), self.out_shared())
        return tuple(
            torch.arange(whole) < width if shared is None else shared.mask(width) for whole, width, shared in counts
        )

    def out_strides(self) -> tuple[int, ...]:
        """Image pixels a pixel of each output; a map of an H × W image has ceil(H / stride) × ceil(W / stride)."""
        raise NotImplementedError

    def input_widths(self, arch: Arch) -> dict[nn.Module, int]:
        """Input channels, of an architecture, of every norm and of linear layers whose input may have more.

        Those are the layers that read channels which others have filled: behind a residual sum, heads or hidden
        units. In a masked pass they leave out what a sample's architecture lacks.
        """
        raise NotImplementedError

    def why_not_masked(self) -> str:
        """Which setting makes architectures differ by more than widths, blocks and :meth:`share`; ``''`` if none."""
        return ''

    def share(self, sharing: Sharing) -> None:
        """Set what the samples of a masked pass have of their own beside widths and blocks."""

    def importance_orders(self) -> list[Reorder]:
        """New orders of heads and hidden units, most important first, which leave the largest architecture as it is.

        Raises:
            VitnasError: The settings give channels fixed places.
        """
        if self.pattern.name != 'ordinal':
            raise VitnasError(
                f'heads and hidden units cannot be sorted with sharing={self.pattern.name!r}: smaller architectures do '
                f'not have the first ones'
            )
        blocks = [block for blocks in self.stage_blocks() for block in blocks if not isinstance(block, nn.Identity)]
        return [change for block in blocks for change in block.importance_orders()]  # type: ignore[operator, union-attr]

    def shared_modules(self) -> tuple[nn.Module, ...]:
        """What :meth:`prepare` runs: the same for every architecture, on all samples of a batch."""
        return ()

    def prepare(self, x: Tensor) -> Tensor:
        """What all architectures have in common, before :meth:`run`."""
        return x

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """The active architecture's features of what :meth:`prepare` made; see :meth:`forward`."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one an ``out_index``, at full width with zeros in inactive channels.

        Maps are contiguous: mmcv's RoIAlign reads memory as (B, C, H, W) whatever the strides, and a convolution hands
        other strides on.

        Raises:
            VitnasError: The images have another shape.
        """
        if x.ndim != 4 or x.shape[1] != 3:
            raise VitnasError(f'images should have shape (B, 3, H, W), but got {tuple(x.shape)}')
        x, mixture = self.prepare(x), self._mixture
        if mixture is None or not len(x):
            return self.run_sides(x)
        if self.slices(mixture.way, x.device):
            return run_sliced(self, x, mixture)
        self._sharing = Sharing(mixture.archs, mixture.owners(len(x)), x.device)
        try:
            with masks(self, self._sharing):
                self.share(self._sharing)
                return self.run(x)
        finally:
            self._sharing = None

    def run_sides(self, x: Tensor) -> tuple[Tensor, ...]:
        """:meth:`run`; while a bilateral pattern is trained, the sum over both sides (BCNet: one loss on the sum)."""
        if not self.training or len(self.pattern.sides) == 1:
            return self.run(x)
        return tuple(sum(outs) for outs in zip(*(self.run(x) for _ in self.each_side())))  # type: ignore[misc]

    def each_side(self) -> Iterator[str]:
        """Take channels from each end in turn that the pattern knows, and then from the left again."""
        try:
            for side in self.pattern.sides:
                self.pattern.side = side
                yield side
        finally:
            self.pattern.side = 'left'

    def channel_axes(self) -> Axes:
        """Whose channels the axes of each weight are, by its name."""
        return {
            f'{name}.{key}'.removeprefix('.'): axes
            for name, module in self.named_modules()
            if hasattr(module, 'axes')
            for key, axes in module.axes().items()  # type: ignore[operator]
        }

    def slices(self, way: str, device: torch.device) -> bool:
        """Whether architectures that share a batch run one after another there; else all at once, masked."""
        return way == 'sliced' or (way == 'auto' and (device.type == 'cpu' or bool(self.why_not_masked())))

    def pass_block(self, block: nn.Module, s: int, b: int, x: Tensor, *args: Any) -> Tensor:
        """Send samples through block b of stage s, if their architecture has it."""
        present = has_block(self.arch, s, b) if self._sharing is None else self._sharing.present(s, b)
        if isinstance(present, bool):
            return block(x, *args) if present else x
        return torch.where(present.view(-1, *(1,) * (x.ndim - 1)), block(x, *args), x)

    def is_output_weight(self, name: str) -> bool:
        """Whether a weight belongs to one output alone, so that a network with other ``out_indices`` lacks it."""
        return False

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: tuple[int, int] | None = None) -> None:
        """Change the position tables among the weights of a network for another image size to this one's, in place.

        Args:
            weights: The weights, by name.
            prefix: What their names begin with. Defaults to ``''``.
            img_size: Height and width of the images that their positions are for. Defaults to None: not known.
        """

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, metadata: Any, *args: Any) -> None:
        if NOTE in metadata:
            check_note(self, metadata[NOTE])
        self.fit_positions(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, metadata, *args)

    def init_weights(self) -> None:
        """As everywhere in mm, but ``dict(type='Pretrained', checkpoint=…)`` is checked and cut to this network.

        Raises:
            CheckpointError: The file holds another architecture, or no weights for this one.
        """
        init_cfgs = [self.init_cfg] if isinstance(self.init_cfg, dict) else list(self.init_cfg or [])
        pretrained = [cfg for cfg in init_cfgs if cfg['type'] in PRETRAINED]
        if self.is_init or not pretrained:  # type: ignore[has-type]
            super().init_weights()
            return
        initialize(self, [cfg for cfg in init_cfgs if cfg not in pretrained])
        for cfg in pretrained:
            load_pretrained(self, cfg['checkpoint'], cfg.get('prefix'))
        self.is_init = True

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Leave a note in the state dict, by which a checkpoint says what it holds."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, '_metadata'):
            destination._metadata.setdefault(prefix[:-1], {})[NOTE] = self.note()

    def fixed_settings(self) -> dict[str, Any]:
        """What an extracted network is built with beside the arguments of this one."""
        return {}

    def note(self) -> str:
        """What a checkpoint says of its weights, as JSON: their space, and the settings under which they hold."""
        names = self.weight_settings
        if self.space.size() > 1:
            names += tuple(name for name in self.supernet_settings if name in self.settings)
        settings = {name: self.settings[name] for name in names}
        return Note(self.space, settings, self.settings.get('img_size')).to_json()

    def layer_depths(self) -> dict[str, int]:
        """How deep each weight lies: 0 before the first block, then a number a block, and one more behind the last.

        What lies between two blocks, such as the merging of patches, counts to the one behind it.
        """
        names = {id(module): name for name, module in self.named_modules()}
        blocks = [f'{names[id(block)]}.' for blocks in self.stage_blocks() for block in blocks]
        depths, last = {}, 0
        waiting: list[str] = []
        for name, _ in self.named_parameters():
            found = next((i for i, block in enumerate(blocks, 1) if name.startswith(block)), None)
            if found is None:
                waiting.append(name)
                continue
            depths.update(dict.fromkeys(waiting, 0 if last == 0 else found))
            waiting, last = [], found
            depths[name] = found
        depths.update({name: len(blocks) + 1 for name in waiting})
        return depths

    @property
    def num_depths(self) -> int:
        """How many depths :meth:`layer_depths` tells apart, also where nothing lies behind the last block."""
        return sum(len(blocks) for blocks in self.stage_blocks()) + 2

    def position_weights(self) -> set[str]:
        """Tokens, tables of positions, scaling vectors: what is no weight of a linear layer, convolution or norm."""
        layers = (nn.Linear, nn.Conv2d, nn.LayerNorm, nn.modules.batchnorm._BatchNorm)
        known = {
            id(parameter)
            for module in self.modules()
            if isinstance(module, layers)
            for parameter in module.parameters(recurse=False)
        }
        return {name for name, parameter in self.named_parameters() if id(parameter) not in known}

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """The depth of a weight and the number of depths, as mmpretrain's layer-wise learning rates ask for them.

        Args:
            param_name: Its name in the whole model.
            prefix: Where the backbone is in it, e.g. ``'backbone.'``. Defaults to ``''``.
        """
        depths, count = self.layer_depths(), self.num_depths
        return depths.get(param_name.removeprefix(prefix), count - 1), count

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
        part = cut_to_shape(self.state_dict(), fixed.state_dict(), self.channel_axes())
        fixed.load_state_dict(part, assign=True)
        trainable = {name: parameter.requires_grad for name, parameter in self.named_parameters()}
        for name, parameter in fixed.named_parameters():
            parameter.requires_grad_(trainable[name])
        return fixed.train(self.training)


def check_ascending(space: SearchSpace, who: str, but: Sequence[str] = ()) -> None:
    """Check that every choice lists numbers, smallest first, so that the largest sizes the weights.

    Args:
        space: The space.
        who: Whose space it should be.
        but: Choices that size no weights. Defaults to ().

    Raises:
        SpaceError: One does not.
    """
    choices = [space.choices, *(stage.choices for stage in space.stages)]
    choices += [block for stage in space.stages for block in stage.blocks if block is not None]
    for name, options in (entry for choice in choices for entry in choice.options if entry[0] not in but):
        if any(isinstance(a, str) or isinstance(b, str) or a > b for a, b in zip(options, options[1:])):
            raise SpaceError(f'{name} of an {who} space should list numbers, smallest first, but got {list(options)}')


def options_of(space: SearchSpace, stage: int, name: str) -> list[int]:
    """What a stage of a space offers for a choice of whole numbers."""
    return [int(value) for value in dict(space.stages[stage].choices.options)[name]]


def block_options(space: SearchSpace, stage: int, block: int) -> dict[str, Any]:
    """What a block of a space offers, by the names of its choices; nothing for a place that is always empty."""
    choices = space.stages[stage].blocks[block]
    return {} if choices is None else dict(choices.options)


def check_rates(settings: Mapping[str, Any]) -> None:
    """Check the rates of dropout and stochastic depth.

    Raises:
        VitnasError: One is not from 0 to 1.
    """
    for name in ('attn_drop_rate', 'drop_path_rate'):
        if not isinstance(settings[name], (int, float)) or not 0 <= settings[name] <= 1:
            raise VitnasError(f'`{name}` should be from 0 to 1, but got {settings[name]!r}')


def check_stages(wanted: Sequence[tuple[int, int]], stored: Sequence[tuple[int, int]]) -> None:
    """Check the width and the number of blocks of every stage against those of the weights.

    Raises:
        ArchError: There are more or fewer stages, or one is wider or longer.
    """
    if len(wanted) != len(stored):
        raise ArchError(f'stages has {len(wanted)} entries; the weights have {len(stored)} stages')
    for s, ((width, blocks), (widest, most)) in enumerate(zip(wanted, stored)):
        if width > widest:
            raise ArchError(f'stages[{s}].embed_dim is {width}; the weights of this stage are {widest} wide')
        if blocks > most:
            raise ArchError(f'stages[{s}].blocks has {blocks} entries; the weights have {most} blocks')


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
