"""ViT-Res: a three-stage transformer with residual spatial reductions, elastic as in ViT-ResNAS (Liao et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import zoo
from ..costs import Cost, as_size
from ..costs.reading import check_out_indices, stage_maps
from ..costs.vit_res import PATCH, STEM, STRIDE, ViTResBlock, ViTResStage, read_vit_res, vit_res_cost
from ..elastic import (
    DropPath,
    ElasticConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    Reorder,
    attend,
    keep,
    order_heads,
    order_hidden,
    pad_channels,
    resize_positions,
)
from ..errors import ArchError, SpaceError, VitnasError
from ..registry import MODELS
from ..spaces import Arch, SearchSpace
from .base import ArchRef, SpaceRef, check_ascending, check_rates, check_stages
from .staged import StagedBackbone
from .tokens import OUT_TYPES, as_map, as_tokens, format_tokens

EPS = 1e-6
"""Of every layer norm."""


class Attention(nn.Module):
    """Multi-head self-attention; its inner width is free of that of the tokens.

    Rows of ``qkv`` keep q, k and v of a head together, heads one after another, so that any number of heads is a
    prefix.

    Args:
        width: Largest width of the tokens.
        num_heads: Largest number of heads.
        head_dim: Size of a head.
        drop: Dropout of the attention weights.
    """

    def __init__(self, width: int, num_heads: int, head_dim: int, drop: float) -> None:
        super().__init__()
        self.head_dim, self.drop = head_dim, drop
        self.qkv = ElasticLinear(width, 3 * head_dim * num_heads)
        self.proj = ElasticLinear(head_dim * num_heads, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        q, k, v = self.qkv(x).unflatten(-1, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4).unbind(0)
        out = attend(q, k, v, self.drop if self.training else 0.0)
        return self.proj(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm transformer block: attention and MLP, each with a residual.

    Args:
        width: Largest width of the tokens.
        hidden: Largest hidden width of the MLP.
        drop_path: Chance that a sample skips a branch.
        **attention: Arguments of :class:`Attention`.
    """

    def __init__(self, width: int, hidden: int, drop_path: float, **attention: Any) -> None:
        super().__init__()
        self.norm1 = ElasticLayerNorm(width, EPS)
        self.attn = Attention(width, **attention)
        self.norm2 = ElasticLayerNorm(width, EPS)
        self.fc1 = ElasticLinear(width, hidden)
        self.fc2 = ElasticLinear(hidden, width)
        self.drop_path = DropPath(drop_path)

    def set_choice(self, embed_dim: int, choice: ViTResBlock) -> None:
        """Activate a width and the choices of the block."""
        self.attn.qkv.width = 3 * self.attn.head_dim * choice.num_heads
        self.attn.proj.width = self.fc2.width = embed_dim
        self.fc1.width = choice.hidden_dim

    def input_widths(self, embed_dim: int, choice: ViTResBlock) -> dict[nn.Module, int]:
        """Channels that layers get; see :meth:`ElasticBackbone.input_widths`."""
        inner = choice.num_heads * self.attn.head_dim
        return {self.norm1: embed_dim, self.attn.proj: inner, self.norm2: embed_dim, self.fc2: choice.hidden_dim}

    def importance_orders(self) -> list[Reorder]:
        """New orders of heads and hidden units; see :meth:`ElasticBackbone.importance_orders`."""
        heads = order_heads(self.attn.qkv, self.attn.proj, self.attn.head_dim)
        return heads + order_hidden(self.fc1, self.fc2)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Stem(nn.Module):
    """Image to tokens: three convolutions at half the size, the first added to the third, then patches of 7 × 7.

    Args:
        width: Largest width of the tokens.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        for i, (channels, stride) in enumerate(((3, 2), (STEM, 1), (STEM, 1)), 1):
            conv = nn.Conv2d(channels, STEM, 3, stride, padding=1, bias=False)
            self.add_module(f'conv{i}', nn.Sequential(conv, nn.BatchNorm2d(STEM), nn.ReLU()))
        self.proj = ElasticConv2d(STEM, width, PATCH, PATCH)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), padded to whole patches with zeros → (B, 24, H / 2, W / 2), for ``proj``."""
        bottom, right = (-side % STRIDE for side in x.shape[-2:])
        if bottom or right:
            x = F.pad(x, (0, right, 0, bottom))
        first = self.get_submodule('conv1')(x)
        return first + self.get_submodule('conv3')(self.get_submodule('conv2')(first))


