"""NASViT: convolutions, then transformers; elastic in width, depth, kernel, expansion and resolution (2022)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor, nn

from ... import zoo
from ...backbones.base import ElasticBackbone
from ...backbones.module import ArchRef, SpaceRef
from ...backbones.staged import drop_path_rates
from ...backbones.tokens import as_map, as_tokens
from ...elastic import Axis, ElasticBatchNorm2d, ElasticConv2d, SwitchableScale, WindowTables, resize_table
from ...errors import ArchError
from ...registry import MODELS
from ...utils import checks
from .arch import SCHEMA, NetworkChoices, Size, TransformerChoices, check_window, cost, hidden_width
from .layers import COLUMNS, MBConv, MBPool, PublishedScale, ScaleSlot, TransformerLayer


class NASViTStage(nn.Module):
    """An MBConv, then transformer layers or more MBConvs.

    Args:
        blocks: The layers.
    """

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)


@MODELS.register_module()
class NASViT(ElasticBackbone):
    """NASViT (ICLR 2022), elastic (``space=``) or fixed (``arch=``).

    A classifier resizes images to the resolution of its architecture and ends with MBPool. With ``out_indices`` it is
    a backbone for dense tasks: images keep their size, any H × W, and the maps of stages are returned. Tokens that are
    further apart than the stored relative positions use the outermost ones.

    Args:
        arch: A fixed architecture: a zoo name (``'nasvit-a1'``), a file, or the data.
        space: A search space, likewise. Give exactly one of the two.
        out_indices: Indices of the output stages; 0 is the stem, and negative ones count from the last before MBPool.
            Stages behind the last output do not run. Defaults to None: MBPool's output, (B, C, 1, 1).
        window_size: Side of attention windows, instead of the windows of the architecture; every second layer shifts
            them. The paper's segmentation uses 7. Defaults to None: the architecture's windows.
        scaling: Whether each width scales the branches of transformer layers by its own vectors, which other widths do
            not share. Defaults to True.
        official: Whether to work as the published code does. Scaling vectors then depend on the depth of the stage and
            the number of tokens modulo 8, with a factor of 8 / width; all windows are shifted, without a mask. Defaults
            to False: as in the paper, one vector per width in each layer, and Swin's windows.
        drop_path_rate: Stochastic depth of the last layer; rises linearly from 0 at the first. Defaults to 0.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: An argument is invalid, or the space is not NASViT's.
    """

    schema = SCHEMA
    cost_of = staticmethod(cost)
    checks = {'window_size': check_window}
    weight_settings = ('scaling', 'official')
    output_weights = ('mbpool.',)  # a backbone for dense tasks lacks it

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
        super().__init__(locals())
        *widths, head = [stage.choices.values_of('width') for stage in self.space.stages]
        self.width_options = widths
        self.embeds = [self.axis(options) for options in widths]
        self.classifies = out_indices is None
        self.stem = ElasticConv2d(3, self.embeds[0], 3, 2, padding=1, bias=False)
        self.stem_bn = ElasticBatchNorm2d(self.embeds[0])
        rates = drop_path_rates(drop_path_rate, [len(stage.blocks) for stage in self.largest.stages])
        self.stages = nn.ModuleList(self._build_stage(s, rates[s]) for s in range(1, len(widths)))
        if self.classifies:
            hidden = Axis(hidden_width(self.embeds[-1].most, self.largest.stages[-1].expand_ratio))
            self.mbpool = MBPool(self.embeds[-1], hidden, self.axis(head))
            self.set_outputs([self.mbpool.outputs], [self.largest.resolution])
        else:
            self.limits = self.limits.without_last()
            indices = checks.stage_indices('out_indices', self.settings['out_indices'], len(widths))
            self.outs = [index % len(widths) for index in indices]
            strides = [2]
            for stage in self.largest.stages[1:-1]:
                strides.append(strides[-1] * stage.stride)
            self.set_outputs([self.embeds[s] for s in self.outs], [strides[s] for s in self.outs])
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int, rates: Sequence[float]) -> NASViTStage:
        """Build the modules of a stage between stem and head."""
        before, embed, choices = self.embeds[s - 1], self.embeds[s], self.largest.stages[s]
        resized = len({*self.width_options[s - 1], *self.width_options[s]}) > 1
        blocks: list[nn.Module] = [MBConv(before, embed, choices, choices.stride, resized, rates[0])]
        for b in range(1, choices.depth):
            if isinstance(choices, TransformerChoices):
                blocks.append(self._build_layer(s, b, choices, rates[b]))
            else:
                blocks.append(MBConv(embed, embed, choices, 1, False, rates[b]))
        return NASViTStage(blocks)

    def _build_layer(self, s: int, b: int, choices: TransformerChoices, drop_path: float) -> TransformerLayer:
        """Build a transformer layer; the first one is layer 1 of its stage."""
        scaling, official, window_size = (self.settings[name] for name in ('scaling', 'official', 'window_size'))
        scales = SwitchableScale.pair(self.width_options[s] if scaling else None)
        if scaling and official:
            slots = self._slots(s, b)
            scales = PublishedScale(slots, choices.width), PublishedScale(slots, choices.width)
        return TransformerLayer(
            self.embeds[s],
            choices,
            reach=self.largest.reach(s, window_size),
            scales=scales,
            shifted=official or b % 2 == 0,
            window_size=window_size,
            official=official,
            drop_path=drop_path,
        )

    def _slots(self, s: int, b: int) -> list[ScaleSlot]:
        """Return the slots of a layer's published scaling vectors: possible depths × numbers of tokens modulo 8."""
        depths = [depth for depth in self.space.stages[s].depths if depth > b]
        sides = self.space.choices.values_of('resolution')
        return sorted(product(depths, {_column(self.largest, s, side) for side in sides}))

    def _init_parameters(self) -> None:
        """Initialise by torch's defaults, with small positions; MBConvs start as their residual."""
        for module in self.modules():
            if isinstance(module, MBConv):
                nn.init.zeros_(module.project_bn.weight)
            elif isinstance(module, TransformerLayer):
                nn.init.trunc_normal_(module.attn.table, std=0.02)

    def check_weights(self, network: NetworkChoices) -> None:
        """Refuse expansions and widths that the weights do not have, and widths without scaling vectors."""
        before = network.stages[0].width
        for s, (stage, most, own) in enumerate(zip(network.stages[1:-1], self.largest.stages[1:-1], self.stages), 1):
            path, blocks = f'stages[{s}]', cast('Any', own).blocks
            if (stage.expand_ratio == 1) != (most.expand_ratio == 1):
                raise ArchError(f'{path}.expand_ratio is {stage.expand_ratio}; the weights have {most.expand_ratio}')
            if before != stage.width and not blocks[0].resized:
                raise ArchError(f'{path}.width is {stage.width}; the weights of this stage do not change a width')
            before = stage.width
            if isinstance(stage, TransformerChoices) and stage.depth > 1:
                scale = blocks[1].scale_mlp  # all layers of a stage have vectors for the same widths
                SwitchableScale.check(scale, f'{path}.width', stage.width)
                if isinstance(scale, PublishedScale):
                    scale.check_slot(path, (stage.depth, _column(network, s, network.resolution)))

    def widths(self, network: NetworkChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of each stage, and those of the hidden channels, heads and hidden units of its layers."""
        *stages, head = network.stages
        before = 0
        for stage, embed, blocks in zip(stages, self.embeds, self.stage_blocks()):
            yield embed, stage.width
            for b, block in enumerate(blocks[: len(stage.blocks)]):
                if isinstance(block, MBConv):
                    yield from block.widths(stage.width if b else before, stage)
                elif isinstance(block, TransformerLayer):
                    yield from block.widths(stage)
            before = stage.width
        if self.classifies:
            yield self.mbpool.hidden, hidden_width(before, head.expand_ratio)
            yield self.mbpool.outputs, head.width

    def why_not_masked(self) -> str:
        """Return the reason: convolutions, batch norms and norms over an image take no masks."""
        return 'NASViT cannot run several architectures in a masked pass, because of its convolutions and image norms'

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The layers of each stage; stem and MBPool have none."""
        return ((), *(tuple(stage.blocks) for stage in cast('list[NASViTStage]', list(self.stages))), ())

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features, at full width with zeros in inactive channels."""
        network: NetworkChoices = self.active.network
        if self.classifies:
            x = self._resize(x)
        x = F.silu(self.stem_bn(self.stem(x)))
        common, outs = WindowTables(x.device), {0: x}
        for s in range(1, 1 + (len(self.stages) if self.classifies else max(self.outs))):
            x = outs[s] = self._run_stage(s, x, network, common)
        if self.classifies:
            return (self.mbpool.outputs.pad(self.mbpool(x), 1),)
        return tuple(self.embeds[s].pad(outs[s], 1).contiguous() for s in self.outs)

    def _resize(self, x: Tensor) -> Tensor:
        """Resize images to the resolution of the active architecture."""
        side = self.active.network.resolution
        if x.shape[2:] == (side, side):
            return x
        return F.interpolate(x, (side, side), mode='bicubic', align_corners=False)

    def _run_stage(self, s: int, x: Tensor, network: NetworkChoices, common: WindowTables) -> Tensor:
        """Run a map through the layers of a stage between stem and head."""
        first, *others = self.stage_blocks()[s]
        choices = network.stages[s]
        x = self.active.pass_block(first, s, 0, x, choices)
        if not isinstance(choices, TransformerChoices):
            for b, block in enumerate(others, 1):
                x = self.active.pass_block(block, s, b, x, choices)
            return x
        size, tokens = (x.shape[2], x.shape[3]), as_tokens(x)
        reach = network.reach(s, self.settings['window_size'])
        slot = (choices.depth, _column(network, s, network.resolution))
        for b, block in enumerate(others, 1):
            tokens = self.active.pass_block(block, s, b, tokens, size, choices, reach, slot, common)
        return as_map(tokens, size)

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: Size | None = None) -> None:
        """Convert relative positions of other resolutions or windows to those of this network, in place.

        Larger tables are cut to their centre, which holds the same distances. Smaller ones are interpolated, from the
        part that the largest resolution of this network uses.
        """
        for name, table in self.named_parameters():
            stored = weights.get(prefix + name) if name.endswith('attn.table') else None
            if stored is None or stored.ndim != 3 or stored.shape[1:] == table.shape[1:]:
                continue
            used = 2 * self.largest.reach(int(name.split('.')[1]) + 1, None) - 1
            side = min(stored.shape[1], used, table.shape[1])
            centre = stored[:, :side, :side]
            weights[prefix + name] = (
                centre if side == table.shape[1] else resize_table(centre, (table.shape[1] + 1) // 2)
            )

    @classmethod
    def priced_size(cls, arch: ArchRef, input_size: Any, out_indices: Sequence[int] | None = None) -> Size:
        """Return the size to price: a classifier, without ``out_indices``, resizes images to its own resolution."""
        size = super().priced_size(arch, input_size)
        return size if out_indices is not None else (int(zoo.load_arch(arch).choices['resolution']),) * 2


def _column(network: NetworkChoices, s: int, side: int) -> int:
    """Return the number of tokens of a stage, modulo 8, for images of a given side."""
    return math.prod(network.maps((side, side))[s]) % COLUMNS
