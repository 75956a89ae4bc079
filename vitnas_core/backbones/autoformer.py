"""AutoFormer: a plain vision transformer, elastic in width, depth, heads and MLP ratio (Chen et al., ICCV 2021)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import zoo
from ..costs import Cost, as_size
from ..costs.autoformer import HEAD_DIM, PEG_SIDE, POSITIONS, autoformer_cost, read_autoformer
from ..costs.reading import token_grid
from ..elastic import (
    Axes,
    Channels,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    Reorder,
    SwitchableScale,
    TokenGrid,
    resize_positions,
    take_last,
)
from ..errors import ArchError, VitnasError
from ..registry import MODELS
from ..spaces import Arch, SearchSpace
from .autoformer_layers import Block
from .base import ArchRef, ElasticBackbone, SpaceRef, check_ascending, check_rates, options_of
from .tokens import OUT_TYPES, format_tokens


@MODELS.register_module()
class AutoFormer(ElasticBackbone):
    """AutoFormer, elastic (``space=``) or fixed (``arch=``).

    Any image size: sides are padded to the patch size with zeros, absolute positions are
    interpolated, relative and conditional positions hold for any H × W grid.

    Args:
        arch: A fixed architecture: a zoo name (``'autoformer-tiny'``), a file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        embed_dims: Width of the stored weights. Defaults to None: the largest ``embed_dim`` of the
            space. The published supernets store 64 × heads, which is more than any subnet uses. A
            fixed network stores what it uses.
        img_size: Image side for which absolute positions are stored. Defaults to 224.
        patch_size: Side of a patch. Defaults to 16.
        position: ``'absolute'``, ``'conditional'`` or ``'none'``; each with or without relative positions.
            Conditional ones (FocusFormer, arXiv 2208.10861; the PEG of CPVT, arXiv 2102.10882) are a
            depth-wise 3 × 3 convolution of the patches, padded with zeros and added to them after the
            first block; the class token gets none. Defaults to ``'absolute'``.
        reach: Largest relative offset that is told apart; 0 for no relative positions. Defaults to 14.
        out_indices: After which blocks features are returned; negative ones count from the active
            last block. The final norm is applied after the last block only; blocks behind the last
            of them do not run and get no gradient. Defaults to (-1,).
        out_type: ``'featmap'`` (B, C, H, W), ``'avg_featmap'`` (the mean over patches, AutoFormer's own
            pooling) or ``'cls_token'`` (B, C), or ``'raw'`` (B, 1 + H·W, C). Defaults to ``'featmap'``.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0 at the first. Defaults to 0.
        rescale: (heads, ratio): multiply attention by heads / active heads and MLPs by ratio / active
            ratio, the published code's ``scale`` flag (off in its commands). Defaults to None: off.
        official: Cut the qkv bias as the published code does (needed for its weights). Defaults to False.
        scaling: Whether branches are scaled by vectors that architectures of other widths do not share (NASViT,
            Sec. 3). Defaults to False.
        sharing: Which channels, heads and hidden units narrower architectures use: ``'ordinal'``, the first ones;
            ``'bilateral'``, from both ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to ``'ordinal'``.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: An argument is none of the above, or the space is not AutoFormer's.
    """

    family = 'autoformer'
    cost_settings = ('img_size', 'patch_size', 'position', 'reach', 'scaling')
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
        settings: dict[str, Any] = dict(
            img_size=as_size('img_size', img_size),
            patch_size=patch_size,
            position=position,
            reach=reach,
            out_indices=tuple(out_indices) if isinstance(out_indices, (list, tuple)) else out_indices,
            out_type=out_type,
            attn_drop_rate=attn_drop_rate,
            drop_path_rate=drop_path_rate,
            rescale=tuple(rescale) if isinstance(rescale, list) else rescale,
            official=official,
            scaling=scaling,
            sharing=sharing,
        )
        super().__init__(arch, space, settings, init_cfg)
        maxima = _maxima(self.space)
        _check_settings(settings, fewest=self.space.stages[0].depths[0])
        if embed_dims is not None and arch is not None:
            raise VitnasError('`embed_dims` is the stored width of a `space`; a fixed `arch` stores what it uses')
        self.embed_dims = embed_dims or maxima[0]
        self.patch_size, self.reach, self.out_type = patch_size, reach, out_type
        self.out_indices: tuple[int, ...] = settings['out_indices']
        self.rescale: tuple[int, float] | None = settings['rescale']
        self.grid = token_grid(settings['img_size'], patch_size)

        self.patch_embed = ElasticConv2d(3, self.embed_dims, patch_size, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, self.embed_dims))
        tokens = 1 + self.grid[0] * self.grid[1]
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, self.embed_dims)) if position == 'absolute' else None
        self.peg = ElasticDepthwiseConv2d(self.embed_dims, PEG_SIDE) if position == 'conditional' else None
        last = max(1, len(maxima[1]) - 1)
        self.blocks = nn.ModuleList(
            Block(
                width=self.embed_dims,
                num_heads=heads,
                hidden=int(self.embed_dims * ratio),
                reach=reach,
                attn_drop=attn_drop_rate,
                drop_path=drop_path_rate * i / last,
                official=official,
                widths=options_of(self.space, 0, 'embed_dim') if scaling else None,
            )
            for i, (heads, ratio) in enumerate(maxima[1])
        )
        self.norm = ElasticLayerNorm(self.embed_dims)
        self.shared = self._share_channels()
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _share_channels(self) -> Channels | None:
        """Let the layers share channels by the pattern; return whose channels the tokens have."""
        widths = options_of(self.space, 0, 'embed_dim')
        embed = self.pattern.channels(self.embed_dims, widths)
        self.patch_embed.outputs = self.norm.inputs = embed
        if self.peg is not None:
            self.peg.inputs = embed
        for choices, block in zip(self.space.stages[0].blocks, self._blocks):
            options = dict(choices.options)  # type: ignore[union-attr]
            block.share_channels(
                embed,
                self.pattern.channels(block.attn.proj.in_features // HEAD_DIM, map(int, options['num_heads'])),
                self.pattern.channels(
                    block.fc1.out_features, [int(width * ratio) for width in widths for ratio in options['mlp_ratio']]
                ),
            )
        return embed

    def axes(self) -> Axes:
        """Whose channels the axes of the tokens' own weights are."""
        return dict.fromkeys(('cls_token', 'pos_embed'), (None, None, self.shared))

    @property
    def depth(self) -> int:
        """How many blocks are active; where samples differ, of the deepest."""
        return max(len(arch.stages[0].blocks) for arch in self.running)

    @property
    def _blocks(self) -> list[Block]:
        return list(self.blocks)  # type: ignore[arg-type]

    def _init_parameters(self) -> None:
        """As published: truncated normal for linear layers, tables and tokens; torch's default for convolutions."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        embed_dim, choices = read_autoformer(arch)
        if embed_dim > self.embed_dims:
            raise ArchError(f'stages[0].embed_dim is {embed_dim}; the weights are {self.embed_dims} wide')
        fewest = self.space.stages[0].depths[0]  # what out_indices were checked against
        if not fewest <= len(choices) <= len(self.blocks):
            raise ArchError(
                f'stages[0].blocks has {len(choices)} entries; the weights have {fewest} to {len(self.blocks)} blocks'
            )
        for i, ((heads, ratio), block) in enumerate(zip(choices, self._blocks)):
            SwitchableScale.check(block.scale_mlp, 'stages[0].embed_dim', embed_dim)
            if 3 * HEAD_DIM * heads > block.attn.qkv.out_features:
                most = block.attn.proj.in_features // HEAD_DIM
                raise ArchError(f'stages[0].blocks[{i}].num_heads is {heads}; the weights have {most}')
            if int(embed_dim * ratio) > block.fc1.out_features:
                raise ArchError(
                    f'stages[0].blocks[{i}].mlp_ratio is {ratio}, {int(embed_dim * ratio)} hidden units; '
                    f'the weights have {block.fc1.out_features}'
                )

    def activate(self, arch: Arch) -> None:
        """Set the widths of the layers; see :meth:`ElasticBackbone.set_arch`."""
        embed_dim, choices = read_autoformer(arch)
        self.patch_embed.width = embed_dim
        for (heads, ratio), block in zip(choices, self._blocks):
            block.set_choice(embed_dim, heads, ratio, self.rescale)

    def importance_orders(self) -> list[Reorder]:
        """New orders of heads and hidden units, block by block.

        Raises:
            VitnasError: ``official`` is set, where numbers of the qkv bias have no head of their own, or weights are
                stored that no architecture of the space uses.
        """
        if self.embed_dims > read_autoformer(self.space.largest())[0]:
            raise VitnasError(
                f'hidden units cannot be sorted with embed_dims={self.embed_dims}: not all of them are used'
            )
        if self.settings['official']:
            raise VitnasError('heads cannot be sorted with official=True: numbers of the qkv bias belong to no head')
        return super().importance_orders()

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """One stage."""
        return (tuple(self.blocks),)

    def out_channels(self, arch: Arch | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, of an architecture, those that are not zero."""
        return (self.embed_dims if arch is None else read_autoformer(arch)[0],) * len(self.out_indices)

    def out_shared(self) -> tuple[Channels | None, ...]:
        """The tokens' channels, of every output."""
        return (self.shared,) * len(self.out_indices)

    def out_strides(self) -> tuple[int, ...]:
        """The patch size, of every output."""
        return (self.patch_size,) * len(self.out_indices)

    def input_widths(self, arch: Arch) -> dict[nn.Module, int]:
        """Channels that norms and linear layers get of an architecture."""
        embed_dim, choices = read_autoformer(arch)
        widths: dict[nn.Module, int] = {self.norm: embed_dim}
        for (heads, ratio), block in zip(choices, self._blocks):
            widths |= block.input_widths(embed_dim, heads, ratio)
        return widths

    def why_not_masked(self) -> str:
        """Outputs without a norm, and the published code's ways with scales and biases."""
        wanted = dict(out_indices=(-1,), rescale=None, official=False, scaling=False, sharing='ordinal')
        for name, value in wanted.items():
            if self.settings[name] != value:
                return f'AutoFormer cannot share a masked pass among architectures with {name}={self.settings[name]!r}'
        return ''

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one an out_index, at full width with zeros in inactive channels."""
        x, (height, width) = self.embed(x)
        grid = TokenGrid.make(height, width, HEAD_DIM, self.reach, x.device) if self.reach else None
        depth = self.depth
        wanted = [index % depth for index in self.out_indices]
        outs: dict[int, Tensor] = {}
        for i, block in enumerate(self._blocks[: max(wanted) + 1]):
            x = self.pass_block(block, 0, i, x, grid)
            if i == 0 and self.peg is not None:
                x = _add_conditional(x, self.peg, (height, width))
            if i in wanted:
                tokens = self.norm(x) if i == depth - 1 else x
                outs[i] = format_tokens(tokens, (height, width), self.embed_dims, self.out_type, self.shared)
        return tuple(outs[i] for i in wanted)

    def embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, 3, H, W) → the tokens that enter the first block, (B, 1 + h·w, E), and (h, w)."""
        bottom, right = (-side % self.patch_size for side in x.shape[-2:])
        if bottom or right:
            x = F.pad(x, (0, right, 0, bottom))
        x = self.patch_embed(x)
        height, width = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)
        token = take_last(self.cls_token, x.shape[-1], self.shared)
        x = torch.cat([token.expand(x.shape[0], -1, -1), x], 1)
        if self.pos_embed is not None:
            positions = take_last(self.pos_embed, x.shape[-1], self.shared)
            x = x + resize_positions(positions, self.grid, (height, width), tokens=1)
        return x, (height, width)

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: tuple[int, int] | None = None) -> None:
        """Resize absolute positions of another image size, in place.

        A size that is not known is taken to be this network's if the number of positions is, else to be square.
        """
        stored = weights.get(f'{prefix}pos_embed')
        if stored is None or self.pos_embed is None or stored.ndim != 3:
            return
        patches = stored.shape[1] - 1
        grid = (math.isqrt(patches),) * 2 if img_size is None else token_grid(img_size, self.patch_size)
        if img_size is None and patches == math.prod(self.grid):
            grid = self.grid
        if grid != self.grid and math.prod(grid) == patches:
            weights[f'{prefix}pos_embed'] = resize_positions(stored, grid, self.grid, tokens=1)

    @classmethod
    def cost(
        cls,
        arch: ArchRef,
        input_size: int | tuple[int, int] = 224,
        num_classes: int = 0,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        position: str = 'absolute',
        reach: int = 14,
        scaling: bool = False,
    ) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        The convention of the paper's figures for T and B: convolutions (that of conditional positions
        included), linear layers and the two attention products, without the relative positions' own.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image. Defaults to 224.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
            img_size: Image side for which absolute positions are stored. Defaults to 224.
            patch_size: Side of a patch. Defaults to 16.
            position: ``'absolute'``, ``'conditional'`` or ``'none'``. Defaults to ``'absolute'``.
            reach: Largest relative offset; 0 for no relative positions. Defaults to 14.
            scaling: Whether branches are scaled. Defaults to False.

        Raises:
            VitnasError: The architecture is not AutoFormer's, ``position`` is none of these, or a size is
                not a whole number above 0.
        """
        arch = zoo.load_arch(arch)
        return autoformer_cost(arch, input_size, num_classes, img_size, patch_size, position, reach, scaling)


def _add_conditional(tokens: Tensor, peg: nn.Module, grid: tuple[int, int]) -> Tensor:
    """Add what ``peg`` makes of the patches' H × W grid to them (B, 1 + H·W, C); the class token stays."""
    patches = tokens[:, 1:]
    encoding = peg(patches.transpose(1, 2).unflatten(2, grid)).flatten(2).transpose(1, 2)
    return torch.cat([tokens[:, :1], patches + encoding], 1)


