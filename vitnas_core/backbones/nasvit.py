"""NASViT: convolutions, then transformers; elastic in width, depth, kernel, expansion and resolution (2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .. import zoo
from ..costs import Cost
from ..costs.mbconv import hidden_width
from ..costs.nasvit import (
    NASViTChoices,
    NASViTStage,
    Size,
    check_options,
    check_window,
    nasvit_cost,
    read_nasvit,
    stage_sizes,
    table_side,
)
from ..costs.reading import check_out_indices
from ..elastic import (
    ElasticBatchNorm2d,
    ElasticConv2d,
    MBConv,
    SwitchableScale,
    WindowTables,
    pad_channels,
    resize_table,
)
from ..errors import ArchError, SpaceError, VitnasError
from ..registry import MODELS
from ..spaces import Arch, SearchSpace
from .base import ArchRef, ElasticBackbone, SpaceRef, check_rates, options_of
from .nasvit_layers import COLUMNS, PublishedScale, TransformerLayer
from .tokens import as_map, as_tokens


class Stage(nn.Module):
    """An MBConv, then transformer layers or more MBConvs.

    Args:
        blocks: The layers.
    """

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)


class MBPool(nn.Module):
    """The efficient last stage: 1 × 1 convolution, mean over the image, 1 × 1 convolution (MobileNetV3).

    Args:
        in_channels: Largest width of the last stage.
        hidden: Largest width of the map whose mean is taken.
        out_channels: Largest output width.
    """

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.expand = ElasticConv2d(in_channels, hidden, 1, bias=False)
        self.bn = ElasticBatchNorm2d(hidden)
        self.mix = ElasticConv2d(hidden, out_channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C', 1, 1)."""
        pooled = F.silu(self.bn(self.expand(x))).mean((2, 3), keepdim=True)
        return F.silu(self.mix(pooled))


