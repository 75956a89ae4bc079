"""S3: a four-stage transformer with shifted windows, elastic in every dimension of its paper (Chen et al., 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

from torch import Tensor, nn

from ...backbones.module import ArchRef, SpaceRef
from ...backbones.staged import StagedBackbone
from ...costs.algebra import stage_maps
from ...elastic import Axis, RelativeBias, SwitchableScale, WindowTables
from ...errors import ArchError
from ...registry import MODELS
from ...spaces import ChoiceSpace
from ...spaces.records import NetworkRecord
from ...utils import checks
from .arch import SCHEMA, cost, units
from .layers import PatchEmbedding, PatchMerging, S3Block, S3Stage

BIASES = ('shared', 'per-window')
"""Valid values of ``bias``."""


@MODELS.register_module()
class S3(StagedBackbone):
    """S3 (AutoFormerV2), elastic (``space=``) or fixed (``arch=``).

    Images of any size work: sides are padded to the patch size with zeros, and maps to whole windows with tokens that
    no token attends to. Before merging, maps are padded to even sides. A window larger than its map is clamped to it.

    Args:
        arch: A fixed architecture: a zoo name (``'s3-t'``), a file, or the data.
        space: A search space, likewise. Give exactly one of the two.
        img_size: Image side of the stored bias tables. A window that is larger than its map at this size is clamped for
            good, as in the published networks. Defaults to 224.
        patch_size: Side of a patch. Defaults to 4.
        bias: ``'shared'``: the bias table of a block's largest window serves smaller windows by its centre. Or
            ``'per-window'``: one table per window size. The paper does not say. Shared tables follow its weight
            entanglement, taken from AutoFormer, and every step trains the entries that all windows use. Defaults to
            ``'shared'``.
        out_indices: Indices of the output stages, each with its own norm; negative ones count from the last. Stages
            behind the last output do not run. Defaults to (-1,).
        scaling: Whether each width scales branches by its own vectors, not shared with other widths (NASViT, Sec. 3).
            Defaults to False.
        sharing: Sharing pattern of channels, heads and hidden units in narrower architectures: ``'ordinal'``, the first
            ones; ``'bilateral'``, from both ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to
            ``'ordinal'``.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block; rises linearly from 0 at the first. Defaults to 0.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: An argument is invalid, or the space is not S3's.
    """

    schema = SCHEMA
    cost_of = staticmethod(cost)
    checks = {'bias': partial(checks.one_of, options=BIASES)}
    weight_settings = ('patch_size', 'bias', 'scaling')

    def __init__(
        self,
        arch: ArchRef | None = None,
        space: SpaceRef | None = None,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        bias: str = 'shared',
        out_indices: tuple[int, ...] = (-1,),
        scaling: bool = False,
        sharing: str = 'ordinal',
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(locals())
        self.patch_embed = PatchEmbedding(self.embeds[0], patch_size)
        self.stages = nn.ModuleList(self._build_stage(s) for s in range(len(self.embeds)))
        self.add_norms(patch_size)
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int) -> S3Stage:
        """Build the modules of a stage."""
        embed, stage, settings = self.embeds[s], self.space.stages[s], self.settings
        widths = stage.choices.values_of('embed_dim')
        side = min(stage_maps(settings['img_size'], settings['patch_size'], len(self.embeds))[s])
        blocks = []
        for b, (choices, rate) in enumerate(zip(stage.blocks, self.drop_path_rates()[s])):
            assert choices is not None
            ratios = choices.values_of('mlp_ratio')
            block = S3Block(
                embed,
                heads=self.axis(choices.values_of('num_heads'), sortable=True),
                hidden=self.axis([units(width, ratio) for width in widths for ratio in ratios], sortable=True),
                drop_path=rate,
                scaled=widths if settings['scaling'] else None,
                sizes=self._table_sizes(choices, side),
                side=side,
                shifted=b % 2 == 1,
                shared=settings['bias'] == 'shared',
                drop=settings['attn_drop_rate'],
            )
            blocks.append(block)
        return S3Stage(PatchMerging(self.embeds[s - 1], embed) if s else None, blocks)

    def _table_sizes(self, choices: ChoiceSpace, side: int) -> list[int]:
        """Return the window sizes of a block that need a table, clamped to the side of its map."""
        sizes = {min(int(size), side) for size in choices.values_of('window_size')}
        return [max(sizes)] if self.settings['bias'] == 'shared' else sorted(sizes)

    def _init_parameters(self) -> None:
        """Initialise as published: linear layers and tables truncated normal, the convolution as torch does."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, RelativeBias):
                for table in module.tables.values():
                    nn.init.trunc_normal_(table, std=0.02)

    def check_weights(self, network: NetworkRecord) -> None:
        """Refuse windows without a table, and widths without scaling vectors."""
        for s, (stage, ours) in enumerate(zip(network.stages, self._stages)):
            for b, (choices, block) in enumerate(zip(stage.blocks, ours.items)):
                SwitchableScale.check(block.scale_mlp, f'stages[{s}].embed_dim', stage.embed_dim)
                if not block.attn.serves(choices.window_size):
                    raise ArchError(
                        f'stages[{s}].blocks[{b}].window_size is {choices.window_size}; the weights have '
                        f'{block.attn.bias.offers}'
                    )

    def widths(self, network: NetworkRecord) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of each stage's tokens, and those of heads and hidden units of each block."""
        for stage, embed, ours in zip(network.stages, self.embeds, self._stages):
            yield embed, stage.embed_dim
            for choices, block in zip(stage.blocks, ours.items):
                yield block.heads, choices.num_heads
                yield block.hidden, units(stage.embed_dim, choices.mlp_ratio)

    def why_not_masked(self) -> str:
        """Return the reason: scaling vectors, private to each width, or channels that are not the first ones."""
        for name, value in dict(scaling=False, sharing='ordinal').items():
            if self.settings[name] != value:
                return f'S3 cannot run several architectures in a masked pass with {name}={self.settings[name]!r}'
        return ''

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features, at full width with zeros in inactive channels."""
        x, common = self.patch_embed(x), WindowTables(x.device)
        outs: dict[int, Tensor] = {}
        for s, stage in enumerate(self._stages[: max(self.outs) + 1]):
            if stage.merging is not None:
                x = stage.merging(x)
            for b, block in enumerate(stage.items):
                x = self.active.pass_block(block, s, b, x, self.active.value(s, b, 'window_size'), common)
            if s in self.outs:
                outs[s] = self.output(s, x)
        return tuple(outs[s] for s in self.outs)

    @property
    def _stages(self) -> list[S3Stage]:
        return cast('list[S3Stage]', list(self.stages))