def _check_settings(settings: dict[str, Any], fewest: int) -> None:
    """Refuse what the layers would fail on later; ``fewest`` is the depth of the shallowest architecture."""
    for name, valid in (
        ('position', POSITIONS),
        ('out_type', OUT_TYPES),
    ):
        if settings[name] not in valid:
            raise VitnasError(f'`{name}` should be one of {", ".join(valid)}, but got {settings[name]!r}')
    for name, least in (('patch_size', 1), ('reach', 0)):
        if type(settings[name]) is not int or settings[name] < least:
            raise VitnasError(f'`{name}` should be a whole number of at least {least}, but got {settings[name]!r}')
    check_rates(settings)
    indices = settings['out_indices']
    if (
        not isinstance(indices, tuple)
        or not indices
        or any(type(i) is not int or not -fewest <= i < fewest for i in indices)
    ):
        raise VitnasError(
            f'`out_indices` should be from {-fewest} to {fewest - 1}, as the shallowest architecture '
            f'has {fewest} blocks, but got {indices!r}'
        )
    rescale = settings['rescale']
    if rescale is not None and (not isinstance(rescale, tuple) or len(rescale) != 2 or min(rescale) <= 0):
        raise VitnasError(f'`rescale` should be a pair (heads, ratio), but got {rescale!r}')


def _maxima(space: SearchSpace) -> tuple[int, list[tuple[int, float]]]:
    """The largest embed_dim, and the largest (num_heads, mlp_ratio) of each block.

    Raises:
        VitnasError: The space is not AutoFormer's.
    """
    if len(space.stages) != 1 or space.stages[0].optional:
        raise VitnasError('a space of AutoFormer should have one stage in which only last blocks are absent')
    check_ascending(space, 'AutoFormer')
    read_autoformer(space.smallest())  # its names, and that it has a block
    return read_autoformer(space.largest())
