"""S3: a four-stage transformer with shifted windows, elastic in every dimension of its paper (Chen et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .. import zoo
from ..costs import Cost, as_size
from ..costs.reading import check_out_indices, stage_maps
from ..costs.s3 import HEAD_DIM, S3Block, S3Stage, read_s3, s3_cost
from ..elastic import Channels, RelativeBias, SwitchableScale, WindowTables, pad_channels
from ..errors import ArchError, SpaceError, VitnasError
from ..registry import MODELS
from ..spaces import Arch, SearchSpace
from .base import ArchRef, SpaceRef, check_ascending, check_rates, check_stages, options_of
from .mixed import Sharing
from .s3_layers import Block, PatchEmbedding, PatchMerging, Stage
from .staged import StagedBackbone

BIASES = ('shared', 'per-window')
"""What ``bias`` of an S3 may be."""


@MODELS.register_module()
class S3(StagedBackbone):
    """S3 (AutoFormerV2), elastic (``space=``) or fixed (``arch=``).

    Any image size: sides are padded to the patch size with zeros, maps to whole windows with tokens that nothing
    attends to, and to even sides before they are merged. A window that is larger than its map is clamped to it.

    Args:
        arch: A fixed architecture: a zoo name (``'s3-t'``), a file, or the data.
        space: A search space, likewise. Exactly one of the two is given.
        img_size: Image side for which bias tables are stored: a window that is larger than its map there is clamped
            for good, as in the published networks. Defaults to 224.
        patch_size: Side of a patch. Defaults to 4.
        bias: ``'shared'``: the bias table of a block's largest window serves its smaller ones by its centre; or
            ``'per-window'``: a table a window size. The paper does not say; shared is the entanglement of weights that
            it takes over from AutoFormer, and lets every step train what all windows use. Defaults to ``'shared'``.
        out_indices: After which stages features are returned, each behind a norm of its own; negative ones count
            from the last. Stages behind the last of them do not run. Defaults to (-1,).
        scaling: Whether branches are scaled by vectors that architectures of other widths do not share (NASViT,
            Sec. 3). Defaults to False.
        sharing: Which channels, heads and hidden units narrower architectures use: ``'ordinal'``, the first ones;
            ``'bilateral'``, from both ends, trained twice; or ``'cyclic'`` (ViTAS, Sec. 4). Defaults to ``'ordinal'``.
        attn_drop_rate: Dropout of attention weights. Defaults to 0.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0 at the first. Defaults to 0.
        init_cfg: As everywhere in mm. Defaults to None.

    Raises:
        VitnasError: An argument is none of the above, or the space is not S3's.
    """

    family = 's3'
    cost_settings = ('img_size', 'patch_size', 'out_indices', 'scaling')
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
        settings: dict[str, Any] = dict(
            img_size=as_size('img_size', img_size),
            patch_size=patch_size,
            bias=bias,
            out_indices=tuple(out_indices) if isinstance(out_indices, (list, tuple)) else out_indices,
            scaling=scaling,
            sharing=sharing,
            attn_drop_rate=attn_drop_rate,
            drop_path_rate=drop_path_rate,
        )
        super().__init__(arch, space, settings, init_cfg)
        largest = _maxima(self.space)
        _check_settings(settings, len(largest))
        self._sides = [min(size) for size in stage_maps(settings['img_size'], patch_size, len(largest))]
        self.stride, self.embed_dims = patch_size, tuple(stage.embed_dim for stage in largest)
        self.patch_embed = PatchEmbedding(self.embed_dims[0], patch_size)
        self.stages = nn.ModuleList(self._build_stage(s, largest) for s in range(len(largest)))
        self.add_norms()
        self.shared = tuple(self._share_channels(s) for s in range(len(largest)))
        self._init_parameters()
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int, largest: Sequence[S3Stage]) -> Stage:
        """The modules of a stage; rates of stochastic depth rise over the blocks of all stages."""
        first, last = sum(len(stage.blocks) for stage in largest[:s]), sum(len(stage.blocks) for stage in largest) - 1
        width = largest[s].embed_dim
        blocks = [
            Block(
                width=width,
                hidden=int(width * block.mlp_ratio),
                drop_path=self.settings['drop_path_rate'] * (first + b) / max(1, last),
                widths=options_of(self.space, s, 'embed_dim') if self.settings['scaling'] else None,
                num_heads=block.num_heads,
                sizes=self._table_sizes(s, b),
                shifted=b % 2 == 1,
                shared=self.settings['bias'] == 'shared',
                drop=self.settings['attn_drop_rate'],
            )
            for b, block in enumerate(largest[s].blocks)
        ]
        return Stage(PatchMerging(self.embed_dims[s - 1], width) if s else None, blocks)

    def _share_channels(self, s: int) -> Channels | None:
        """Let the layers of a stage share channels by the pattern; return whose channels its tokens have."""
        widths = options_of(self.space, s, 'embed_dim')
        embed, stage = self.pattern.channels(self.embed_dims[s], widths), self._stages[s]
        if stage.merging is None:
            self.patch_embed.proj.outputs = self.patch_embed.norm.inputs = embed
        else:
            stage.merging.reduction.outputs = embed
        if s + 1 < len(self.stages) and embed is not None:
            following = self._stages[s + 1].merging
            following.norm.inputs = following.reduction.inputs = embed.times(4)  # type: ignore[union-attr]
        if s in self.outs:
            self.out_norm(s).inputs = embed
        for choices, block in zip(self.space.stages[s].blocks, stage.blocks):
            options = dict(choices.options)  # type: ignore[union-attr]
            hidden = [int(width * ratio) for width in widths for ratio in options['mlp_ratio']]
            block.share_channels(  # type: ignore[operator]
                embed,
                self.pattern.channels(max(options['num_heads']), options['num_heads']),
                self.pattern.channels(max(hidden), hidden),
            )
        return embed

    def _table_sizes(self, stage: int, block: int) -> list[int]:
        """Window sizes of a block that need a table."""
        choices = self.space.stages[stage].blocks[block]
        assert choices is not None
        sizes = {min(int(size), self._sides[stage]) for size in dict(choices.options)['window_size']}
        return [max(sizes)] if self.settings['bias'] == 'shared' else sorted(sizes)

    @property
    def _stages(self) -> list[Stage]:
        return list(self.stages)  # type: ignore[arg-type]

    def _init_parameters(self) -> None:
        """As published: truncated normal for linear layers and tables; torch's default for the convolution."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, RelativeBias):
                for table in module.tables.values():
                    nn.init.trunc_normal_(table, std=0.02)

    def check_fits(self, arch: Arch) -> None:
        """Check that the weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        stages = read_s3(arch)
        check_stages(
            [(stage.embed_dim, len(stage.blocks)) for stage in stages],
            [(width, len(stage.blocks)) for width, stage in zip(self.embed_dims, self._stages)],
        )
        for s, (stage, ours) in enumerate(zip(stages, self._stages)):
            for b, (choice, block) in enumerate(zip(stage.blocks, ours.blocks)):
                _check_block(f'stages[{s}].blocks[{b}]', stage.embed_dim, choice, block, self._sides[s])  # type: ignore[arg-type]

    def activate(self, arch: Arch) -> None:
        """Set the widths and windows of the layers; see :meth:`ElasticBackbone.set_arch`."""
        for s, (stage, ours) in enumerate(zip(read_s3(arch), self._stages)):
            layer = self.patch_embed.proj if ours.merging is None else ours.merging.reduction
            layer.width = stage.embed_dim
            for choice, block in zip(stage.blocks, ours.blocks):
                block.set_choice(stage.embed_dim, choice, self._sides[s])  # type: ignore[operator]

    def input_widths(self, arch: Arch) -> dict[nn.Module, int]:
        """Channels that norms and linear layers get of an architecture."""
        widths: dict[nn.Module, int] = {}
        stages = read_s3(arch)
        for s, (stage, ours) in enumerate(zip(stages, self._stages)):
            if ours.merging is None:
                widths[self.patch_embed.norm] = stage.embed_dim
            else:
                widths[ours.merging.norm] = 4 * stages[s - 1].embed_dim
            for choice, block in zip(stage.blocks, ours.blocks):
                widths |= block.input_widths(stage.embed_dim, choice)  # type: ignore[operator]
            if s in self.outs:
                widths[self.out_norm(s)] = stage.embed_dim
        return widths

    def why_not_masked(self) -> str:
        """Scaling vectors, of which each width has its own, and channels that are not the first ones."""
        for name, value in dict(scaling=False, sharing='ordinal').items():
            if self.settings[name] != value:
                return f'S3 cannot share a masked pass among architectures with {name}={self.settings[name]!r}'
        return ''

    def share(self, sharing: Sharing) -> None:
        """Set the windows of each sample."""
        stages = [read_s3(arch) for arch in sharing.archs]
        for s, ours in enumerate(self._stages):
            for b, block in enumerate(ours.blocks):
                sizes = [stage[s].blocks[b].window_size if b < len(stage[s].blocks) else 0 for stage in stages]
                # A sample that lacks the block goes along with one that has it.
                block.attn.share([min(size or max(sizes), self._sides[s]) for size in sizes], sharing)  # type: ignore[union-attr, operator]

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features of (B, 3, H, W), one an out_index, at full width with zeros in inactive channels."""
        x, common = self.patch_embed(x), WindowTables(x.device)
        outs: dict[int, Tensor] = {}
        for s, stage in enumerate(self._stages[: max(self.outs) + 1]):
            if stage.merging is not None:
                x = stage.merging(x)
            for b, block in enumerate(stage.blocks):
                x = self.pass_block(block, s, b, x, common)
            if s in self.outs:
                features = self.out_norm(s)(x).permute(0, 3, 1, 2)
                outs[s] = pad_channels(features, self.embed_dims[s], 1, self.shared[s]).contiguous()
        return tuple(outs[s] for s in self.outs)

    @classmethod
    def cost(
        cls,
        arch: ArchRef,
        input_size: int | tuple[int, int] = 224,
        num_classes: int = 0,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        out_indices: tuple[int, ...] = (-1,),
        scaling: bool = False,
    ) -> Cost:
        """Parameters and multiply-accumulates of an architecture, without building it.

        The convention that fits the paper's figures best: convolutions, linear layers and the two attention
        products; tokens that pad a map to whole windows count where they are computed.

        Args:
            arch: The architecture.
            input_size: Side, or (height, width), of the image. Defaults to 224.
            num_classes: Classes of a linear head that is counted too. Defaults to 0: none.
            img_size: Image side for which bias tables are stored. Defaults to 224.
            patch_size: Side of a patch. Defaults to 4.
            out_indices: After which stages there is a norm; stages behind them are not run. Defaults to (-1,).
            scaling: Whether branches are scaled. Defaults to False.

        Raises:
            VitnasError: The architecture is not S3's, or a size is not a whole number above 0.
        """
        return s3_cost(zoo.load_arch(arch), input_size, num_classes, img_size, patch_size, out_indices, scaling)