class Reduction(nn.Module):
    """Residual spatial reduction: half the rows and columns, more channels.

    The residual branch normalises all tokens and sends patches through a strided convolution, to which new positions
    are added, and the class token through a linear layer. The main branch averages 2 × 2 patches, keeps the class
    token, and fills up the new channels with zeros. At an odd side the last cells average the patches that there are.

    Args:
        width: Largest width of the tokens.
        out: Largest width of the next stage.
        grid: Rows and columns of the next stage for which positions are stored.
        shortcut: Whether there is a main branch.
    """

    def __init__(self, width: int, out: int, grid: tuple[int, int], shortcut: bool) -> None:
        super().__init__()
        self.grid, self.shortcut = grid, shortcut
        self.norm = ElasticLayerNorm(width, EPS)
        self.conv = ElasticConv2d(width, out, 3, 2, padding=1)
        self.token = ElasticLinear(width, out)
        self.pos_embed = nn.Parameter(torch.zeros(1, grid[0] * grid[1], out))

    def forward(self, x: Tensor, size: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """(B, 1 + h·w, E) and (h, w) → the same of the next stage."""
        normed = self.norm(x)
        maps = self.conv(as_map(normed[:, 1:], size))
        width, *reduced = maps.shape[1:]
        table = resize_positions(self.pos_embed[..., :width], self.grid, (reduced[0], reduced[1]))
        out = torch.cat([self.token(normed[:, :1]), as_tokens(maps) + table], 1)
        if self.shortcut:
            x = keep(x, self.norm.mask)
            pooled = F.avg_pool2d(as_map(x[:, 1:], size), 2, ceil_mode=True)
            out = out + pad_channels(torch.cat([x[:, :1], as_tokens(pooled)], 1), width, 2)
        return out, (reduced[0], reduced[1])


class Stage(nn.Module):
    """The blocks of one width, and the reduction that leads to it.

    Args:
        reduction: What comes before the blocks; the first stage has none.
        blocks: The blocks; an identity where one is absent for good.
    """

    def __init__(self, reduction: Reduction | None, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.reduction = reduction
        self.blocks = nn.ModuleList(blocks)


@MODELS.register_module()
class ViTRes(StagedBackbone):
    """ViT-Res (arXiv 2109.00642), elastic (``space=``) or fixed (``arch=``).

    Strides are 14, 28 and 56. Any image size: sides are padded to multiples of 14 with zeros, positions are
    interpolated, and a reduction halves odd sides upwards.

    Args:
        arch: A fixed architecture: a zoo name (``'vit-resnas-tiny'``), a file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        img_size: Image side for which positions are stored. Defaults to 224.
        out_indices: After which stages features are returned, each behind a norm of its own; negative ones count
            from the last. Stages behind the last of them do not run. Defaults to (-1,).
        out_type: ``'featmap'`` (B, C, H, W), ``'avg_featmap'`` (the mean over patches) or ``'cls_token'`` (B, C), or
            ``'raw'`` (B, 1 + H·W, C). Defaults to ``'featmap'``.
        shortcut: Whether reductions have a main branch; without it they are the plain ones that the paper compares
            with. Defaults to True.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0 at the first. Defaults to 0.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: An argument is none of the above, or the space is not ViT-Res's.
    """

    family = 'vit_res'
    cost_settings = ('img_size', 'out_indices')
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
        settings: dict[str, Any] = dict(
            img_size=as_size('img_size', img_size),
            out_indices=tuple(out_indices) if isinstance(out_indices, (list, tuple)) else out_indices,
            out_type=out_type,
            shortcut=shortcut,
            attn_drop_rate=attn_drop_rate,
            drop_path_rate=drop_path_rate,
        )
        super().__init__(arch, space, settings, init_cfg)
        largest = _maxima(self.space)
        _check_settings(settings, len(largest))
        self.out_type = out_type
        self._grids = stage_maps(settings['img_size'], STRIDE, len(largest))
        self.stride, self.embed_dims = STRIDE, tuple(stage.embed_dim for stage in largest)
        self.head_dims = tuple(stage.head_dim for stage in largest)
        first = self.embed_dims[0]
        self.patch_embed = Stem(first)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, first))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + math.prod(self._grids[0]), first))
        self.stages = nn.ModuleList(self._build_stage(s, largest) for s in range(len(largest)))
        self.add_norms(EPS)
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int, largest: Sequence[ViTResStage]) -> Stage:
        """The modules of a stage; rates of stochastic depth rise over the blocks of all stages, absent ones too."""
        first, last = sum(len(stage.blocks) for stage in largest[:s]), sum(len(stage.blocks) for stage in largest) - 1
        width = self.embed_dims[s]
        blocks: list[nn.Module] = [
            nn.Identity()
            if block is None
            else Block(
                width=width,
                hidden=block.hidden_dim,
                drop_path=self.settings['drop_path_rate'] * (first + b) / max(1, last),
                num_heads=block.num_heads,
                head_dim=self.head_dims[s],
                drop=self.settings['attn_drop_rate'],
            )
            for b, block in enumerate(largest[s].blocks)
        ]
        shortcut = self.settings['shortcut']
        return Stage(Reduction(self.embed_dims[s - 1], width, self._grids[s], shortcut) if s else None, blocks)

    @property
    def _stages(self) -> list[Stage]:
        return list(self.stages)  # type: ignore[arg-type]

    def _init_parameters(self) -> None:
        """Truncated normal for linear layers, tokens and positions; torch's default for convolutions."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        for name in sorted(self.position_weights()):
            nn.init.trunc_normal_(self.get_parameter(name), std=0.02)

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        stages = read_vit_res(arch)
        check_stages(
            [(stage.embed_dim, len(stage.blocks)) for stage in stages],
            [(width, len(stage.blocks)) for width, stage in zip(self.embed_dims, self._stages)],
        )
        for s, (stage, ours) in enumerate(zip(stages, self._stages)):
            if stage.head_dim != self.head_dims[s]:
                raise ArchError(
                    f'stages[{s}].head_dim is {stage.head_dim}; heads of the weights have {self.head_dims[s]}'
                )
            for b, (choice, block) in enumerate(zip(stage.blocks, ours.blocks)):
                if choice is not None:
                    _check_block(f'stages[{s}].blocks[{b}]', choice, block)

    def activate(self, arch: Arch) -> None:
        """Set the widths of the layers; see :meth:`ElasticBackbone.set_arch`."""
        for stage, ours in zip(read_vit_res(arch), self._stages):
            if ours.reduction is None:
                self.patch_embed.proj.width = stage.embed_dim
            else:
                ours.reduction.conv.width = ours.reduction.token.width = stage.embed_dim
            for choice, block in zip(stage.blocks, ours.blocks):
                if choice is not None:
                    block.set_choice(stage.embed_dim, choice)  # type: ignore[operator]

    def input_widths(self, arch: Arch) -> dict[nn.Module, int]:
        """Channels that norms and linear layers get of an architecture."""
        widths: dict[nn.Module, int] = {}
        stages = read_vit_res(arch)
        for s, (stage, ours) in enumerate(zip(stages, self._stages)):
            if ours.reduction is not None:
                widths[ours.reduction.norm] = stages[s - 1].embed_dim
            for choice, block in zip(stage.blocks, ours.blocks):
                if choice is not None:
                    widths |= block.input_widths(stage.embed_dim, choice)  # type: ignore[operator]
            if s in self.outs:
                widths[self.out_norm(s)] = stage.embed_dim
        return widths

    def shared_modules(self) -> tuple[nn.Module, ...]:
        """The convolutions of the stem, up to the patches; batch norms there see all samples of a mixed batch."""
        return tuple(self.patch_embed.get_submodule(f'conv{i}') for i in (1, 2, 3))

    def prepare(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → what the stem's convolutions make of it, (B, 24, H / 2, W / 2)."""
        return self.patch_embed(x)

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """What :meth:`prepare` made → features, one an out_index, at full width with zeros in inactive channels."""
        x, size = self._embed(x)
        outs: dict[int, Tensor] = {}
        for s, stage in enumerate(self._stages[: max(self.outs) + 1]):
            if stage.reduction is not None:
                x, size = stage.reduction(x, size)
            for b, block in enumerate(stage.blocks):
                x = self.pass_block(block, s, b, x)
            if s in self.outs:
                outs[s] = format_tokens(self.out_norm(s)(x), size, self.embed_dims[s], self.out_type)
        return tuple(outs[s] for s in self.outs)

    def _embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """The tokens that enter the first block, (B, 1 + h·w, E), and (h, w)."""
        maps = self.patch_embed.proj(x)
        width, height, columns = maps.shape[1:]
        tokens = torch.cat([self.cls_token[..., :width].expand(maps.shape[0], -1, -1), as_tokens(maps)], 1)
        table = resize_positions(self.pos_embed[..., :width], self._grids[0], (height, columns), tokens=1)
        return tokens + table, (height, columns)

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: tuple[int, int] | None = None) -> None:
        """Interpolate the positions of every stage to the grids of this network, in place.

        Without ``img_size`` their grids are taken to be square, unless they have as many entries as this network's.
        """
        tables = ['pos_embed', *(f'stages.{s}.reduction.pos_embed' for s in range(1, len(self.stages)))]
        for s, (name, grid) in enumerate(zip(tables, self._grids)):
            stored = weights.get(prefix + name)
            if stored is None or stored.ndim != 3:
                continue
            tokens = int(s == 0)
            patches = stored.shape[1] - tokens
            source = (math.isqrt(patches),) * 2
            if img_size is not None:
                source = stage_maps(img_size, STRIDE, len(tables))[s]
            elif patches == math.prod(grid):
                source = grid
            if source != grid and math.prod(source) == patches:
                weights[prefix + name] = resize_positions(stored, source, grid, tokens)

    @classmethod
    def cost(
        cls,
        arch: ArchRef,
        input_size: int | tuple[int, int] = 224,
        num_classes: int = 0,
        img_size: int | tuple[int, int] = 224,
        out_indices: tuple[int, ...] = (-1,),
    ) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        The published convention: convolutions, linear layers and the two attention products; but the stem is counted
        at its own size, where the published estimator always takes that of 224 × 224.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image. Defaults to 224.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
            img_size: Image side for which positions are stored. Defaults to 224.
            out_indices: After which stages there is a norm; stages behind them are not run. Defaults to (-1,).

        Raises:
            VitnasError: The architecture is not ViT-Res's, or a size is not a whole number above 0.
        """
        return vit_res_cost(zoo.load_arch(arch), input_size, num_classes, img_size, out_indices)


def _check_block(path: str, choice: ViTResBlock, block: nn.Module) -> None:
    """Check that a block's weights can run its choices."""
    if not isinstance(block, Block):
        raise ArchError(f'{path} is there; the weights have no such block')
    most = block.attn.proj.in_features // block.attn.head_dim
    if choice.num_heads > most:
        raise ArchError(f'{path}.num_heads is {choice.num_heads}; the weights have {most}')
    if choice.hidden_dim > block.fc1.out_features:
        raise ArchError(f'{path}.hidden_dim is {choice.hidden_dim}; the weights have {block.fc1.out_features}')


