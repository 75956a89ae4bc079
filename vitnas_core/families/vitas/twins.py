"""ViTAS on the Twins space: four stages of local and global attention, all dimensions elastic (Su et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn

from ...backbones.module import ArchRef, SpaceRef
from ...backbones.staged import StagedBackbone
from ...elastic import Axis, WindowTables
from ...registry import MODELS
from ...spaces import ChoiceSpace
from ...spaces.records import NetworkRecord
from ...utils import checks
from .arch import TWINS, check_ratios, twins_cost
from .layers import GlobalAttention, Heads, LocalAttention, TwinsSlot, TwinsStage, ViTASBlock

NORM_EPS = 1e-5
"""Added to the variance in norms, as in mmpretrain's Twins."""


@MODELS.register_module()
class ViTASTwins(StagedBackbone):
    """ViTAS's Twins space, elastic (``space=``) or fixed (``arch=``); Twins-SVT are networks of it.

    A block attends to its window or to sub-sampled cells of the whole map; in a space it has weights for both. Images
    of any size work: sides are padded to whole patches with zeros, and maps to whole windows with tokens that no token
    attends to.

    Args:
        arch: A fixed architecture: a zoo name (``'twins-svt-s'``), a file, or the data.
        space: A search space, likewise. Give exactly one of the two.
        patch_size: Side of a patch of the first stage; other stages have 2. Defaults to 4.
        window_size: Side of the windows of local blocks. Defaults to 7.
        sr_ratios: Side of the cells that global blocks attend to, one per stage; further ones are not used. Defaults to
            (8, 4, 2, 1).
        sharing: Sharing pattern of channels in narrower architectures: ``'ordinal'``, the first ones; ``'bilateral'``,
            from both ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to ``'cyclic'``.
        out_indices: Indices of the output stages, each with its own norm; negative ones count from the last. Stages
            behind the last output do not run. Defaults to (-1,).
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block; rises linearly from 0 at the first. Defaults to 0.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: An argument is invalid, or the space is not of this family.
    """

    schema = TWINS
    cost_of = staticmethod(twins_cost)
    checks = {'sr_ratios': checks.sequence}
    weight_settings = ('patch_size', 'window_size', 'sr_ratios')

    def __init__(
        self,
        arch: ArchRef | None = None,
        space: SpaceRef | None = None,
        patch_size: int = 4,
        window_size: int = 7,
        sr_ratios: tuple[int, ...] = (8, 4, 2, 1),
        sharing: str = 'cyclic',
        out_indices: tuple[int, ...] = (-1,),
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(locals())
        check_ratios('sr_ratios', self.settings['sr_ratios'], len(self.embeds))
        self.stages = nn.ModuleList(self._build_stage(s) for s in range(len(self.embeds)))
        self.add_norms(patch_size, NORM_EPS)
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int) -> TwinsStage:
        """Build the modules of a stage."""
        rates = self.drop_path_rates()[s]
        slots = [self._build_slot(s, choices, rate) for choices, rate in zip(self.space.stages[s].blocks, rates)]
        if s:
            return TwinsStage(self.embeds[s - 1], self.embeds[s], 2, slots)
        return TwinsStage(3, self.embeds[s], self.settings['patch_size'], slots)

    def _build_slot(self, s: int, choices: ChoiceSpace | None, rate: float) -> TwinsSlot:
        """Build a block for each kind of attention that a place may have; none for a place that is always empty."""
        if choices is None:
            return TwinsSlot({})
        embed, drop, blocks = self.embeds[s], self.settings['attn_drop_rate'], {}
        for op in choices.values_of('op'):
            inner = self.axis(dim // 3 for dim in choices.values_of('qkv_dim'))
            if op == 'local':
                attn: Heads = LocalAttention(embed, inner, drop, self.settings['window_size'])
            else:
                attn = GlobalAttention(embed, inner, drop, self.settings['sr_ratios'][s])
            blocks[op] = ViTASBlock(
                attn, embed, self.axis(choices.values_of('hidden_dim'), sortable=True), rate, NORM_EPS
            )
        return TwinsSlot(blocks)

    def _init_parameters(self) -> None:
        """Initialise as Twins: linear layers truncated normal, convolutions normal by their fan-out."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def widths(self, network: NetworkRecord) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of each stage's tokens, and the axes of each block."""
        for stage, embed, ours in zip(network.stages, self.embeds, self._stages):
            yield embed, stage.embed_dim
            for choices, slot in zip(stage.blocks, ours.slots):
                if choices is not None:
                    yield from slot.block(choices.op).widths(choices)

    def why_not_masked(self) -> str:
        """Return the reason, always the same: another number of heads divides the same channels differently."""
        return (
            'ViTASTwins cannot run several architectures in a masked pass, because their heads divide the same channels'
        )

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features, at full width with zeros in inactive channels."""
        common, outs = WindowTables(x.device), {}
        for s, stage in enumerate(self._stages[: max(self.outs) + 1]):
            tokens = stage.embed(x)
            for b, slot in enumerate(stage.slots):
                op, heads = (self.active.value(s, b, name) for name in ('op', 'num_heads'))
                tokens = self.active.pass_block(slot, s, b, tokens, op, heads, common)
                if b == 0:
                    tokens = stage.encode(tokens)
            if not len(stage.blocks):
                tokens = stage.encode(tokens)
            x = tokens.permute(0, 3, 1, 2)
            if s in self.outs:
                outs[s] = self.output(s, tokens)
        return tuple(outs[s] for s in self.outs)

    @property
    def _stages(self) -> list[TwinsStage]:
        return cast('list[TwinsStage]', list(self.stages))