def _check_block(path: str, width: int, choice: S3Block, block: Block, side: int) -> None:
    """Check that a block's weights can run its choices."""
    attn = block.attn
    SwitchableScale.check(block.scale_mlp, f'{path.partition(".")[0]}.embed_dim', width)
    if HEAD_DIM * choice.num_heads > attn.proj.in_features:
        raise ArchError(f'{path}.num_heads is {choice.num_heads}; the weights have {attn.proj.in_features // HEAD_DIM}')
    if int(width * choice.mlp_ratio) > block.fc1.out_features:
        raise ArchError(
            f'{path}.mlp_ratio is {choice.mlp_ratio}, {int(width * choice.mlp_ratio)} hidden units; '
            f'the weights have {block.fc1.out_features}'
        )
    if not attn.bias.serves(min(choice.window_size, side)):
        raise ArchError(f'{path}.window_size is {choice.window_size}; the weights have {attn.bias.offers}')


def _check_settings(settings: dict[str, Any], stages: int) -> None:
    """Refuse what the layers would fail on later."""
    if settings['bias'] not in BIASES:
        raise VitnasError(f'`bias` should be one of {", ".join(BIASES)}, but got {settings["bias"]!r}')
    if type(settings['patch_size']) is not int or settings['patch_size'] < 1:
        raise VitnasError(f'`patch_size` should be a whole number of at least 1, but got {settings["patch_size"]!r}')
    check_rates(settings)
    check_out_indices(settings['out_indices'], stages)


def _maxima(space: SearchSpace) -> tuple[S3Stage, ...]:
    """The largest choice of everything.

    Raises:
        VitnasError: The space is not S3's.
    """
    if any(stage.optional for stage in space.stages):
        raise VitnasError('a space of S3 should have stages in which only last blocks are absent')
    check_ascending(space, 'S3')
    for choices in (c for stage in space.stages for c in (stage.choices, *stage.blocks) if c is not None):
        for name, options in choices.options:
            if name != 'mlp_ratio' and any(option != int(option) for option in options):
                raise SpaceError(f'{name} of an S3 space should list whole numbers, but got {list(options)}')
    read_s3(space.smallest())  # its names, and that every stage has a block
    return read_s3(space.largest())