@MODELS.register_module()
class NASViT(ElasticBackbone):
    """NASViT (ICLR 2022), elastic (``space=``) or fixed (``arch=``).

    A classifier resizes images to the resolution of its architecture and ends with MBPool. With ``out_indices`` it is
    a backbone of dense tasks: images keep their size, any H × W, and maps of stages are returned; tokens that are
    further apart than relative positions are stored for take the outermost ones.

    Args:
        arch: A fixed architecture: a zoo name (``'nasvit-a1'``), a file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        out_indices: Of which stages maps are returned, 0 the stem's; negative ones count from the last before MBPool.
            Stages behind the last of them do not run. Defaults to None: MBPool's output, (B, C, 1, 1).
        window_size: Attention in windows of this side, every second layer's shifted, instead of those that the
            architecture has; 7 in the paper's segmentation. Defaults to None: the architecture's.
        scaling: Whether branches of transformer layers are scaled by vectors that architectures of other widths do
            not share. Defaults to True.
        official: As in the published code: scaling vectors go by the depth of the stage and the number of tokens
            modulo 8, with a factor of 8 / width, and all windows are shifted, without a mask. Defaults to False: as
            in the paper, a vector a width in each layer, and Swin's windows.
        drop_path_rate: Stochastic depth of the last layer, rising linearly from 0 at the first. Defaults to 0.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: An argument is none of the above, or the space is not NASViT's.
    """

    family = 'nasvit'
    cost_settings = ('out_indices', 'window_size', 'scaling', 'official')
    weight_settings = ('scaling', 'official')

    def __init__(
        self,
        arch: ArchRef | None = None,
        space: SpaceRef | None = None,
        out_indices: tuple[int, ...] | None = None,
        window_size: int | None = None,
        scaling: bool = True,
        official: bool = False,
        drop_path_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        settings: dict[str, Any] = dict(
            out_indices=tuple(out_indices) if isinstance(out_indices, (list, tuple)) else out_indices,
            window_size=window_size,
            scaling=scaling,
            official=official,
            drop_path_rate=drop_path_rate,
        )
        super().__init__(arch, space, settings, init_cfg)
        self._most = most = _maxima(self.space)
        _check_settings(settings, 1 + len(most.stages))
        self.widths = (most.stem, *(stage.width for stage in most.stages))
        self.classifies = out_indices is None
        self._wanted = [index % len(self.widths) for index in settings['out_indices'] or ()]
        self.stem = ElasticConv2d(3, most.stem, 3, 2, padding=1, bias=False)
        self.stem_bn = ElasticBatchNorm2d(most.stem)
        self.stages = nn.ModuleList(self._build_stage(s) for s in range(len(most.stages)))
        if self.classifies:
            self.mbpool = MBPool(self.widths[-1], hidden_width(self.widths[-1], most.expand_ratio), most.head)
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int) -> Stage:
        """The modules of a stage; rates of stochastic depth rise over the layers of all stages."""
        stage, before = self._most.stages[s], self._most.stages[:s]
        last = sum(other.depth for other in self._most.stages) - 1
        rates = [self.settings['drop_path_rate'] * i / max(1, last) for i in range(last + 1)]
        rates = rates[sum(other.depth for other in before) :]
        widths = [options_of(self.space, position, 'width') for position in (s, s + 1)]
        shape = dict(kernel_size=stage.kernel_size, expand_ratio=stage.expand_ratio, se=stage.se)
        resized = len({*widths[0], *widths[1]}) > 1
        first = MBConv(self.widths[s], stage.width, stride=stage.stride, resized=resized, drop_path=rates[0], **shape)  # type: ignore[arg-type]
        blocks: list[nn.Module] = [first]
        for b in range(1, stage.depth):
            if stage.mlp_ratio:
                blocks.append(self._build_layer(s, b, rates[b]))
            else:
                width = stage.width
                blocks.append(MBConv(width, width, stride=1, resized=False, drop_path=rates[b], **shape))  # type: ignore[arg-type]
        return Stage(blocks)

    def _build_layer(self, s: int, b: int, drop_path: float) -> TransformerLayer:
        """A transformer layer, the first of which is number 1 of its stage."""
        stage, official = self._most.stages[s], self.settings['official']
        scales = SwitchableScale.pair(options_of(self.space, s + 1, 'width') if self.settings['scaling'] else None)
        if self.settings['scaling'] and official:
            slots = self._slots(s, b)
            scales = PublishedScale(slots, stage.width), PublishedScale(slots, stage.width)
        return TransformerLayer(
            width=stage.width,
            mlp_ratio=stage.mlp_ratio,
            reach=table_side(self._most, s, self.settings['window_size']),
            scales=scales,
            shifted=official or b % 2 == 0,
            official=official,
            drop_path=drop_path,
        )

    def _slots(self, s: int, b: int) -> list[tuple[int, int]]:
        """The scaling vectors of a layer as published: depths at which it is there × numbers of tokens modulo 8."""
        depths = [depth for depth in self.space.stages[s + 1].depths if depth > b]
        resolutions = dict(self.space.choices.options)['resolution']
        columns = {_column(self._most._replace(resolution=int(side)), s) for side in resolutions}
        return sorted(product(depths, columns))

    @property
    def _stages(self) -> list[Stage]:
        return list(self.stages)  # type: ignore[arg-type]

    def _init_parameters(self) -> None:
        """torch's defaults; small positions; MBConvs begin as their residual."""
        for module in self.modules():
            if isinstance(module, MBConv):
                nn.init.zeros_(module.project_bn.weight)
            elif isinstance(module, TransformerLayer):
                nn.init.trunc_normal_(module.attn.table, std=0.02)

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        choices, most = read_nasvit(arch), self._most
        if len(choices.stages) != len(most.stages):
            raise ArchError(f'stages has {len(arch.stages)} entries; the weights have {2 + len(most.stages)} stages')
        _check_most('resolution', choices.resolution, most.resolution)
        _check_most('stages[0].width', choices.stem, most.stem)
        width = choices.stem
        for s, (stage, ours) in enumerate(zip(choices.stages, self._stages)):
            path = f'stages[{s + 1}]'
            _check_stage(path, stage, most.stages[s])
            first = ours.blocks[0]
            if width != stage.width and first.shortcut is None:
                raise ArchError(f'{path}.width is {stage.width}; the weights of this stage do not change a width')
            for block in list(ours.blocks)[: stage.depth]:
                if isinstance(block, TransformerLayer):
                    block.check_scale(path, stage.width, (stage.depth, _column(choices, s)))
            width = stage.width
        if self.classifies:
            _check_most(f'stages[{len(arch.stages) - 1}].width', choices.head, most.head)
            _check_most(f'stages[{len(arch.stages) - 1}].expand_ratio', choices.expand_ratio, most.expand_ratio)

    def activate(self, arch: Arch) -> None:
        """Set the widths of the layers; see :meth:`ElasticBackbone.set_arch`."""
        choices = read_nasvit(arch)
        self.stem.width = width = choices.stem
        for s, (stage, ours) in enumerate(zip(choices.stages, self._stages)):
            reach = table_side(choices, s, self.settings['window_size'])
            for b, block in enumerate(list(ours.blocks)[: stage.depth]):
                if isinstance(block, MBConv):
                    channels = stage.width if b else width
                    block.set_choice(channels, stage.width, stage.kernel_size, stage.expand_ratio)
                elif isinstance(block, TransformerLayer):
                    block.attn.set_choice(stage.width, reach, stage.num_windows, self.settings['window_size'])
                    block.mlp1.set_choice(stage.width, stage.mlp_ratio)
                    block.mlp2.set_choice(stage.width, stage.mlp_ratio)
                    block.set_slot((stage.depth, _column(choices, s)))
            width = stage.width
        if self.classifies:
            self.mbpool.expand.width = hidden_width(width, choices.expand_ratio)
            self.mbpool.mix.width = choices.head

    def input_widths(self, arch: Arch) -> dict[nn.Module, int]:
        """Nothing: see :meth:`why_not_masked`."""
        return {}

    def why_not_masked(self) -> str:
        """Its convolutions, batch norms and norms over an image take no masks."""
        return 'NASViT, with its convolutions and norms over images, cannot share a masked pass among architectures'

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The layers of each stage; stem and MBPool have none."""
        return ((), *(tuple(stage.blocks) for stage in self._stages), ())

    def out_channels(self, arch: Arch | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, of an architecture, those that are not zero."""
        choices = self._most if arch is None else read_nasvit(arch)
        if self.classifies:
            return (choices.head,)
        widths = (choices.stem, *(stage.width for stage in choices.stages))
        return tuple(widths[index] for index in self._wanted)

    def out_strides(self) -> tuple[int, ...]:
        """Image pixels a pixel of each output; MBPool's only pixel has the whole image."""
        if self.classifies:
            return (self._most.resolution,)
        strides = [2 * math.prod(stage.stride for stage in self._most.stages[:s]) for s in range(len(self.widths))]
        return tuple(strides[index] for index in self._wanted)

    def is_output_weight(self, name: str) -> bool:
        """Those of MBPool, which a backbone of dense tasks lacks."""
        return name.startswith('mbpool.')

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features, at full width with zeros in inactive channels."""
        if self.classifies:
            x = self._resize(x)
        x = F.silu(self.stem_bn(self.stem(x)))
        common, outs = WindowTables(x.device), {0: x}
        last = len(self.stages) if self.classifies else max(self._wanted)
        for s, stage in enumerate(self._stages[:last], 1):
            x = outs[s] = self._run_stage(s, stage, x, common)
        if self.classifies:
            return (pad_channels(self.mbpool(x), self._most.head, 1),)
        return tuple(pad_channels(outs[index], self.widths[index], 1).contiguous() for index in self._wanted)

    def _resize(self, x: Tensor) -> Tensor:
        """Images at the resolution of the architecture."""
        side = int(self.arch.choices['resolution'])
        if x.shape[2:] == (side, side):
            return x
        return F.interpolate(x, (side, side), mode='bicubic', align_corners=False)

    def _run_stage(self, s: int, stage: Stage, x: Tensor, common: WindowTables) -> Tensor:
        """A map through the layers of stage s, counted as an architecture does."""
        x = self.pass_block(stage.blocks[0], s, 0, x)
        if not self._most.stages[s - 1].mlp_ratio:
            for b, block in enumerate(list(stage.blocks)[1:], 1):
                x = self.pass_block(block, s, b, x)
            return x
        size = (x.shape[2], x.shape[3])
        tokens = as_tokens(x)
        for b, block in enumerate(list(stage.blocks)[1:], 1):
            tokens = self.pass_block(block, s, b, tokens, size, common)
        return as_map(tokens, size)

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: Size | None = None) -> None:
        """Bring relative positions of other resolutions or windows to those of this network, in place.

        Of larger tables the centre is kept, which is for the same distances; smaller ones are interpolated, from what
        the largest resolution of this network uses.
        """
        for name, table in self.named_parameters():
            stored = weights.get(prefix + name) if name.endswith('attn.table') else None
            if stored is None or stored.ndim != 3 or stored.shape[1:] == table.shape[1:]:
                continue
            used = 2 * table_side(self._most, int(name.split('.')[1]), None) - 1
            side = min(stored.shape[1], used, table.shape[1])
            centre = stored[:, :side, :side]
            weights[prefix + name] = (
                centre if side == table.shape[1] else resize_table(centre, (table.shape[1] + 1) // 2)
            )

    @classmethod
    def cost(
        cls,
        arch: ArchRef,
        input_size: int | Size = 224,
        num_classes: int = 0,
        out_indices: tuple[int, ...] | None = None,
        window_size: int | None = None,
        scaling: bool = True,
        official: bool = False,
    ) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        The convention that gives the paper's numbers: convolutions, linear layers, attention products and the mixing
        of heads; no norms, activations, pooling or resizing.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image; a classifier resizes it. Defaults to 224.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
            out_indices: Of which stages maps are returned. Defaults to None: a classifier with MBPool.
            window_size: Side of windows instead of those that the architecture has. Defaults to None.
            scaling: Whether there are scaling vectors. Defaults to True.
            official: Whether windows are those of the published code. Defaults to False.

        Raises:
            VitnasError: The architecture is not NASViT's, or a size is not a whole number above 0.
        """
        arch = zoo.load_arch(arch)
        return nasvit_cost(arch, input_size, num_classes, out_indices, window_size, scaling, official)


