"""Conversion of ViT-ResNAS's supernets and fixed networks between the published layout and ours, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ... import zoo
from ...backbones.foreign import building, by_head, by_kind, check_shapes, classifier_shapes, count_numbered
from ...errors import CheckpointError
from ...spaces import Arch
from .backbone import ViTRes

HEAD_DIMS = (32, 48, 64)
"""Size of a head in each stage of ViT-ResNAS-Tiny, -Small and -Medium and of their supernets."""

# Official name → ours. Official blocks and reductions form one list, `blocks.{n}.`, which begins with a block.
_OUTSIDE = {
    'tokens': 'backbone.cls_token',
    'pos_embed': 'backbone.pos_embed',
    'patch_embed.conv_proj.weight': 'backbone.patch_embed.proj.weight',
    'patch_embed.conv_proj.bias': 'backbone.patch_embed.proj.bias',
    'cls_head.weight': 'head.fc.weight',
    'cls_head.bias': 'head.fc.bias',
    'patch_head.weight': 'head.token_fc.weight',
    'patch_head.bias': 'head.token_fc.bias',
}
_STEM = {'conv.weight': '0.weight'} | {
    f'bn.{name}': f'1.{name}' for name in ('weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked')
}
_BLOCK = {
    f'{theirs}.{name}': f'{ours}.{name}'
    for theirs, ours in (
        ('norm1', 'norm1'),
        ('attn.qkv', 'attn.qkv'),
        ('attn.proj', 'attn.proj'),
        ('norm2', 'norm2'),
        ('mlp.fc1', 'fc1'),
        ('mlp.fc2', 'fc2'),
    )
    for name in ('weight', 'bias')
}
_REDUCTION = {'pos_embed': 'pos_embed'} | {
    f'{theirs}.{name}': f'{ours}.{name}'
    for theirs, ours in (('norm', 'norm'), ('patch_reduce', 'conv'), ('token_transform', 'token'))
    for name in ('weight', 'bias')
}


def name_table(reductions: Sequence[int], length: int) -> dict[str, str]:
    """Map official names to ours, for every tensor that a network may have.

    Args:
        reductions: Positions of the reductions in the official list of blocks.
        length: Length of that list.
    """
    table = dict(_OUTSIDE)
    for i in (1, 2, 3):
        table |= {f'patch_embed.conv{i}.{a}': f'backbone.patch_embed.conv{i}.{b}' for a, b in _STEM.items()}
    stage = start = 0
    for n in range(length):
        if n in reductions:
            stage, start = stage + 1, n + 1
            table |= {f'blocks.{n}.{a}': f'backbone.stages.{stage}.reduction.{b}' for a, b in _REDUCTION.items()}
        else:
            table |= {f'blocks.{n}.{a}': f'backbone.stages.{stage}.blocks.{n - start}.{b}' for a, b in _BLOCK.items()}
    return table | {f'norm.{name}': f'backbone.norm{stage}.{name}' for name in ('weight', 'bias')}


def to_vitnas(state: Mapping[str, Tensor], head_dims: Sequence[int] = HEAD_DIMS) -> dict[str, Tensor]:
    """Convert the published layout to ours: rename tensors, and sort the rows of qkv by head.

    Args:
        state: Weights of a supernet or a fixed network, with or without its heads.
        head_dims: Size of a head in each stage, which the weights do not show. Defaults to ``HEAD_DIMS``.

    Raises:
        CheckpointError: The weights are no ViT-ResNAS of this layout.
    """
    reductions = [
        int(m[1]) for m in (re.fullmatch(r'blocks\.(\d+)\.patch_reduce\.weight', name) for name in state) if m
    ]
    table = name_table(reductions, count_numbered(r'blocks\.(\d+)\.', state))
    converted = {}
    for name, tensor in state.items():
        if name not in table:
            raise CheckpointError(
                f'not a ViT-ResNAS checkpoint of the published layout: {name} is not one of its tensors'
            )
        converted[table[name]] = _reorder(tensor, name, table[name], head_dims, to_ours=True)
    official = {ours: theirs for theirs, ours in table.items()}
    check(converted, head_dims, lambda name: official.get(name, name))
    return converted


def to_official(state: Mapping[str, Tensor], head_dims: Sequence[int] = HEAD_DIMS) -> dict[str, Tensor]:
    """Inverse of :func:`to_vitnas`.

    Raises:
        CheckpointError: The weights are no ViTRes of ours, or the published layout has no place for some of them.
    """
    counts = _block_counts(state)
    reductions = [sum(counts[: s + 1]) + s for s in range(len(counts) - 1)]
    official = {ours: theirs for theirs, ours in name_table(reductions, sum(counts) + len(reductions)).items()}
    for name in state:
        if re.fullmatch(rf'backbone\.norm(?!{len(counts) - 1}\.)\d+\..+', name):
            raise CheckpointError(
                f'{name} has no place in the published layout, which has one output: out_indices=(-1,)'
            )
        if name not in official:
            raise CheckpointError(f'not a vitnas ViTRes checkpoint: {name} is not one of its tensors')
    check(state, head_dims)
    return {official[name]: _reorder(tensor, name, name, head_dims, to_ours=False) for name, tensor in state.items()}


def find_arch(
    state: Mapping[str, Tensor], head_dims: Sequence[int] = HEAD_DIMS, name_of: Callable[[str], str] = str
) -> Arch:
    """Find the architecture of a network in our layout; of a supernet, the largest one.

    Args:
        state: The network.
        head_dims: Size of a head in each stage. Defaults to ``HEAD_DIMS``.
        name_of: Maps our name of a tensor to the file's, for messages. Defaults to no change.

    Raises:
        CheckpointError: A tensor that shows the architecture is missing, or heads have another size.
    """
    counts, stages = _block_counts(state), []
    if len(counts) != len(head_dims):
        raise CheckpointError(f'it has {len(counts)} stages, but {len(head_dims)} sizes of heads are given')
    for s, (count, head_dim) in enumerate(zip(counts, head_dims)):
        blocks: list[dict[str, int] | None] = []
        widths = set()
        for b in range(count):
            path = f'backbone.stages.{s}.blocks.{b}'
            if not any(name.startswith(f'{path}.') for name in state):
                blocks.append(None)
                continue
            proj, hidden = (_shape(state, f'{path}.{name}.weight', name_of) for name in ('attn.proj', 'fc1'))
            if head_dim < 1 or proj[1] % head_dim:
                raise CheckpointError(
                    f'{name_of(f"{path}.attn.proj.weight")} takes {proj[1]} channels, which is no '
                    f'multiple of the head size {head_dim}; see --head-dims'
                )
            widths.add(proj[0])
            blocks.append(dict(num_heads=proj[1] // head_dim, hidden_dim=hidden[0]))
        stages.append(dict(embed_dim=max(widths), head_dim=head_dim, blocks=blocks))
    return Arch.from_dict(dict(family=ViTRes.family, stages=stages))


def find_settings(state: Mapping[str, Tensor], name_of: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the backbone's arguments, besides its architecture, that differ from their defaults: the image size.

    Raises:
        CheckpointError: The positions, which show it, are missing or have another number of axes.
    """
    patches = max(0, _shape(state, 'backbone.pos_embed', name_of, 3)[1] - 1)
    side = round(patches**0.5)
    return {} if side == 16 else dict(img_size=14 * side)


