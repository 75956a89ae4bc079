"""ViT-Res: a three-stage transformer with residual spatial reductions, elastic as in ViT-ResNAS (Liao et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones.depths import position_weights
from ...backbones.module import ArchRef, SpaceRef
from ...backbones.staged import StagedBackbone
from ...backbones.tokens import as_map, as_tokens, format_tokens
from ...costs.algebra import stage_maps
from ...elastic import (
    Axes,
    Axis,
    DropPath,
    ElasticConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    PositionTable,
    attend,
    keep,
    pad_to,
    resize_positions,
    table,
)
from ...registry import MODELS
from ...spaces.records import NetworkRecord
from .arch import PATCH, SCHEMA, STEM, STRIDE, cost

EPS = 1e-6
"""Added to the variance in every layer norm."""


class ViTResAttention(nn.Module):
    """Multi-head self-attention; its inner width does not depend on the width of the tokens.

    Rows of ``qkv`` keep q, k and v of a head together, heads one after another. So any number of heads is a prefix.

    Args:
        embed: Axis of the tokens.
        heads: Axis of the heads.
        head_dim: Size of a head.
        drop: Dropout of the attention weights.
    """

    def __init__(self, embed: Axis, heads: Axis, head_dim: int, drop: float) -> None:
        super().__init__()
        self.head_dim, self.drop = head_dim, drop
        self.qkv = ElasticLinear(embed, heads.times(3 * head_dim), normed=True)
        self.proj = ElasticLinear(heads.times(head_dim), embed)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4).unbind(0)
        out = attend(q, k, v, self.drop if self.training else 0.0)
        return self.proj(out.transpose(1, 2).flatten(2))


class ViTResBlock(nn.Module):
    """A pre-norm transformer block: attention and MLP, each with a residual.

    Args:
        embed: Axis of the tokens.
        heads: Axis of the heads.
        hidden: Axis of the hidden units.
        head_dim: Size of a head.
        drop: Dropout of the attention weights.
        drop_path: Chance that a sample skips a branch.
    """

    def __init__(self, embed: Axis, heads: Axis, hidden: Axis, head_dim: int, drop: float, drop_path: float) -> None:
        super().__init__()
        self.heads, self.hidden = heads, hidden
        self.norm1 = ElasticLayerNorm(embed, EPS)
        self.attn = ViTResAttention(embed, heads, head_dim, drop)
        self.norm2 = ElasticLayerNorm(embed, EPS)
        self.fc1 = ElasticLinear(embed, hidden, normed=True)
        self.fc2 = ElasticLinear(hidden, embed)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Stem(nn.Module):
    """Turn an image into tokens: three convolutions at half size, the first added to the third, then 7 × 7 patches.

    Args:
        embed: Axis of the tokens.
    """

    def __init__(self, embed: Axis) -> None:
        super().__init__()
        for i, (channels, stride) in enumerate(((3, 2), (STEM, 1), (STEM, 1)), 1):
            conv = nn.Conv2d(channels, STEM, 3, stride, padding=1, bias=False)
            self.add_module(f'conv{i}', nn.Sequential(conv, nn.BatchNorm2d(STEM), nn.ReLU()))
        self.proj = ElasticConv2d(STEM, embed, PATCH, PATCH)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), padded to whole patches with zeros → (B, 24, H / 2, W / 2), the input of ``proj``."""
        first = self.get_submodule('conv1')(pad_to(x, STRIDE))
        return first + self.get_submodule('conv3')(self.get_submodule('conv2')(first))