def _column(choices: NASViTChoices, s: int) -> int:
    """The number of tokens of a stage at the architecture's resolution, modulo 8."""
    return math.prod(stage_sizes(choices, (choices.resolution,) * 2)[s + 1]) % COLUMNS


def _check_most(path: str, value: int, most: int) -> None:
    if value > most:
        raise ArchError(f'{path} is {value}; the weights have {most}')


def _check_stage(path: str, stage: NASViTStage, most: NASViTStage) -> None:
    """Check the choices of a stage against those of the weights."""
    for name in ('width', 'kernel_size', 'expand_ratio', 'mlp_ratio'):
        _check_most(f'{path}.{name}', getattr(stage, name), getattr(most, name))
    if stage.depth > most.depth:
        raise ArchError(f'{path}.blocks has {stage.depth} entries; the weights have {most.depth} blocks')
    same = (('stride', stage.stride, most.stride), ('se', int(stage.se), int(most.se)))
    for name, value, ours in (*same, ('mlp_ratio', stage.mlp_ratio > 0, most.mlp_ratio > 0)):
        if value != ours:
            raise ArchError(f'{path}.{name} is {getattr(stage, name):d}; the weights have {ours:d}')
    if (stage.expand_ratio == 1) != (most.expand_ratio == 1):
        raise ArchError(f'{path}.expand_ratio is {stage.expand_ratio}; the weights have {most.expand_ratio}')