def check(state: Mapping[str, Tensor], head_dims: Sequence[int], name_of: Callable[[str], str] = str) -> Arch:
    """Find the architecture of a network in our layout, and check that all its tensors fit it.

    Args:
        state: The network.
        head_dims: Size of a head in each stage.
        name_of: Maps our name of a tensor to the file's, for messages. Defaults to no change.

    Raises:
        CheckpointError: A tensor is missing, unexpected, or has another shape.
    """
    arch = find_arch(state, head_dims, name_of)
    settings = find_settings(state, name_of)
    with building('a ViT-ResNAS checkpoint'):
        backbone = ViTRes(arch=arch, **settings)
    wanted = classifier_shapes(state, backbone, ('head.fc', 'head.token_fc'))
    check_shapes(state, wanted, 'a ViT-ResNAS of its other tensors', name_of)
    return arch


def find_backbone(state: Mapping[str, Tensor], head_dims: Sequence[int] = HEAD_DIMS) -> dict[str, Any]:
    """Return the backbone's arguments for a network in our layout; ``arch`` is a zoo name if there is one.

    Raises:
        CheckpointError: As in :func:`find_arch`.
    """
    arch = find_arch(state, head_dims)
    known = next((name for name in zoo.arch_names() if zoo.entry(name).arch == arch), None)
    return dict(arch=known or arch, **find_settings(state))


def _block_counts(state: Mapping[str, Tensor]) -> list[int]:
    """Number of blocks in each stage of our layout, including absent ones before the last."""
    stages = max(1, count_numbered(r'backbone\.stages\.(\d+)\.', state))
    counts = [count_numbered(rf'backbone\.stages\.{s}\.blocks\.(\d+)\.', state) for s in range(stages)]
    if 0 in counts:
        raise CheckpointError(f'not a ViT-ResNAS checkpoint: it has no block in stage {counts.index(0)}')
    return counts


def _shape(state: Mapping[str, Tensor], name: str, name_of: Callable[[str], str], axes: int = 2) -> tuple[int, ...]:
    if name not in state:
        raise CheckpointError(f'not a ViT-ResNAS checkpoint: it lacks {name_of(name)}')
    if state[name].ndim != axes:
        raise CheckpointError(
            f'{name_of(name)} has shape {tuple(state[name].shape)}, which no ViT-ResNAS checkpoint has'
        )
    return tuple(state[name].shape)


def _reorder(tensor: Tensor, name: str, ours: str, head_dims: Sequence[int], to_ours: bool) -> Tensor:
    """Put rows of qkv into the other order: theirs are sorted by q, k and v, ours by head; ``name`` is the file's."""
    if '.attn.qkv.' not in ours:
        return tensor
    stage = int(ours.split('.')[2])
    try:
        return (by_head if to_ours else by_kind)(tensor, head_dims[stage]).contiguous()
    except (RuntimeError, IndexError):
        raise CheckpointError(
            f'{name} has shape {tuple(tensor.shape)}, which no ViT-ResNAS with heads of '
            f'{", ".join(map(str, head_dims))} channels has'
        ) from None