class Reduction(nn.Module):
    """Residual spatial reduction: half the rows and columns, more channels.

    The residual branch normalises all tokens. It sends patches through a strided convolution, to which new positions
    are added, and the class token through a linear layer. The main branch averages 2 × 2 patches, keeps the class
    token, and fills up the new channels with zeros. At an odd side, the last cells average only the existing patches.

    Args:
        embed: Axis of the tokens.
        out: Axis of the tokens of the next stage.
        grid: Rows and columns of the stored positions of the next stage.
        shortcut: Whether there is a main branch.
    """

    def __init__(self, embed: Axis, out: Axis, grid: tuple[int, int], shortcut: bool) -> None:
        super().__init__()
        self.grid, self.shortcut = grid, shortcut
        self.norm = ElasticLayerNorm(embed, EPS)
        self.conv = ElasticConv2d(embed, out, 3, 2, padding=1)
        self.token = ElasticLinear(embed, out, normed=True)
        self.pos_embed = table(1, grid[0] * grid[1], out)
        self.axes: Axes = {'pos_embed': (None, None, out)}

    def forward(self, x: Tensor, size: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """(B, 1 + h·w, E) and (h, w) → the same of the next stage."""
        normed = self.norm(x)
        maps = self.conv(as_map(normed[:, 1:], size))
        width, rows, columns = maps.shape[1:]
        positions = resize_positions(self.conv.outputs.take(self.pos_embed, width), self.grid, (rows, columns))
        out = torch.cat([self.token(normed[:, :1]), as_tokens(maps) + positions], 1)
        if self.shortcut:
            x = keep(x, self.norm.axis.mask)
            pooled = F.avg_pool2d(as_map(x[:, 1:], size), 2, ceil_mode=True)
            short, missing = torch.cat([x[:, :1], as_tokens(pooled)], 1), width - x.shape[2]
            out = out + (F.pad(short, (0, missing)) if missing else short)
        return out, (rows, columns)


class ViTResStage(nn.Module):
    """The blocks of one width, and the reduction before them.

    Args:
        reduction: The reduction before the blocks; the first stage has none.
        blocks: The blocks; an identity for one that is absent for good.
    """

    def __init__(self, reduction: Reduction | None, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.reduction = reduction
        self.blocks = nn.ModuleList(blocks)


@MODELS.register_module()
class ViTRes(StagedBackbone):
    """ViT-Res (arXiv 2109.00642), elastic (``space=``) or fixed (``arch=``).

    Strides are 14, 28 and 56. Images of any size work: sides are padded to multiples of 14 with zeros, positions are
    interpolated, and a reduction rounds half of an odd side up.

    Args:
        arch: A fixed architecture: a zoo name (``'vit-resnas-tiny'``), a file, or the data.
        space: A search space, likewise. Give exactly one of the two.
        img_size: Image side of the stored positions. Defaults to 224.
        out_indices: Indices of the output stages, each with its own norm; negative ones count from the last. Stages
            behind the last output do not run. Defaults to (-1,).
        out_type: ``'featmap'`` (B, C, H, W); ``'avg_featmap'`` (B, C), the mean over patches; ``'cls_token'`` (B, C);
            or ``'raw'`` (B, 1 + H·W, C). Defaults to ``'featmap'``.
        shortcut: Whether reductions have a main branch. Without it they are the plain reductions to which the paper
            compares. Defaults to True.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block; rises linearly from 0 at the first. Defaults to 0.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: An argument is invalid, or the space is not ViT-Res's.
    """

    schema = SCHEMA
    cost_of = staticmethod(cost)
    weight_settings = ('shortcut',)
    global_pool = 'token'

    def __init__(
        self,
        arch: ArchRef | None = None,
        space: SpaceRef | None = None,
        img_size: int | tuple[int, int] = 224,
        out_indices: tuple[int, ...] = (-1,),
        out_type: str = 'featmap',
        shortcut: bool = True,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(locals())
        self.out_type = out_type
        first, self._grids = self.embeds[0], self._grids_of(self.settings['img_size'])
        self.patch_embed = Stem(first)
        self.cls_token = table(1, 1, first)
        self.pos_embed = table(1, 1 + math.prod(self._grids[0]), first)
        self.axes = dict.fromkeys(('cls_token', 'pos_embed'), (None, None, first))
        self.stages = nn.ModuleList(self._build_stage(s) for s in range(len(self.embeds)))
        self.add_norms(STRIDE, EPS)
        for s, grid in enumerate(self._grids):
            name = f'stages.{s}.reduction.pos_embed' if s else 'pos_embed'
            self.positions[name] = PositionTable(grid, partial(self._grid_of, s), tokens=int(s == 0))
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _grids_of(self, img_size: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        return stage_maps(img_size, STRIDE, len(self.embeds))

    def _grid_of(self, s: int, img_size: tuple[int, int]) -> tuple[int, int]:
        return self._grids_of(img_size)[s]

    def _build_stage(self, s: int) -> ViTResStage:
        """Build the modules of a stage."""
        embed, stage, settings = self.embeds[s], self.space.stages[s], self.settings
        (head_dim,) = stage.choices.values_of('head_dim')
        blocks: list[nn.Module] = [
            nn.Identity()
            if choices is None
            else ViTResBlock(
                embed,
                heads=self.axis(choices.values_of('num_heads'), sortable=True),
                hidden=self.axis(choices.values_of('hidden_dim'), sortable=True),
                head_dim=head_dim,
                drop=settings['attn_drop_rate'],
                drop_path=rate,
            )
            for choices, rate in zip(stage.blocks, self.drop_path_rates()[s])
        ]
        reduction = Reduction(self.embeds[s - 1], embed, self._grids[s], settings['shortcut']) if s else None
        return ViTResStage(reduction, blocks)

    def _init_parameters(self) -> None:
        """Initialise linear layers, tokens and positions truncated normal, convolutions as torch does."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        positions = position_weights(self)
        for name, parameter in self.named_parameters():  # in this order; a set has none
            if name in positions:
                nn.init.trunc_normal_(parameter, std=0.02)

    def widths(self, network: NetworkRecord) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of each stage's tokens, and those of heads and hidden units of each block."""
        for stage, embed, blocks in zip(network.stages, self.embeds, self.stage_blocks()):
            yield embed, stage.embed_dim
            for choices, block in zip(stage.blocks, blocks):
                if choices is not None:
                    assert isinstance(block, ViTResBlock)
                    yield block.heads, choices.num_heads
                    yield block.hidden, choices.hidden_dim

    def entry_modules(self) -> tuple[nn.Module, ...]:
        """The convolutions of the stem, up to the patches; their batch norms see all samples of a mixed batch."""
        return tuple(self.patch_embed.get_submodule(f'conv{i}') for i in (1, 2, 3))

    def entry(self, x: Tensor) -> Tensor:
        """Run the stem's convolutions on (B, 3, H, W); return (B, 24, H / 2, W / 2)."""
        return self.patch_embed(x)

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Output of the stem → features, at full width with zeros in inactive channels."""
        x, size = self._embed(x)
        outs: dict[int, Tensor] = {}
        for s, stage in enumerate(self._stages[: max(self.outs) + 1]):
            if stage.reduction is not None:
                x, size = stage.reduction(x, size)
            for b, block in enumerate(stage.blocks):
                x = self.active.pass_block(block, s, b, x)
            if s in self.outs:
                outs[s] = format_tokens(self.out_norm(s)(x), size, self.embeds[s], self.out_type)
        return tuple(outs[s] for s in self.outs)

    def _embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Return the tokens that enter the first block, (B, 1 + h·w, E), and (h, w)."""
        maps = self.patch_embed.proj(x)
        width, rows, columns = maps.shape[1:]
        token, positions = (self.embeds[0].take(own, width) for own in (self.cls_token, self.pos_embed))
        tokens = torch.cat([token.expand(maps.shape[0], -1, -1), as_tokens(maps)], 1)
        return tokens + resize_positions(positions, self._grids[0], (rows, columns), tokens=1), (rows, columns)

    @property
    def _stages(self) -> list[ViTResStage]:
        return cast('list[ViTResStage]', list(self.stages))