def _check_settings(settings: dict[str, Any], stages: int) -> None:
    """Refuse what the layers would fail on later."""
    if settings['out_type'] not in OUT_TYPES:
        raise VitnasError(f'`out_type` should be one of {", ".join(OUT_TYPES)}, but got {settings["out_type"]!r}')
    check_rates(settings)
    check_out_indices(settings['out_indices'], stages)


def _maxima(space: SearchSpace) -> tuple[ViTResStage, ...]:
    """The largest choice of everything.

    Raises:
        VitnasError: The space is not ViT-Res's.
    """
    check_ascending(space, 'ViTRes')
    for choices in (c for stage in space.stages for c in (stage.choices, *stage.blocks) if c is not None):
        for name, options in choices.options:
            if any(option != int(option) for option in options):
                raise SpaceError(f'{name} of a ViTRes space should list whole numbers, but got {list(options)}')
            if name == 'head_dim' and len(options) > 1:
                raise SpaceError(f'head_dim of a ViTRes space should have one option, but got {list(options)}')
    read_vit_res(space.smallest())  # its names, and that every stage has a block
    narrow, wide = space.smallest(), read_vit_res(space.largest())
    for s, stage in enumerate(read_vit_res(narrow)[1:], 1):
        if stage.embed_dim < wide[s - 1].embed_dim:
            raise SpaceError(
                f'stages[{s}].embed_dim of a ViTRes space should be at least {wide[s - 1].embed_dim}, the widest '
                f'before it, but got {stage.embed_dim}'
            )
    return wide
