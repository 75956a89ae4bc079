"""ViTAS on the DeiT space: a plain vision transformer, elastic in patches, widths, heads, depth (Su et al., 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from ...backbones.base import ElasticBackbone
from ...backbones.depths import position_weights
from ...backbones.module import ArchRef, SpaceRef
from ...backbones.staged import drop_path_rates
from ...backbones.tokens import as_tokens, format_tokens
from ...costs.algebra import grid
from ...elastic import Axis, ElasticConv2d, ElasticLayerNorm, PositionTable, pad_to, resize_positions, table
from ...errors import ArchError, SpaceError, VitnasError
from ...registry import MODELS
from ...spaces import ChoiceSpace
from ...utils import checks
from .arch import DEIT, DeiTChoices, deit_cost
from .layers import Heads, OfficialAttention, ViTASAttention, ViTASBlock

NORM_EPS = 1e-6
"""Added to the variance in the norms of blocks; the last norm adds torch's default."""
SHARED = 'all'
"""Name of the class token that all patch sizes share."""
LEAST_SUPERFORMER = 3
"""Least width of a published superformer; a third of its width scales scores."""


@MODELS.register_module()
class ViTASDeiT(ElasticBackbone):
    """ViTAS's DeiT space, elastic (``space=``) or fixed (``arch=``).

    Every patch size has its own convolution, positions and, by default, class token. Images of any size work: sides are
    padded to the patch size with zeros, and positions are interpolated.

    Args:
        arch: A fixed architecture: a zoo name (``'vitas-deit-b'``), a file, or the data.
        space: A search space, likewise. Give exactly one of the two.
        img_size: Image side of the stored positions. Defaults to 224.
        sharing: Sharing pattern of channels in narrower architectures: ``'ordinal'``, the first ones; ``'bilateral'``,
            from both ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to ``'cyclic'``.
        private_token: Whether each patch size has its own class token (Tab. 10). Defaults to True.
        out_indices: Indices of the output blocks, counted with absent ones; negative ones count from the last. The
            final norm is applied after the last block only. Blocks behind the last output do not run. Defaults to
            (-1,).
        out_type: ``'featmap'`` (B, C, H, W), ``'avg_featmap'`` (B, C), ``'cls_token'`` (B, C), which the paper's
            classifiers read, or ``'raw'`` (B, 1 + H·W, C). Defaults to ``'featmap'``.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block; rises linearly from 0 at the first. Defaults to 0.
        official: Whether to work as ViTAS's code does; its weights need this. Each number of heads then has its own
            queries and keys, cut as one. Scores are scaled by another width than a head's. In a superformer, every
            token gets the last position. Defaults to False.
        superformer: Width of the superformer that a fixed network with ``official`` belongs to and whose computation it
            keeps; ``extract`` sets it. Defaults to None: the network stands alone.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: An argument is invalid, or the space is not of this family.
    """

    schema = DEIT
    cost_of = staticmethod(deit_cost)
    weight_settings = ('private_token', 'official', 'superformer')
    resolved_settings = ('superformer',)
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
        super().__init__(locals())
        (self.stage,) = self.space.stages
        widths, sizes = self.stage.choices.values_of('embed_dim'), self.space.choices.values_of('patch_size')
        self._check_outputs()
        self.settings['superformer'] = self._superformer(widths[-1] if arch is None else None)
        self.out_type = out_type
        self.last_position = official and self.settings['superformer'] is not None
        """True if every token gets the last position, as in the published superformer."""
        self.grids = {size: grid(self.settings['img_size'], size) for size in sizes}
        self.embed_axis = embed = self.axis(widths)
        self.patch_embed = nn.ModuleDict({str(size): ElasticConv2d(3, embed, size, size) for size in sizes})
        tokens = map(str, sizes) if private_token else [SHARED]
        self.cls_token = nn.ParameterDict({name: table(1, 1, embed) for name in tokens})
        self.pos_embed = nn.ParameterDict(
            {str(size): table(1, 1 + math.prod(self.grids[size]), embed) for size in sizes}
        )
        (rates,) = drop_path_rates(drop_path_rate, [len(self.stage.blocks)])
        self.blocks = nn.ModuleList(
            nn.Identity() if choices is None else self._build_block(choices, rate)
            for choices, rate in zip(self.stage.blocks, rates)
        )
        self.norm = ElasticLayerNorm(embed)
        names = [f'cls_token.{name}' for name in self.cls_token] + [f'pos_embed.{name}' for name in self.pos_embed]
        self.axes = dict.fromkeys(names, (None, None, embed))
        for size, own in self.grids.items():
            self.positions[f'pos_embed.{size}'] = PositionTable(own, partial(grid, patch_size=size), tokens=1)
        self.set_outputs([embed] * len(self.settings['out_indices']), ())
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_block(self, choices: ChoiceSpace, rate: float) -> ViTASBlock:
        dims, hidden = choices.values_of('qkv_dim'), choices.values_of('hidden_dim')
        inner, drop = self.axis(dim // 3 for dim in dims), self.settings['attn_drop_rate']
        if self.settings['official']:
            joint = self.axis(2 * (dim // 3) for dim in dims)
            heads, superformer = choices.values_of('num_heads'), self.settings['superformer']
            attn: Heads | OfficialAttention = OfficialAttention(self.embed_axis, inner, joint, drop, heads, superformer)
        else:
            attn = ViTASAttention(self.embed_axis, inner, drop)
        return ViTASBlock(attn, self.embed_axis, self.axis(hidden, sortable=True), rate, NORM_EPS)

    def _init_parameters(self) -> None:
        """Initialise as DeiT: linear layers, tokens and positions truncated normal, convolutions as torch does.

        The published code leaves tokens and positions at zero.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        positions = position_weights(self)
        for name, parameter in self.named_parameters():  # in this order; a set has none
            if name in positions:
                nn.init.trunc_normal_(parameter, std=0.02)

    def _check_outputs(self) -> None:
        """Refuse ``out_indices`` that not every architecture has."""
        fewest = self.stage.depths[0]
        if self.stage.optional:  # up to the last block that is never absent
            fewest = 1 + max((b for b in range(len(self.stage.blocks)) if b not in self.stage.optional), default=-1)
        indices = self.settings['out_indices']
        valid = isinstance(indices, tuple) and indices and all(type(i) is int for i in indices)
        if not valid or not all(i == -1 or -fewest <= i < fewest for i in indices):
            offered = f'from {-fewest} to {fewest - 1}' if fewest else '-1'
            raise VitnasError(
                f'`out_indices` should be {offered}, as the shallowest architecture has {fewest} blocks, '
                f'but got {indices!r}'
            )

    def _superformer(self, own: int | None) -> int | None:
        """Return the width of the superformer whose computation a network keeps; None for a network that stands alone.

        Args:
            own: Largest width of a space, which is its own superformer; None for a fixed network.
        """
        given, official = self.settings['superformer'], self.settings['official']
        if given is not None and not official:
            raise VitnasError(f'`superformer` should be given with `official=True` alone, but got {given!r} without it')
        if given is not None and own is not None:
            raise VitnasError(
                f'`superformer` should be given with `arch`, but got {given!r} with `space`, which is one itself'
            )
        if given is not None:
            checks.whole('superformer', given, LEAST_SUPERFORMER)
        if official and own is not None and own < LEAST_SUPERFORMER:
            raise SpaceError(
                f'stages[0].embed_dim of a space with `official` should offer at least {LEAST_SUPERFORMER}, but got '
                f'{own}'
            )
        return own if official and own is not None else given

    @property
    def embed_dims(self) -> int:
        """Width of the weights."""
        return self.embed_axis.most

    def check_weights(self, network: DeiTChoices) -> None:
        """With ``official``, refuse heads without queries, and those for which its scale of scores is not defined."""
        if not self.settings['official']:
            return
        (stage,) = network.stages
        for b, (choices, block) in enumerate(zip(stage.blocks, self.blocks)):
            if choices is None:
                continue
            path = f'stages[0].blocks[{b}]'
            cast('OfficialAttention', block.get_submodule('attn')).check_heads(path, choices.num_heads)
            if self.settings['superformer'] is None and choices.num_heads > stage.embed_dim:
                raise ArchError(
                    f'{path}.num_heads is {choices.num_heads}; with `official` it should be at most embed_dim, '
                    f'{stage.embed_dim}'
                )

    def widths(self, network: DeiTChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of the tokens, and the axes of each block."""
        (stage,) = network.stages
        yield self.embed_axis, stage.embed_dim
        for choices, block in zip(stage.blocks, self.blocks):
            if choices is not None:
                yield from cast('ViTASBlock', block).widths(choices)

    def stage_blocks(self) -> tuple[tuple[nn.Module, ...], ...]:
        """The blocks of the only stage."""
        return (tuple(self.blocks),)

    def why_not_masked(self) -> str:
        """Return the reason, always the same: another number of heads divides the same channels differently."""
        return (
            'ViTASDeiT cannot run several architectures in a masked pass, because their heads divide the same channels'
        )

    def out_strides(self) -> tuple[int, ...]:
        """Return the active patch size for every output."""
        return (self.active.network.patch_size,) * len(self.settings['out_indices'])

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features, at full width with zeros in inactive channels."""
        x, size = self.embed(x)
        last = len(self.blocks) - 1
        wanted = [index if index >= 0 else last + 1 + index for index in self.settings['out_indices']]
        outs: dict[int, Tensor] = {}
        for b, block in enumerate(self.blocks[: max(wanted) + 1]):
            x = self.active.pass_block(block, 0, b, x, self.active.value(0, b, 'num_heads'))
            if b in wanted:
                outs[b] = self._output(x, size, b == last)
        if last < 0:  # no blocks
            outs[-1] = self._output(x, size, True)
        return tuple(outs[b] for b in wanted)

    def _output(self, x: Tensor, size: tuple[int, int], last: bool) -> Tensor:
        return format_tokens(self.norm(x) if last else x, size, self.embed_axis, self.out_type)

    def embed(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, 3, H, W) → the tokens that enter the first block, (B, 1 + h·w, E), and (h, w)."""
        patch_size = self.active.network.patch_size
        patches = self.patch_embed[str(patch_size)](pad_to(x, patch_size))
        size, width = (patches.shape[2], patches.shape[3]), patches.shape[1]
        token = self.embed_axis.take(self.cls_token[SHARED if SHARED in self.cls_token else str(patch_size)], width)
        tokens = torch.cat([token.expand(len(x), -1, -1), as_tokens(patches)], 1)
        positions = self.embed_axis.take(self.pos_embed[str(patch_size)], width)
        if self.last_position:
            return tokens + positions[:, -1:], size
        return tokens + resize_positions(positions, self.grids[patch_size], size, tokens=1), size