def _check_settings(settings: dict[str, Any], stages: int) -> None:
    """Refuse what the layers would fail on later."""
    if settings['out_indices'] is not None:
        check_out_indices(settings['out_indices'], stages)
    check_window(settings['window_size'])
    for name in ('scaling', 'official'):
        if not isinstance(settings[name], bool):
            raise VitnasError(f'`{name}` should be True or False, but got {settings[name]!r}')
    check_rates(dict(attn_drop_rate=0.0, **settings))


def _maxima(space: SearchSpace) -> NASViTChoices:
    """The largest choice of everything.

    Raises:
        VitnasError: The space is not NASViT's.
    """
    most = read_nasvit(space.largest())
    read_nasvit(space.smallest())  # its names, and that every stage has a layer
    for s, choices in [(None, space.choices), *((s, stage.choices) for s, stage in enumerate(space.stages))]:
        for name, options in choices.options:
            path = name if s is None else f'stages[{s}].{name}'
            if any(isinstance(option, str) or option != int(option) for option in options):
                raise SpaceError(f'{path} of a NASViT space should list whole numbers, but got {list(options)}')
            if name in ('stride', 'se') and len(options) > 1:
                raise SpaceError(f'{path} of a NASViT space should have one option, but got {list(options)}')
            if name == 'expand_ratio' and 1 in options and len(options) > 1:
                raise SpaceError(f'{path} of a NASViT space should be 1 or larger numbers, but got {list(options)}')
            if name != 'num_windows' and list(options) != sorted(options):
                raise SpaceError(
                    f'{path} of a NASViT space should list numbers, smallest first, but got {list(options)}'
                )
            if s is not None and 0 < s < len(space.stages) - 1:
                try:
                    check_options(space.largest().stages[s].choices, name, options)
                except ArchError as err:
                    raise SpaceError(f'stages[{s}]{err}') from None
    return most
