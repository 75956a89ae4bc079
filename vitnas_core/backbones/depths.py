"""How deep the weights of a backbone lie, for learning rates that differ by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from .base import ElasticBackbone


def layer_depths(backbone: ElasticBackbone) -> tuple[dict[str, int], int]:
    """The depth of each weight, by name, and the number of depths.

    0 lies before the first block, then each block has a depth of its own, and one more lies behind the last, which is
    counted also where nothing is there. What lies between two blocks, such as the merging of patches, counts to the one
    behind it.
    """
    names = {id(module): name for name, module in backbone.named_modules()}
    blocks = [f'{names[id(block)]}.' for blocks in backbone.stage_blocks() for block in blocks]
    depths, last = {}, 0
    waiting: list[str] = []
    for name, _ in backbone.named_parameters():
        found = next((i for i, block in enumerate(blocks, 1) if name.startswith(block)), None)
        if found is None:
            waiting.append(name)
            continue
        depths.update(dict.fromkeys(waiting, 0 if last == 0 else found))
        waiting, last = [], found
        depths[name] = found
    depths.update({name: len(blocks) + 1 for name in waiting})
    return depths, len(blocks) + 2


def position_weights(backbone: nn.Module) -> set[str]:
    """Names of tokens, position tables and scaling vectors: what is in no linear layer, convolution or norm."""
    layers = (nn.Linear, nn.Conv2d, nn.LayerNorm, _BatchNorm)
    known = {
        id(parameter)
        for module in backbone.modules()
        if isinstance(module, layers)
        for parameter in module.parameters(recurse=False)
    }
    return {name for name, parameter in backbone.named_parameters() if id(parameter) not in known}
