"""ToyMixer: stages of blocks that mix first the tokens of a window, then the channels of a token."""

from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor, nn

from vitnas_core.backbones import StagedBackbone
from vitnas_core.elastic import Axis, DropPath, ElasticConv2d, ElasticLayerNorm, ElasticLinear, pad_to
from vitnas_core.registry import MODELS
from vitnas_core.spaces.records import NetworkRecord

from .arch import PATCH, SCHEMA, WINDOW, cost, units


class Downsampling(nn.Module):
    """Turn each cell of side × side pixels, or of tokens of the stage before, into one token."""

    def __init__(self, inputs: int | Axis, embed: Axis, side: int) -> None:
        super().__init__()
        self.norm = ElasticLayerNorm(inputs) if isinstance(inputs, Axis) else nn.Identity()
        self.proj = ElasticConv2d(inputs, embed, side, stride=side)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) → (B, H / side, W / side, E)."""
        maps = pad_to(self.norm(x).permute(0, 3, 1, 2), self.proj.stride[0])
        return self.proj(maps).permute(0, 2, 3, 1)


class Block(nn.Module):
    """Two MLPs with residuals: across the tokens of a window, and across the channels of a token."""

    def __init__(self, embed: Axis, tokens: Axis, hidden: Axis, drop_path: float) -> None:
        super().__init__()
        self.tokens, self.hidden = tokens, hidden
        self.norm1 = ElasticLayerNorm(embed)
        self.mix1 = ElasticLinear(WINDOW * WINDOW, tokens)
        self.mix2 = ElasticLinear(tokens, WINDOW * WINDOW)
        self.norm2 = ElasticLayerNorm(embed)
        self.fc1 = ElasticLinear(embed, hidden, normed=True)
        self.fc2 = ElasticLinear(hidden, embed)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, E) → (B, H, W, E)."""
        maps = pad_to(self.norm1(x).permute(0, 3, 1, 2), WINDOW)
        cells = maps.unflatten(3, (-1, WINDOW)).unflatten(2, (-1, WINDOW)).permute(0, 2, 4, 1, 3, 5)
        mixed = self.mix2(F.gelu(self.mix1(cells.flatten(4)))).view(cells.shape)  # (B, rows, columns, E, side, side)
        tokens = mixed.permute(0, 1, 4, 2, 5, 3).flatten(3, 4).flatten(1, 2)
        x = x + self.drop_path(tokens[:, : x.shape[1], : x.shape[2]])
        return x + self.drop_path(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


@MODELS.register_module()
class ToyMixer(StagedBackbone):
    """ToyMixer, elastic (``space=``) or fixed (``arch=``), for images of any size."""

    schema = SCHEMA
    cost_of = staticmethod(cost)

    def __init__(self, arch=None, space=None, out_indices=(-1,), drop_path_rate=0.0, init_cfg=None) -> None:
        super().__init__(locals())
        self.stages = nn.ModuleList(self._build_stage(s) for s in range(len(self.embeds)))
        self.add_norms(PATCH)
        self.set_arch(self.space.largest())

    def _build_stage(self, s: int) -> nn.ModuleDict:
        embed, stage, blocks = self.embeds[s], self.space.stages[s], nn.ModuleList()
        entry = Downsampling(self.embeds[s - 1], embed, 2) if s else Downsampling(3, embed, PATCH)
        for choices, rate in zip(stage.blocks, self.drop_path_rates()[s]):
            tokens = self.axis(choices.values_of('token_dim'), sortable=True)
            hidden = [units(w, r) for w in stage.choices.values_of('embed_dim') for r in choices.values_of('mlp_ratio')]
            blocks.append(Block(embed, tokens, self.axis(hidden, sortable=True), rate))
        return nn.ModuleDict(dict(entry=entry, blocks=blocks))

    def widths(self, network: NetworkRecord) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of each stage, and the axes of each block's hidden units."""
        for stage, embed, blocks in zip(network.stages, self.embeds, self.stage_blocks()):
            yield embed, stage.embed_dim
            for choices, block in zip(stage.blocks, blocks):
                yield block.tokens, choices.token_dim
                yield block.hidden, units(stage.embed_dim, choices.mlp_ratio)

    def run(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B, 3, H, W) → features of each output, (B, C, H / stride, W / stride)."""
        x, outs = x.permute(0, 2, 3, 1), {}
        for s, stage in enumerate(self.stages[: max(self.outs) + 1]):
            x = stage['entry'](x)
            for b, block in enumerate(stage['blocks']):
                x = self.active.pass_block(block, s, b, x)
            if s in self.outs:
                outs[s] = self.output(s, x)
        return tuple(outs[s] for s in self.outs)
