"""ViTAS on the DeiT space: a plain vision transformer, elastic in patches, widths, heads, depth (Su et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import zoo
from ..costs import Cost, as_size
from ..costs.reading import token_grid
from ..costs.vitas_deit import ViTASBlock, read_vitas_deit, vitas_deit_cost
from ..elastic import Axes, Channels, ElasticConv2d, ElasticLayerNorm, resize_positions, take_last
from ..errors import ArchError, SpaceError, VitnasError
from ..registry import MODELS
from ..spaces import Arch, StageSpace
from .base import ArchRef, ElasticBackbone, SpaceRef, block_options, check_ascending, check_rates, options_of
from .tokens import OUT_TYPES, format_tokens
from .vitas_layers import Attention, Block, OfficialAttention

NORM_EPS = 1e-6
"""What the norms of blocks add to the variance; the last one adds torch's default."""
SHARED = 'all'
"""The name of the class token that all patch sizes share."""
LEAST_SUPERFORMER = 3
"""The least width of a published superformer, a third of which scales scores."""


@MODELS.register_module()
class ViTASDeiT(ElasticBackbone):
    """ViTAS's DeiT space, elastic (``space=``) or fixed (``arch=``).

    Every patch size has a convolution, positions and, by default, a class token of its own. Any image size: sides are
    padded to the patch size with zeros, positions are interpolated.

    Args:
        arch: A fixed architecture: a zoo name (``'vitas-deit-b'``), a file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        img_size: Image side for which positions are stored. Defaults to 224.
        sharing: Which channels narrower architectures use: ``'ordinal'``, the first ones; ``'bilateral'``, from both
            ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to ``'cyclic'``.
        private_token: Whether each patch size has a class token of its own (Tab. 10). Defaults to True.
        out_indices: After which blocks features are returned, counted with absent ones; negative ones count from the
            last. The final norm is applied after the last block only; blocks behind the last of them do not run.
            Defaults to (-1,).
        out_type: ``'featmap'`` (B, C, H, W), ``'avg_featmap'`` (B, C), ``'cls_token'`` (B, C), which the paper's
            classifiers read, or ``'raw'`` (B, 1 + H·W, C). Defaults to ``'featmap'``.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0 at the first. Defaults to 0.
        official: As ViTAS's code: queries and keys of their own a number of heads, cut as one; scores scaled by another
            width than a head's; and in a superformer only the last position, which every token gets (needed for its
            weights). Defaults to False.
        superformer: Width of the superformer that a fixed network with ``official`` is a part of, whose ways it keeps;
            ``extract`` gives it. Defaults to None: the network stands alone.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: An argument is none of the above, or the space is not of this family.
    """

    family = 'vitas_deit'
    cost_settings = ('img_size',)
    weight_settings = ('private_token', 'official', 'superformer')
    global_pool = 'token'

    def __init__(
        self,
        arch: ArchRef | None = None,
        space: SpaceRef | None = None,
        img_size: int | tuple[int, int] = 224,
        sharing: str = 'cyclic',
        private_token: bool = True,
        out_indices: tuple[int, ...] = (-1,),
        out_type: str = 'featmap',
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        official: bool = False,
        superformer: int | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        settings: dict[str, Any] = dict(
            img_size=as_size('img_size', img_size),
            sharing=sharing,
            private_token=private_token,
            out_indices=tuple(out_indices) if isinstance(out_indices, (list, tuple)) else out_indices,
            out_type=out_type,
            attn_drop_rate=attn_drop_rate,
            drop_path_rate=drop_path_rate,
            official=official,
            superformer=superformer,
        )
        super().__init__(arch, space, settings, init_cfg)
        self._check_space()
        _check_settings(settings, _fewest(self.space.stages[0]))
        largest = read_vitas_deit(self.space.largest())
        self.embed_dims = largest.embed_dim
        settings['superformer'] = _superformer(settings, self.embed_dims if arch is None else None)
        self.out_type = out_type
        self.last_position = official and settings['superformer'] is not None
        """Whether every token gets the last position, as in the published superformer."""
        sizes = [int(size) for size in dict(self.space.choices.options)['patch_size']]
        self.grids = {size: token_grid(settings['img_size'], size) for size in sizes}
        self.patch_size = largest.patch_size
        """The active side of a patch."""
        width = self.embed_dims
        self.patch_embed = nn.ModuleDict({str(size): ElasticConv2d(3, width, size, size) for size in sizes})
        tokens = map(str, sizes) if private_token else [SHARED]
        self.cls_token = nn.ParameterDict({name: nn.Parameter(torch.zeros(1, 1, width)) for name in tokens})
        self.pos_embed = nn.ParameterDict(
            {str(size): nn.Parameter(torch.zeros(1, 1 + math.prod(self.grids[size]), width)) for size in sizes}
        )
        self.blocks = nn.ModuleList(self._build_block(b, block) for b, block in enumerate(largest.blocks))
        self.norm = ElasticLayerNorm(width)
        self.shared = self._share_channels()
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _check_space(self) -> None:
        """Refuse spaces that are not of this family, or whose largest choices would not size the weights."""
        if len(self.space.stages) != 1:
            raise SpaceError(f'a space of ViTASDeiT should have one stage, but got {len(self.space.stages)}')
        check_ascending(self.space, 'ViTASDeiT', but=('patch_size',))
        read_vitas_deit(self.space.smallest())  # its names
        for b in range(len(self.space.stages[0].blocks)):
            check_heads(block_options(self.space, 0, b), f'stages[0].blocks[{b}]')

    def _build_block(self, b: int, choice: ViTASBlock | None) -> nn.Module:
        if choice is None:
            return nn.Identity()
        rates, last = self.settings, max(1, len(self.space.stages[0].blocks) - 1)
        size = dict(width=self.embed_dims, inner=choice.inner, drop=rates['attn_drop_rate'])
        if self.settings['official']:
            heads = block_options(self.space, 0, b)['num_heads']
            attn: Attention = OfficialAttention(**size, num_heads=heads, superformer=self.settings['superformer'])
        else:
            attn = Attention(**size)
        return Block(attn, self.embed_dims, choice.hidden_dim, rates['drop_path_rate'] * b / last, NORM_EPS)

    def _share_channels(self) -> Channels | None:
        """Let the layers share channels by the pattern; return whose channels the tokens have."""
        embed = self.pattern.channels(self.embed_dims, options_of(self.space, 0, 'embed_dim'))
        self.norm.inputs = embed
        for conv in self.patch_embed.values():
            conv.outputs = embed  # type: ignore[assignment]
        for b, block in enumerate(self.blocks):
            if isinstance(block, Block):
                options = block_options(self.space, 0, b)
                inner = [dim // 3 for dim in options['qkv_dim']]
                block.share_channels(self.pattern, embed, inner, options['hidden_dim'])
        return embed

    def _init_parameters(self) -> None:
        """As DeiT: truncated normal for linear layers, tokens and positions; torch's default for convolutions.

        The published code leaves tokens and positions at zero.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        for name in sorted(self.position_weights()):
            nn.init.trunc_normal_(self.get_parameter(name), std=0.02)

    def axes(self) -> Axes:
        """Whose channels the axes of the tokens' own weights are."""
        names = [f'cls_token.{name}' for name in self.cls_token] + [f'pos_embed.{name}' for name in self.pos_embed]
        return dict.fromkeys(names, (None, None, self.shared))

    def fixed_settings(self) -> dict[str, Any]:
        """A part of a published superformer keeps its ways."""
        return {'superformer': self.settings['superformer']} if self.settings['official'] else {}

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        network = read_vitas_deit(arch)
        if network.patch_size not in self.grids:
            offered = ', '.join(map(str, self.grids))
            raise ArchError(f'patch_size is {network.patch_size}; the weights have patches of {offered}')
        if network.embed_dim > self.embed_dims:
            raise ArchError(f'stages[0].embed_dim is {network.embed_dim}; the weights are {self.embed_dims} wide')
        if len(network.blocks) > len(self.blocks):
            raise ArchError(
                f'stages[0].blocks has {len(network.blocks)} entries; the weights have {len(self.blocks)} blocks'
            )
        for b, (choice, block) in enumerate(zip(network.blocks, self.blocks)):
            if choice is not None:
                if not isinstance(block, Block):
                    raise ArchError(f'stages[0].blocks[{b}] is there; the weights have none at this place')
                block.check_fits(f'stages[0].blocks[{b}]', choice)
                self._check_scale(f'stages[0].blocks[{b}]', choice.num_heads, network.embed_dim)

    def _check_scale(self, path: str, num_heads: int, embed_dim: int) -> None:
        """Refuse what the published scale of scores, (embed_dim // num_heads)^-½, is not defined for."""
        alone = self.settings['official'] and self.settings['superformer'] is None
        if alone and num_heads > embed_dim:
            raise ArchError(
                f'{path}.num_heads is {num_heads}; with `official` it should be at most embed_dim, {embed_dim}'
            )

    def activate(self, arch: Arch) -> None:
        """Set patches, widths and heads of the layers; see :meth:`ElasticBackbone.set_arch`."""
        network = read_vitas_deit(arch)
        self.patch_size = network.patch_size
        self.patch_embed[str(self.patch_size)].width = network.embed_dim  # type: ignore[assignment]
        for choice, block in zip(network.blocks, self.blocks):
            if choice is not None:
                block.set_choice(network.embed_dim, choice)  # type: ignore[operator]

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """One stage."""
        return (tuple(self.blocks),)

    def why_not_masked(self) -> str:
        """Always: another number of heads divides the same channels differently."""
        return 'ViTASDeiT cannot share a masked pass among architectures, whose heads divide the same channels'

    def out_channels(self, arch: Arch | None = None) -> tuple[int, ...]:
        """Channels of each output: those that are returned or, of an architecture, those that are not zero."""
        width = self.embed_dims if arch is None else read_vitas_deit(arch).embed_dim
        return (width,) * len(self.settings['out_indices'])

    def out_shared(self) -> tuple[Channels | None, ...]:
        """The tokens' channels, of every output."""
        return (self.shared,) * len(self.settings['out_indices'])

    def out_strides(self) -> tuple[int, ...]:
        """The active patch size, of every output."""
        return (self.patch_size,) * len(self.settings['out_indices'])

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one an out_index, at full width with zeros in inactive channels."""
        x, size = self.embed(x)
        last = len(self.blocks) - 1
        wanted = [index if index >= 0 else last + 1 + index for index in self.settings['out_indices']]
        outs: dict[int, Tensor] = {}
        for b, block in enumerate(self.blocks[: max(wanted) + 1]):
            x = self.pass_block(block, 0, b, x)
            if b in wanted:
                outs[b] = self._output(x, size, b == last)
        if last < 0:  # no block at all
            outs[-1] = self._output(x, size, True)
        return tuple(outs[b] for b in wanted)

    def _output(self, x: Tensor, size: tuple[int, int], last: bool) -> Tensor:
        tokens = self.norm(x) if last else x
        return format_tokens(tokens, size, self.embed_dims, self.out_type, self.shared)

    def embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, 3, H, W) → the tokens that enter the first block, (B, 1 + h·w, E), and (h, w)."""
        bottom, right = (-side % self.patch_size for side in x.shape[-2:])
        if bottom or right:
            x = F.pad(x, (0, right, 0, bottom))
        patches = self.patch_embed[str(self.patch_size)](x)
        size = (patches.shape[2], patches.shape[3])
        width = patches.shape[1]
        token = self.cls_token[SHARED if SHARED in self.cls_token else str(self.patch_size)]
        token = take_last(token, width, self.shared).expand(len(x), -1, -1)
        tokens = torch.cat([token, patches.flatten(2).transpose(1, 2)], 1)
        positions = take_last(self.pos_embed[str(self.patch_size)], width, self.shared)
        if self.last_position:
            return tokens + positions[:, -1:], size
        return tokens + resize_positions(positions, self.grids[self.patch_size], size, tokens=1), size

    def fit_positions(self, weights: dict[str, Any], prefix: str = '', img_size: tuple[int, int] | None = None) -> None:
        """Resize positions of another image size, in place.

        A size that is not known is taken to be this network's if the number of positions is, else to be square.
        """
        for patch_size, own in self.grids.items():
            name = f'{prefix}pos_embed.{patch_size}'
            stored = weights.get(name)
            if stored is None or stored.ndim != 3:
                continue
            patches = stored.shape[1] - 1
            grid = (math.isqrt(patches),) * 2 if img_size is None else token_grid(img_size, patch_size)
            if img_size is None and patches == math.prod(own):
                grid = own
            if grid != own and math.prod(grid) == patches:
                weights[name] = resize_positions(stored, grid, own, tokens=1)

    @classmethod
    def cost(
        cls,
        arch: ArchRef,
        input_size: int | tuple[int, int] = 224,
        num_classes: int = 0,
        img_size: int | tuple[int, int] = 224,
    ) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        Convolutions, linear layers and the two attention products, of all tokens. The paper's figures are by another
        count: :func:`~vitnas_core.costs.vitas_deit.published_macs`.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image. Defaults to 224.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
            img_size: Image side for which positions are stored. Defaults to 224.

        Raises:
            VitnasError: The architecture is not of this family, or a size is not a whole number above 0.
        """
        return vitas_deit_cost(zoo.load_arch(arch), input_size, num_classes, img_size)


def check_heads(options: Mapping[str, Any], path: str) -> None:
    """Check that every number of heads that a block offers divides every width that it offers.

    Raises:
        SpaceError: One does not.
    """
    for dim in options.get('qkv_dim', ()):
        odd = [heads for heads in options['num_heads'] if dim % (3 * heads)]
        if odd:
            raise SpaceError(
                f'{path}.qkv_dim offers {dim}, which {odd[0]} heads do not divide into queries, keys and values'
            )


def _fewest(stage: StageSpace) -> int:
    """How many places for blocks every architecture has: up to the last that is never absent."""
    if not stage.optional:
        return stage.depths[0]
    return 1 + max((b for b in range(len(stage.blocks)) if b not in stage.optional), default=-1)


def _superformer(settings: dict[str, Any], own: int | None) -> int | None:
    """The width of the superformer that a network keeps the ways of; None for one that stands alone.

    Args:
        settings: Those of the network, with what was given for ``superformer``.
        own: The largest width of a space, which is its own superformer; None for a fixed network.
    """
    given, official = settings['superformer'], settings['official']
    if given is not None and not official:
        raise VitnasError(f'`superformer` should be given with `official=True` alone, but got {given!r} without it')
    if given is not None and own is not None:
        raise VitnasError(
            f'`superformer` should be given with `arch`, but got {given!r} with `space`, which is one itself'
        )
    if given is not None and (type(given) is not int or given < LEAST_SUPERFORMER):
        raise VitnasError(f'`superformer` should be a whole number of at least {LEAST_SUPERFORMER}, but got {given!r}')
    if official and own is not None and own < LEAST_SUPERFORMER:
        raise SpaceError(
            f'stages[0].embed_dim of a space with `official` should offer at least {LEAST_SUPERFORMER}, but got {own}'
        )
    return own if official and own is not None else given


def _check_settings(settings: dict[str, Any], fewest: int) -> None:
    """Refuse what the layers would fail on later; ``fewest`` is the depth of the shallowest architecture."""
    if settings['out_type'] not in OUT_TYPES:
        raise VitnasError(f'`out_type` should be one of {", ".join(OUT_TYPES)}, but got {settings["out_type"]!r}')
    check_rates(settings)
    indices = settings['out_indices']
    valid = isinstance(indices, tuple) and indices and all(type(i) is int for i in indices)
    if not valid or not all(i == -1 or -fewest <= i < fewest for i in indices):
        offered = f'from {-fewest} to {fewest - 1}' if fewest else '-1'
        raise VitnasError(
            f'`out_indices` should be {offered}, as the shallowest architecture has {fewest} blocks, '
            f'but got {indices!r}'
        )
