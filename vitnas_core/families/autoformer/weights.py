"""Conversion of AutoFormer's weights between the published layout and ours, bit for bit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ... import zoo
from ...backbones.foreign import axis_size, by_head, check_shapes, classifier_shapes, count_numbered
from ...backbones.pretrained import cut_to_shape
from ...errors import CheckpointError
from ...spaces import SearchSpace
from .arch import HEAD_DIM, SCHEMA
from .backbone import AutoFormer

# Official name → ours; inside a block, `blocks.{i}.` precedes both.
_OUTSIDE = {
    'cls_token': 'backbone.cls_token',
    'pos_embed': 'backbone.pos_embed',
    'patch_embed_super.proj.weight': 'backbone.patch_embed.weight',
    'patch_embed_super.proj.bias': 'backbone.patch_embed.bias',
    'norm.weight': 'backbone.norm.weight',
    'norm.bias': 'backbone.norm.bias',
    'head.weight': 'head.fc.weight',
    'head.bias': 'head.fc.bias',
}
_BLOCK = {
    'attn.qkv.weight': 'attn.qkv.weight',
    'attn.qkv.bias': 'attn.qkv.bias',
    'attn.rel_pos_embed_k.embeddings_table_v': 'attn.relative.key_vertical',
    'attn.rel_pos_embed_k.embeddings_table_h': 'attn.relative.key_horizontal',
    'attn.rel_pos_embed_v.embeddings_table_v': 'attn.relative.value_vertical',
    'attn.rel_pos_embed_v.embeddings_table_h': 'attn.relative.value_horizontal',
    'attn.proj.weight': 'attn.proj.weight',
    'attn.proj.bias': 'attn.proj.bias',
    'attn_layer_norm.weight': 'norm1.weight',
    'attn_layer_norm.bias': 'norm1.bias',
    'ffn_layer_norm.weight': 'norm2.weight',
    'ffn_layer_norm.bias': 'norm2.bias',
    'fc1.weight': 'fc1.weight',
    'fc1.bias': 'fc1.bias',
    'fc2.weight': 'fc2.weight',
    'fc2.bias': 'fc2.bias',
}
# Ours → the least number of axes, for tensors whose shapes give the sizes of a network.
_NEEDED = {
    'backbone.cls_token': 2,
    'backbone.patch_embed.weight': 2,
    'backbone.blocks.0.attn.qkv.weight': 2,
    'backbone.norm.weight': 1,
}


def our_name(name: str) -> str | None:
    """Return our name of an official tensor, or None if there is none."""
    match = re.fullmatch(r'blocks\.(\d+)\.(.+)', name)
    if match is None:
        return _OUTSIDE.get(name)
    return f'backbone.blocks.{match[1]}.{_BLOCK[match[2]]}' if match[2] in _BLOCK else None


def official_name(name: str) -> str | None:
    """Return the official name of one of our tensors, or None if there is none."""
    match = re.fullmatch(r'backbone\.blocks\.(\d+)\.(.+)', name)
    names = {ours: theirs for theirs, ours in (_OUTSIDE if match is None else _BLOCK).items()}
    if match is None:
        return names.get(name)
    return f'blocks.{match[1]}.{names[match[2]]}' if match[2] in names else None


def to_vitnas(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the published layout to ours: rename tensors, and reorder the rows of qkv weights.

    Official rows alternate q, k, v, q, k, v, …; ours keep the rows of a head together. The qkv bias stays as it is,
    because ``official=True`` cuts it as the published code does.

    Args:
        official: Weights of a published supernet.

    Raises:
        CheckpointError: The weights are no AutoFormer of the published layout.
    """
    converted = {}
    for name, tensor in official.items():
        ours = our_name(name)
        if ours is None:
            raise CheckpointError(f'not an official AutoFormer checkpoint: {name} is not one of its tensors')
        if name.endswith('attn.qkv.weight'):
            _check_heads(name, tensor)
            tensor = tensor.unflatten(0, (-1, HEAD_DIM, 3)).transpose(1, 2).flatten(0, 2)
        converted[ours] = tensor.contiguous()
    _check_needed(converted, 'an official AutoFormer checkpoint', official_name)
    return converted


