"""Depths of a backbone's weights, for layer-wise learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from .base import ElasticBackbone


def layer_depths(backbone: ElasticBackbone) -> tuple[dict[str, int], int]:
    """Return the depth of each weight, by name, and the number of depths.

    Depth 0 is everything before the first block. Each block has its own depth. Everything behind the last block has one
    more, which is counted even if nothing is there. Weights between two blocks, such as the merging of patches, belong
    to the second one.
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
    """Names of tokens, position tables and scaling vectors: weights outside linear layers, convolutions and norms."""
    layers = (nn.Linear, nn.Conv2d, nn.LayerNorm, _BatchNorm)
    known = {
        id(parameter)
        for module in backbone.modules()
        if isinstance(module, layers)
        for parameter in module.parameters(recurse=False)
    }
    return {name for name, parameter in backbone.named_parameters() if id(parameter) not in known}
