"""ViTAS on the Twins space: four stages of local and global attention, elastic in everything (Su et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .. import zoo
from ..costs import Cost
from ..costs.reading import check_out_indices
from ..costs.vitas_twins import OPS, TwinsBlock, read_vitas_twins, vitas_twins_cost
from ..costs.vitas_twins import TwinsStage as StageChoices
from ..elastic import Channels, WindowTables, pad_channels
from ..errors import ArchError, SpaceError, VitnasError
from ..registry import MODELS
from ..spaces import Arch
from .base import (
    ArchRef,
    SpaceRef,
    block_options,
    check_ascending,
    check_rates,
    check_stages,
    options_of,
)
from .staged import StagedBackbone
from .vitas_deit import check_heads
from .vitas_layers import Block, GlobalAttention, LocalAttention, Slot, TwinsStage

NORM_EPS = 1e-5
"""What norms add to the variance: as mmpretrain's Twins."""


@MODELS.register_module()
class ViTASTwins(StagedBackbone):
    """ViTAS's Twins space, elastic (``space=``) or fixed (``arch=``); Twins-SVT are networks of it.

    A block attends to its window or to sub-sampled cells of the whole map; in a space it has weights for both. Any
    image size: sides are padded to whole patches with zeros, maps to whole windows with tokens that nothing attends to.

    Args:
        arch: A fixed architecture: a zoo name (``'twins-svt-s'``), a file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        patch_size: Side of a patch of the first stage; those of the others have 2. Defaults to 4.
        window_size: Side of the windows of local blocks. Defaults to 7.
        sr_ratios: Side of the cells that global blocks of each stage attend to; those of further stages are not used.
            Defaults to (8, 4, 2, 1).
        sharing: Which channels narrower architectures use: ``'ordinal'``, the first ones; ``'bilateral'``, from both
            ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to ``'cyclic'``.
        out_indices: After which stages features are returned, each behind a norm of its own; negative ones count
            from the last. Stages behind the last of them do not run. Defaults to (-1,).
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0 at the first. Defaults to 0.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: An argument is none of the above, or the space is not of this family.
    """

    family = 'vitas_twins'
    cost_settings = ('patch_size', 'window_size', 'sr_ratios', 'out_indices')
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
        settings: dict[str, Any] = dict(
            patch_size=patch_size,
            window_size=window_size,
            sr_ratios=tuple(sr_ratios) if isinstance(sr_ratios, (list, tuple)) else sr_ratios,
            sharing=sharing,
            out_indices=tuple(out_indices) if isinstance(out_indices, (list, tuple)) else out_indices,
            attn_drop_rate=attn_drop_rate,
            drop_path_rate=drop_path_rate,
        )
        super().__init__(arch, space, settings, init_cfg)
        self._check_space()
        largest = read_vitas_twins(self.space.largest())
        _check_settings(settings, len(largest))
        self.stride, self.embed_dims = patch_size, tuple(stage.embed_dim for stage in largest)
        self.stages = nn.ModuleList(self._build_stage(s, largest) for s in range(len(largest)))
        self.add_norms(NORM_EPS)
        self.shared = tuple(self._share_channels(s) for s in range(len(largest)))
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _check_space(self) -> None:
        """Refuse spaces that are not of this family, or whose largest choices would not size the weights."""
        check_ascending(self.space, 'ViTASTwins', but=('op',))
        read_vitas_twins(self.space.smallest())  # its names
        for s, stage in enumerate(self.space.stages):
            for b in range(len(stage.blocks)):
                options = block_options(self.space, s, b)
                check_heads(options, f'stages[{s}].blocks[{b}]')
                if not set(options.get('op', ())) <= set(OPS):
                    raise SpaceError(
                        f'stages[{s}].blocks[{b}].op should list {", ".join(OPS)}, but got {list(options["op"])}'
                    )

    def _build_stage(self, s: int, largest: Sequence[StageChoices]) -> TwinsStage:
        """The modules of a stage; rates of stochastic depth rise over the blocks of all stages, absent ones too."""
        first, last = sum(len(stage.blocks) for stage in largest[:s]), sum(len(stage.blocks) for stage in largest) - 1
        rate = self.settings['drop_path_rate'] / max(1, last)
        slots = [self._build_slot(s, b, block, rate * (first + b)) for b, block in enumerate(largest[s].blocks)]
        channels, side = (self.embed_dims[s - 1], 2) if s else (3, self.settings['patch_size'])
        return TwinsStage(channels, self.embed_dims[s], side, slots)

    def _build_slot(self, s: int, b: int, choice: TwinsBlock | None, rate: float) -> Slot:
        """A block for each kind of attention that a place may have; none for a place that is always empty."""
        blocks = {}
        for op in block_options(self.space, s, b).get('op', ()):
            assert choice is not None
            size = dict(width=self.embed_dims[s], inner=choice.sizes.inner, drop=self.settings['attn_drop_rate'])
            if op == 'local':
                attn: LocalAttention | GlobalAttention = LocalAttention(
                    **size, window_size=self.settings['window_size']
                )
            else:
                attn = GlobalAttention(**size, ratio=self.settings['sr_ratios'][s])
            blocks[op] = Block(attn, self.embed_dims[s], choice.sizes.hidden_dim, rate, NORM_EPS)
        return Slot(blocks)

    def _share_channels(self, s: int) -> Channels | None:
        """Let the layers of a stage share channels by the pattern; return whose channels its tokens have."""
        embed = self.pattern.channels(self.embed_dims[s], options_of(self.space, s, 'embed_dim'))
        stage = self._stages[s]
        stage.proj.outputs = stage.norm.inputs = stage.peg.inputs = embed
        if s + 1 < len(self.stages):
            self._stages[s + 1].proj.inputs = embed
        if s in self.outs:
            self.out_norm(s).inputs = embed
        for b, slot in enumerate(stage.blocks):
            options = block_options(self.space, s, b)
            for block in slot.values():  # type: ignore[operator, union-attr]
                inner = [dim // 3 for dim in options['qkv_dim']]
                block.share_channels(self.pattern, embed, inner, options['hidden_dim'])
        return embed

    @property
    def _stages(self) -> list[TwinsStage]:
        return list(self.stages)  # type: ignore[arg-type]

    def _init_parameters(self) -> None:
        """As Twins: truncated normal for linear layers, and for convolutions a normal of what they put out."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        stages = read_vitas_twins(arch)
        check_stages(
            [(stage.embed_dim, len(stage.blocks)) for stage in stages],
            [(width, len(stage.blocks)) for width, stage in zip(self.embed_dims, self._stages)],
        )
        for s, (stage, ours) in enumerate(zip(stages, self._stages)):
            for b, (choice, slot) in enumerate(zip(stage.blocks, ours.blocks)):
                path = f'stages[{s}].blocks[{b}]'
                if choice is None:
                    continue
                if choice.op not in slot:  # type: ignore[operator]
                    raise ArchError(f'{path}.op is {choice.op}; the weights have {", ".join(slot) or "none"} here')  # type: ignore[arg-type]
                slot[choice.op].check_fits(path, choice.sizes)  # type: ignore[index]

    def activate(self, arch: Arch) -> None:
        """Set widths, kinds and heads of the layers; see :meth:`ElasticBackbone.set_arch`."""
        for stage, ours in zip(read_vitas_twins(arch), self._stages):
            ours.proj.width = stage.embed_dim
            for choice, slot in zip(stage.blocks, ours.blocks):
                if choice is not None:
                    slot.op = choice.op  # type: ignore[assignment]
                    slot[choice.op].set_choice(stage.embed_dim, choice.sizes)  # type: ignore[index]

    def why_not_masked(self) -> str:
        """Always: another number of heads divides the same channels differently."""
        return 'ViTASTwins cannot share a masked pass among architectures, whose heads divide the same channels'

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one an out_index, at full width with zeros in inactive channels."""
        common, outs = WindowTables(x.device), {}
        for s, stage in enumerate(self._stages[: max(self.outs) + 1]):
            tokens = stage.embed(x)
            for b, slot in enumerate(stage.blocks):
                tokens = self.pass_block(slot, s, b, tokens, common)
                if b == 0:
                    tokens = stage.encode(tokens)
            if not len(stage.blocks):
                tokens = stage.encode(tokens)
            x = tokens.permute(0, 3, 1, 2)
            if s in self.outs:
                features = self.out_norm(s)(tokens).permute(0, 3, 1, 2)
                outs[s] = pad_channels(features, self.embed_dims[s], 1, self.shared[s]).contiguous()
        return tuple(outs[s] for s in self.outs)

    @classmethod
    def cost(
        cls,
        arch: ArchRef,
        input_size: int | tuple[int, int] = 224,
        num_classes: int = 0,
        patch_size: int = 4,
        window_size: int = 7,
        sr_ratios: tuple[int, ...] = (8, 4, 2, 1),
        out_indices: tuple[int, ...] = (-1,),
    ) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        Convolutions, linear layers and the two attention products; tokens that fill windows up count where they are
        computed.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image. Defaults to 224.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
            patch_size: Side of a patch of the first stage. Defaults to 4.
            window_size: Side of the windows of local blocks. Defaults to 7.
            sr_ratios: Side of the cells that global blocks of each stage attend to. Defaults to (8, 4, 2, 1).
            out_indices: After which stages there is a norm; stages behind them are not run. Defaults to (-1,).

        Raises:
            VitnasError: The architecture is not of this family, or a size is not a whole number above 0.
        """
        loaded = zoo.load_arch(arch)
        return vitas_twins_cost(loaded, input_size, num_classes, patch_size, window_size, sr_ratios, out_indices)


def _check_settings(settings: dict[str, Any], stages: int) -> None:
    """Refuse what the layers would fail on later."""
    for name in ('patch_size', 'window_size'):
        if type(settings[name]) is not int or settings[name] < 1:
            raise VitnasError(f'`{name}` should be a whole number of at least 1, but got {settings[name]!r}')
    ratios = settings['sr_ratios']
    if not isinstance(ratios, tuple) or len(ratios) < stages or any(type(r) is not int or r < 1 for r in ratios):
        raise VitnasError(
            f'`sr_ratios` should be whole numbers of at least 1, one for each of {stages} stages, but got {ratios!r}'
        )
    check_rates(settings)
    check_out_indices(settings['out_indices'], stages)