def to_official(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inverse of :func:`to_vitnas`.

    The qkv bias is written as it is stored. This is correct only for networks with ``official=True``.

    Raises:
        CheckpointError: The weights are no AutoFormer of ours, or one with conditional positions.
    """
    converted = {}
    for name, tensor in state.items():
        theirs = official_name(name)
        if name.startswith('backbone.peg.'):
            raise CheckpointError(
                f'{name} belongs to conditional positions, for which the published layout has no place; '
                f'only networks of position="absolute" or "none" can be written in it'
            )
        if theirs is None:
            raise CheckpointError(f'not a vitnas AutoFormer checkpoint: {name} is not one of its tensors')
        if theirs.endswith('attn.qkv.weight'):
            _check_heads(name, tensor)
            tensor = tensor.unflatten(0, (-1, 3, HEAD_DIM)).transpose(1, 2).flatten(0, 2)
        converted[theirs] = tensor.contiguous()
    _check_needed(state, 'a vitnas AutoFormer checkpoint', str)
    return converted


def find_space(state: Mapping[str, Tensor], name: str | None = None) -> SearchSpace:
    """Find the space of a supernet in our layout.

    Args:
        state: The supernet.
        name: Zoo name or file of the space that it should have. Defaults to None: the first one of the zoo that fits.

    Raises:
        CheckpointError: The supernet has another size.
    """
    width = axis_size(state, 'backbone.cls_token', -1)
    depth = count_numbered(r'backbone\.blocks\.(\d+)\.', state)
    heads = axis_size(state, 'backbone.blocks.0.attn.qkv.weight', 0) // (3 * HEAD_DIM)
    spaces = [zoo.load_space(n) for n in ([name] if name else zoo.space_names())]
    sizes = []
    for space in (space for space in spaces if space.family == AutoFormer.family):
        (stage,) = SCHEMA.read(space.largest()).stages
        most = max(block.num_heads for block in stage.blocks)
        if stage.embed_dim <= width and len(stage.blocks) == depth and most == heads:
            return space
        sizes.append(f'{space.name} (width from {stage.embed_dim}, depth {len(stage.blocks)}, {most} heads)')
    raise CheckpointError(
        f'the file holds a supernet of width {width}, depth {depth}, {heads} heads, which does not match '
        f'{"; ".join(sizes) or f"an AutoFormer space ({name})"}'
    )


def find_settings(state: Mapping[str, Tensor], space: SearchSpace) -> dict[str, Any]:
    """Return the backbone's arguments, besides its space, for a supernet in our layout.

    Raises:
        CheckpointError: No AutoFormer of this space has just these tensors; the message has their official names.
    """
    patch_size = axis_size(state, 'backbone.patch_embed.weight', -1)
    settings: dict[str, Any] = dict(embed_dims=axis_size(state, 'backbone.cls_token', -1), official=True)
    if patch_size != 16:
        settings['patch_size'] = patch_size
    if 'backbone.pos_embed' not in state:
        settings['position'] = 'none'
    elif (side := _image_side(state, patch_size)) != 224:
        settings['img_size'] = side
    reach = max(0, axis_size(state, 'backbone.blocks.0.attn.relative.key_vertical', 0) // 2 - 1)
    if reach != 14:
        settings['reach'] = reach
    with torch.device('meta'):
        backbone = AutoFormer(space=space, **settings)
    check_shapes(state, classifier_shapes(state, backbone), f'a supernet of {space.name}', official_name)
    return settings


def cut(
    state: Mapping[str, Tensor], space: SearchSpace, settings: Mapping[str, Any], arch: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Cut the part of one architecture out of a supernet in our layout, head included.

    Args:
        state: The supernet.
        space: Its search space.
        settings: Its other arguments, as :func:`find_settings` gives them.
        arch: The architecture: a zoo name or a file.

    Returns:
        Weights of the architecture, and arguments of its backbone, which needs no ``official=True``.

    Raises:
        ArchError: There is no such architecture, or it does not fit.
    """
    with torch.device('meta'):
        fixed = AutoFormer(space=space, **settings).extract(arch)
    part = cut_to_shape(state, classifier_shapes(state, fixed))
    for name, bias in part.items():
        if name.endswith('qkv.bias'):  # by head, as in a network without `official`
            part[name] = by_head(bias, HEAD_DIM)
    kept = {name: value for name, value in settings.items() if name not in ('embed_dims', 'official')}
    return part, dict(arch=arch) | kept


def _image_side(state: Mapping[str, Tensor], patch_size: int) -> int:
    """Return the image side of the stored positions; 224 if no AutoFormer has positions of this shape."""
    tokens = axis_size(state, 'backbone.pos_embed', 1)
    return math.isqrt(tokens - 1) * patch_size if tokens > 1 else 224


def _check_heads(name: str, tensor: Tensor) -> None:
    if tensor.ndim != 2 or tensor.shape[0] % (3 * HEAD_DIM):
        raise CheckpointError(f'{name} should have 3 × {HEAD_DIM} rows per head, but has shape {tuple(tensor.shape)}')


def _check_needed(state: Mapping[str, Tensor], what: str, name_of: Callable[[str], str | None]) -> None:
    missing = [name for name, axes in _NEEDED.items() if name not in state or state[name].ndim < axes]
    if missing:
        raise CheckpointError(f'not {what}: it lacks {", ".join(str(name_of(name)) for name in missing)}')
