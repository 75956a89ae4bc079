"""AutoFormer: a plain vision transformer, elastic in width, depth, heads and MLP ratio (Chen et al., ICCV 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones.base import ElasticBackbone
from ...backbones.block import PreNormBlock
from ...backbones.module import ArchRef, SpaceRef
from ...backbones.staged import drop_path_rates
from ...backbones.tokens import as_map, as_tokens, format_tokens
from ...costs.algebra import grid
from ...elastic import (
    Axis,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    PositionTable,
    RelativePositions2D,
    SwitchableScale,
    TokenGrid,
    attend,
    pad_to,
    resize_positions,
    table,
)
from ...errors import ArchError, VitnasError
from ...registry import MODELS
from ...spaces import Limits
from ...spaces.records import NetworkRecord
from ...utils import checks
from .arch import HEAD_DIM, PEG_SIDE, POSITIONS, SCHEMA, cost, units


class QKV(ElasticLinear):
    """Projection to queries, keys and values; the rows of a head are together, heads one after another.

    So any number of heads is a prefix of the rows. The published code cuts its bias as if it lay in three thirds of the
    *active* width. One number then serves different roles in different subnets. ``official`` does the same.

    Args:
        embed: Axis of the tokens.
        heads: Axis of the heads.
        official: Cut the bias as the published code does.
    """

    def __init__(self, embed: Axis, heads: Axis, official: bool) -> None:
        super().__init__(embed, heads.times(3 * HEAD_DIM), normed=True)
        self.official = official

    def forward(self, x: Tensor) -> Tensor:
        """Project (B, N, E) to (3, B, heads, N, 64)."""
        bias = self.cut_bias()
        if self.official and bias is not None:
            bias = bias.view(3, -1, HEAD_DIM).transpose(0, 1).flatten()
        qkv = F.linear(x, self.cut(x.shape[-1]), bias)
        return qkv.unflatten(-1, (-1, 3, HEAD_DIM)).permute(3, 0, 2, 1, 4)


class AutoFormerAttention(nn.Module):
    """Multi-head self-attention with relative positions on keys and values.

    Args:
        embed: Axis of the tokens.
        heads: Axis of the heads.
        reach: Largest relative offset; 0 for no relative positions.
        drop: Dropout of the attention weights.
        official: See :class:`QKV`.
    """

    def __init__(self, embed: Axis, heads: Axis, reach: int, drop: float, official: bool) -> None:
        super().__init__()
        self.drop = drop
        self.qkv = QKV(embed, heads, official)
        self.relative = RelativePositions2D(HEAD_DIM, reach) if reach else None
        self.proj = ElasticLinear(heads.times(HEAD_DIM), embed)

    def forward(self, x: Tensor, grid: TokenGrid | None, scale: float = 1.0) -> Tensor:
        """(B, N, E) → (B, N, E); multiplies the output of the heads by ``scale``."""
        q, k, v = self.qkv(x).unbind(0)
        drop = self.drop if self.training else 0.0
        out = attend(q, k, v, drop) if self.relative is None else self.relative(q, k, v, grid, drop)
        out = out.transpose(1, 2).flatten(2)
        return self.proj(out if scale == 1.0 else out * scale)


class AutoFormerBlock(PreNormBlock):
    """A pre-norm transformer block, whose branches may be rescaled."""

    attention_type = AutoFormerAttention

    def forward(self, x: Tensor, grid: TokenGrid | None, scales: tuple[float, float] = (1.0, 1.0)) -> Tensor:
        """(B, N, E) → (B, N, E); ``scales`` multiply attention and MLP."""
        x = x + self.drop_path(self.attn_branch(x, grid, scales[0]))
        hidden = self.mlp_branch(x)
        return x + self.drop_path(hidden if scales[1] == 1.0 else hidden * scales[1])


def _rescale(name: str, value: Any) -> tuple[float, float] | None:
    pair = checks.sequence(name, value)
    if pair is not None and (not isinstance(pair, tuple) or len(pair) != 2 or min(pair) <= 0):
        raise VitnasError(f'`{name}` should be a pair (heads, ratio), but got {value!r}')
    return pair


@MODELS.register_module()
class AutoFormer(ElasticBackbone):
    """AutoFormer, elastic (``space=``) or fixed (``arch=``).

    Images of any size work: sides are padded to the patch size with zeros, absolute positions are interpolated, and
    relative and conditional positions fit any H × W grid.

    Args:
        arch: A fixed architecture: a zoo name (``'autoformer-tiny'``), a file, or the data.
        space: A search space, likewise. Give exactly one of the two.
        embed_dims: Width of the stored weights. Defaults to None: the largest ``embed_dim`` of the space. The
            published supernets store 64 × heads, which is more than any subnet uses. A fixed network stores only what
            it uses.
        img_size: Image side of the stored absolute positions. Defaults to 224.
        patch_size: Side of a patch. Defaults to 16.
        position: ``'absolute'``, ``'conditional'`` or ``'none'``, each with or without relative positions. Conditional
            ones (FocusFormer, arXiv 2208.10861; the PEG of CPVT, arXiv 2102.10882) are a depth-wise 3 × 3 convolution
            of the patches, padded with zeros. They are added to the patches after the first block; the class token gets
            none. Defaults to ``'absolute'``.
        reach: Largest relative offset with its own position; 0 for no relative positions. Defaults to 14.
        out_indices: Indices of the output blocks; negative ones count from the active last block. The final norm is
            applied after the last block only. Blocks behind the last output do not run and get no gradient. Defaults to
            (-1,).
        out_type: ``'featmap'`` (B, C, H, W); ``'avg_featmap'`` (B, C), the mean over patches, AutoFormer's own pooling;
            ``'cls_token'`` (B, C); or ``'raw'`` (B, 1 + H·W, C). Defaults to ``'featmap'``.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block; rises linearly from 0 at the first. Defaults to 0.
        rescale: (heads, ratio): multiplies attention by heads / active heads and MLPs by ratio / active ratio. This is
            the published code's ``scale`` flag, which its commands leave off. Defaults to None: off.
        official: Whether to cut the qkv bias as the published code does; its weights need this. Defaults to False.
        scaling: Whether each width scales branches by its own vectors, not shared with other widths (NASViT, Sec. 3).
            Defaults to False.
        sharing: Sharing pattern of channels, heads and hidden units in narrower architectures: ``'ordinal'``, the first
            ones; ``'bilateral'``, from both ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to
            ``'ordinal'``.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: An argument is invalid, or the space is not AutoFormer's.
    """

    schema = SCHEMA
    cost_of = staticmethod(cost)
    checks = {
        'position': partial(checks.one_of, options=POSITIONS),
        'reach': partial(checks.whole, least=0),
        'rescale': _rescale,
    }
    space_settings = ('embed_dims',)
    weight_settings = ('patch_size', 'position', 'reach', 'rescale', 'official', 'scaling')

    def __init__(
        self,
        arch: ArchRef | None = None,
        space: SpaceRef | None = None,
        embed_dims: int | None = None,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        position: str = 'absolute',
        reach: int = 14,
        out_indices: tuple[int, ...] = (-1,),
        out_type: str = 'featmap',
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        rescale: tuple[int, float] | None = None,
        official: bool = False,
        scaling: bool = False,
        sharing: str = 'ordinal',
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(locals())
        self.out_type, self.out_indices = out_type, self._check_outputs()
        self.grid = grid(self.settings['img_size'], patch_size)
        widths = self.space.stages[0].choices.values_of('embed_dim')
        self.embed_axis = embed = self.axis(widths, embed_dims)
        if embed_dims is not None:
            self.limits = Limits.of_space(self.schema, self.space, embed_dim=embed_dims)

        self.patch_embed = ElasticConv2d(3, embed, patch_size, patch_size)
        self.cls_token = table(1, 1, embed)
        self.pos_embed = table(1, 1 + math.prod(self.grid), embed) if position == 'absolute' else None
        self.peg = ElasticDepthwiseConv2d(embed, PEG_SIDE) if position == 'conditional' else None
        self.blocks = nn.ModuleList(self._build_blocks(widths))
        self.norm = ElasticLayerNorm(embed)
        self.axes = dict.fromkeys(('cls_token', 'pos_embed'), (None, None, embed))
        if self.pos_embed is not None:
            self.positions = {'pos_embed': PositionTable(self.grid, partial(grid, patch_size=patch_size), 1)}
        self.set_outputs([embed] * len(self.out_indices), [patch_size] * len(self.out_indices))
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_blocks(self, widths: list[int]) -> Iterator[AutoFormerBlock]:
        settings, (stage,) = self.settings, self.space.stages
        (rates,) = drop_path_rates(settings['drop_path_rate'], [len(stage.blocks)])
        for choices, rate in zip(stage.blocks, rates):
            assert choices is not None
            ratios = choices.values_of('mlp_ratio')
            yield AutoFormerBlock(
                self.embed_axis,
                heads=self.axis(choices.values_of('num_heads'), sortable=True),
                hidden=self.axis(
                    [units(width, ratio) for width in widths for ratio in ratios],
                    units(self.embed_axis.most, max(ratios)),
                    sortable=True,
                ),
                drop_path=rate,
                scaled=widths if settings['scaling'] else None,
                reach=settings['reach'],
                drop=settings['attn_drop_rate'],
                official=settings['official'],
            )

    def _init_parameters(self) -> None:
        """Initialise as published: linear layers, tables and tokens truncated normal, convolutions as torch does."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def _check_outputs(self) -> tuple[int, ...]:
        """Check that every architecture has the ``out_indices``; return them."""
        indices, fewest = self.settings['out_indices'], self._fewest
        valid = isinstance(indices, tuple) and indices and all(type(i) is int for i in indices)
        if not valid or any(not -fewest <= i < fewest for i in indices):
            raise VitnasError(
                f'`out_indices` should be from {-fewest} to {fewest - 1}, as the shallowest architecture '
                f'has {fewest} blocks, but got {indices!r}'
            )
        return indices

    @property
    def embed_dims(self) -> int:
        """Width of the weights."""
        return self.embed_axis.most

    @property
    def _fewest(self) -> int:
        """Depth of the shallowest architecture."""
        return self.space.stages[0].depths[0]

    def check_weights(self, network: NetworkRecord) -> None:
        """Refuse depths for which the outputs were not checked, and widths without scaling vectors."""
        (stage,) = network.stages
        if len(stage.blocks) < self._fewest:
            raise ArchError(
                f'stages[0].blocks has {len(stage.blocks)} entries; the weights have {self._fewest} to '
                f'{len(self.blocks)} blocks'
            )
        for block in self.blocks if self.settings['scaling'] else ():
            SwitchableScale.check(block.get_submodule('scale_mlp'), 'stages[0].embed_dim', stage.embed_dim)

    def widths(self, network: NetworkRecord) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of the tokens, and those of heads and hidden units of each block."""
        (stage,) = network.stages
        yield self.embed_axis, stage.embed_dim
        for choices, block in zip(stage.blocks, self._blocks):
            yield block.heads, choices.num_heads
            yield block.hidden, units(stage.embed_dim, choices.mlp_ratio)

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The blocks of the only stage."""
        return (tuple(self.blocks),)

    def why_not_sorted(self) -> str:
        """Return the reason: bias entries that belong to no head, or stored weights that no architecture uses."""
        if self.embed_axis.most > self.largest.stages[0].embed_dim:
            return f'hidden units cannot be sorted with embed_dims={self.embed_axis.most}: not all of them are used'
        if self.settings['official']:
            return 'heads cannot be sorted with official=True: numbers of the qkv bias belong to no head'
        return ''

    def why_not_masked(self) -> str:
        """Return the reason: outputs without a norm, or the published code's scales and biases."""
        wanted = dict(out_indices=(-1,), rescale=None, official=False, scaling=False, sharing='ordinal')
        for name, value in wanted.items():
            if self.settings[name] != value:
                return (
                    f'AutoFormer cannot run several architectures in a masked pass with {name}={self.settings[name]!r}'
                )
        return ''

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features, at full width with zeros in inactive channels."""
        x, size = self.embed(x)
        reach, depth = self.settings['reach'], self.active.depth(0)
        common = TokenGrid.make(*size, HEAD_DIM, reach, x.device) if reach else None
        wanted = [index % depth for index in self.out_indices]
        outs: dict[int, Tensor] = {}
        for b, block in enumerate(self.blocks[: max(wanted) + 1]):
            x = self.active.pass_block(block, 0, b, x, common, self._scales(b))
            if b == 0 and self.peg is not None:
                x = _add_conditional(x, self.peg, size)
            if b in wanted:
                tokens = self.norm(x) if b == depth - 1 else x
                outs[b] = format_tokens(tokens, size, self.embed_axis, self.out_type)
        return tuple(outs[b] for b in wanted)

    def embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, 3, H, W) → the tokens that enter the first block, (B, 1 + h·w, E), and (h, w)."""
        x = self.patch_embed(pad_to(x, self.settings['patch_size']))
        size = (x.shape[2], x.shape[3])
        token = self.embed_axis.take(self.cls_token, x.shape[1])
        x = torch.cat([token.expand(x.shape[0], -1, -1), as_tokens(x)], 1)
        if self.pos_embed is not None:
            positions = self.embed_axis.take(self.pos_embed, x.shape[-1])
            x = x + resize_positions(positions, self.grid, size, tokens=1)
        return x, size

    def _scales(self, b: int) -> tuple[float, float]:
        """Factors of the two branches of a block."""
        rescale = self.settings['rescale']
        if rescale is None:
            return 1.0, 1.0
        heads, ratio = (self.active.value(0, b, name) for name in ('num_heads', 'mlp_ratio'))
        return rescale[0] / heads, rescale[1] / ratio

    @property
    def _blocks(self) -> list[AutoFormerBlock]:
        return cast('list[AutoFormerBlock]', list(self.blocks))


def _add_conditional(tokens: Tensor, peg: nn.Module, size: tuple[int, int]) -> Tensor:
    """Add the output of ``peg`` for the H × W patches to tokens (B, 1 + H·W, C); the class token stays."""
    patches = tokens[:, 1:]
    encoding = as_tokens(peg(as_map(patches, size)))
    return torch.cat([tokens[:, :1], patches + encoding], 1)
