"""ToyMixer's choices and the cost of its networks."""

from dataclasses import dataclass

from vitnas_core.costs.algebra import Count, add, conv, linear, norm, padded_tokens, per_block, stage_maps, total
from vitnas_core.spaces.records import NetworkRecord, Record, StageRecord, ratio, units, whole
from vitnas_core.spaces.schema import Schema
from vitnas_core.utils.checks import stage_indices

PATCH = 4  # side of a patch, which is the stride of the first stage
WINDOW = 4  # side of the windows in which tokens mix


@dataclass(frozen=True, eq=False)
class BlockChoices(Record):
    """Choices of a block: hidden units of the MLP across tokens, and ratio of those of the MLP across channels."""

    token_dim: int = whole()
    mlp_ratio: float = ratio('embed_dim')


@dataclass(frozen=True, eq=False)
class StageChoices(StageRecord):
    """Choices of a stage."""

    embed_dim: int = whole()


SCHEMA = Schema('toy_mixer', 'ToyMixer', stage=StageChoices, block=BlockChoices)


def cost(network: NetworkRecord, size: tuple[int, int], num_classes: int, *, out_indices: tuple[int, ...]) -> Count:
    """Count convolutions and linear layers up to the last output, in the order of the forward pass."""
    stages, before, counted = network.stages, 0, []
    outs = [index % len(stages) for index in stage_indices('out_indices', out_indices, len(stages))]
    for s, (stage, (rows, columns)) in enumerate(zip(stages, stage_maps(size, PATCH, len(stages)))):
        width, tokens = stage.embed_dim, rows * columns
        entry = [norm(before), conv(before, width, 2, tokens)] if s else [conv(3, width, PATCH, tokens)]
        blocks = block_costs(stage.blocks, width, (rows, columns))
        counted.append([*entry, *blocks, *[norm(width)] * (s in outs)])
        before = width
    return total(counted, max(outs), stages[outs[-1]].embed_dim, num_classes)


@per_block
def block_costs(block: BlockChoices, width: int, size: tuple[int, int]) -> Count:
    """Count a block on a map; for the mixing of tokens, the map is padded to whole windows."""
    hidden, tokens, cells = units(width, block.mlp_ratio), size[0] * size[1], WINDOW * WINDOW
    rows = width * padded_tokens(size, WINDOW) // cells  # one per channel and window
    across_tokens = add(linear(cells, block.token_dim, rows), linear(block.token_dim, cells, rows))
    across_channels = add(linear(width, hidden, tokens), linear(hidden, width, tokens))
    return add(norm(width), across_tokens, norm(width), across_channels)
