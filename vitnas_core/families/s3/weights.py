"""Conversion of S3's weights (AutoFormerV2) between the published layout, timm's and ours, bit for bit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ... import zoo
from ...backbones.foreign import building, by_head, by_kind, check_shapes, classifier_shapes, count_numbered
from ...costs.algebra import stage_maps
from ...elastic import zigzag
from ...errors import CheckpointError
from ...spaces import Arch
from .arch import HEAD_DIM, SCHEMA
from .backbone import S3

# Official name → ours. Inside a block, `layers.{s}.blocks.{b}.` precedes theirs. There, a merging belongs to the stage
# before it, `layers.{s}.downsample.`; here, to the stage behind it.
_OUTSIDE = {
    'patch_embed.proj.weight': 'backbone.patch_embed.proj.weight',
    'patch_embed.proj.bias': 'backbone.patch_embed.proj.bias',
    'patch_embed.norm.weight': 'backbone.patch_embed.norm.weight',
    'patch_embed.norm.bias': 'backbone.patch_embed.norm.bias',
    'head.weight': 'head.fc.weight',
    'head.bias': 'head.fc.bias',
}
_BLOCK = {
    'norm1.weight': 'norm1.weight',
    'norm1.bias': 'norm1.bias',
    'attn.relative_position_bias_table': 'attn.bias.tables.shared',
    'attn.qkv.weight': 'attn.qkv.weight',
    'attn.qkv.bias': 'attn.qkv.bias',
    'attn.proj.weight': 'attn.proj.weight',
    'attn.proj.bias': 'attn.proj.bias',
    'norm2.weight': 'norm2.weight',
    'norm2.bias': 'norm2.bias',
    'mlp.fc1.weight': 'fc1.weight',
    'mlp.fc1.bias': 'fc1.bias',
    'mlp.fc2.weight': 'fc2.weight',
    'mlp.fc2.bias': 'fc2.bias',
}
_MERGING = ('norm.weight', 'norm.bias', 'reduction.weight')
_BUFFER = re.compile(r'layers\.\d+\.blocks\.\d+\.(attn\.relative_position_index|attn_mask)')


def our_name(name: str, stages: int) -> str | None:
    """Return our name of an official tensor in a network with a number of stages, or None if there is none."""
    if match := re.fullmatch(r'layers\.(\d+)\.blocks\.(\d+)\.(.+)', name):
        stage, block, rest = match.groups()
        return f'backbone.stages.{stage}.blocks.{block}.{_BLOCK[rest]}' if rest in _BLOCK else None
    if match := re.fullmatch(r'layers\.(\d+)\.downsample\.(.+)', name):
        return f'backbone.stages.{int(match[1]) + 1}.merging.{match[2]}' if match[2] in _MERGING else None
    if match := re.fullmatch(r'norm\.(weight|bias)', name):
        return f'backbone.norm{stages - 1}.{match[1]}'
    return _OUTSIDE.get(name)


def official_name(name: str, stages: int) -> str | None:
    """Return the official name of one of our tensors, given the number of stages, or None if there is none."""
    if match := re.fullmatch(r'backbone\.stages\.(\d+)\.blocks\.(\d+)\.(.+)', name):
        rest = {ours: theirs for theirs, ours in _BLOCK.items()}.get(match[3])
        return rest and f'layers.{match[1]}.blocks.{match[2]}.{rest}'
    if match := re.fullmatch(r'backbone\.stages\.([1-9]\d*)\.merging\.(.+)', name):
        return f'layers.{int(match[1]) - 1}.downsample.{match[2]}' if match[2] in _MERGING else None
    if match := re.fullmatch(rf'backbone\.norm{stages - 1}\.(weight|bias)', name):
        return f'norm.{match[1]}'
    return {ours: theirs for theirs, ours in _OUTSIDE.items()}.get(name)


def timm_name(name: str) -> str:
    """Return timm's name of an official tensor; as in ours, a merging belongs to the stage behind it."""
    name = re.sub(r'^layers\.(\d+)\.downsample\.', lambda match: f'layers.{int(match[1]) + 1}.downsample.', name)
    return re.sub(r'^head\.', 'head.fc.', name)


def name_of_timm(name: str) -> str:
    """Inverse of :func:`timm_name`."""
    name = re.sub(r'^layers\.(\d+)\.downsample\.', lambda match: f'layers.{int(match[1]) - 1}.downsample.', name)
    return re.sub(r'^head\.fc\.', 'head.', name)


def is_timm(state: Mapping[str, Tensor]) -> bool:
    """Return whether weights have timm's layout rather than the published one."""
    first, second = (any(name.startswith(f'layers.{s}.downsample.') for name in state) for s in (0, 1))
    return any(name.startswith('head.fc.') for name in state) or (second and not first)


def to_vitnas(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the published layout or timm's to ours: rename and reorder parameters, drop buffers.

    The names show which of the two layouts it is. Buffers, i.e. indices and masks, follow from the image size. A Swin
    of these layouts is converted, too: it is an S3 with other windows.

    Args:
        state: Weights of a fixed network, with or without its head.

    Raises:
        CheckpointError: The weights are no S3 of these layouts.
    """
    timm, stages = is_timm(state), count_numbered(r'layers\.(\d+)\.', state)
    converted = {}
    for name, tensor in state.items():
        if _BUFFER.fullmatch(name):
            continue
        ours = our_name(name_of_timm(name) if timm else name, stages)
        if ours is None:
            layout = "timm's" if timm else 'the published'
            raise CheckpointError(f'not an S3 checkpoint of {layout} layout: {name} is not one of its tensors')
        converted[ours] = _reorder(tensor, name, ours, to_ours=True)

    def name_of(ours: str) -> str:
        official = str(official_name(ours, stages))
        return timm_name(official) if timm else official

    check(converted, name_of)
    return converted


def to_official(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inverse of :func:`to_vitnas`, in the published layout.

    A fixed network with ``bias='per-window'`` fits, too: it also has one table per block.

    Raises:
        CheckpointError: The weights are no S3 of ours, or the published layout has no place for some of them.
    """
    stages = count_numbered(r'backbone\.stages\.(\d+)\.', state)
    ours = _one_table_per_block(state, stages)
    for s, stage in enumerate(SCHEMA.read(check(ours)).stages):
        for b, block in enumerate(stage.blocks):
            if (inner := HEAD_DIM * block.num_heads) != stage.embed_dim:
                raise CheckpointError(
                    f'backbone.stages.{s}.blocks.{b} has {block.num_heads} heads, {inner} channels, and is '
                    f'{stage.embed_dim} wide; in the published layout both are the same'
                )
    return {
        str(official_name(name, stages)): _reorder(tensor, name, name, to_ours=False) for name, tensor in ours.items()
    }


def _one_table_per_block(state: Mapping[str, Tensor], stages: int) -> dict[str, Tensor]:
    """Give each block's table the name of a shared one; refuse tensors without a place in the published layout."""
    ours = {}
    for name, tensor in state.items():
        shared = re.sub(r'\.bias\.tables\.\d+$', '.bias.tables.shared', name)
        if shared in ours or re.fullmatch(rf'backbone\.norm(?!{stages - 1}\.)\d+\..+', name):
            raise CheckpointError(
                f'{name} has no place in the published layout, which is for fixed networks with one output, '
                f'out_indices=(-1,)'
            )
        if official_name(shared, stages) is None:
            raise CheckpointError(f'not a vitnas S3 checkpoint: {name} is not one of its tensors')
        ours[shared] = tensor
    return ours


def to_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Inverse of :func:`to_vitnas`, in timm's layout.

    Raises:
        CheckpointError: As in :func:`to_official`.
    """
    return {timm_name(name): tensor for name, tensor in to_official(state).items()}


def find_arch(state: Mapping[str, Tensor], name_of: Callable[[str], str] = str) -> Arch:
    """Find the architecture of a fixed network in our layout; its tables give the window sizes.

    Args:
        state: The network.
        name_of: Maps our name of a tensor to the file's, for messages. Defaults to no change.

    Raises:
        CheckpointError: A tensor that shows the architecture is missing.
    """

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if name not in state:
            raise CheckpointError(f'not an S3 checkpoint: it lacks {name_of(name)}')
        if state[name].ndim != axes:
            raise CheckpointError(f'{name_of(name)} has shape {tuple(state[name].shape)}, which no S3 checkpoint has')
        return tuple(state[name].shape)

    stages = []
    for s in range(max(1, count_numbered(r'backbone\.stages\.(\d+)\.', state))):
        path = f'backbone.stages.{s}.blocks'
        width, blocks = shape(f'{path}.0.attn.qkv.weight', 2)[1], []
        for b in range(count_numbered(rf'{re.escape(path)}\.(\d+)\.', state)):
            heads, side, _ = shape(f'{path}.{b}.attn.bias.tables.shared', 3)
            ratio = _ratio(shape(f'{path}.{b}.fc1.weight', 2)[0], width)
            blocks.append(dict(num_heads=heads, mlp_ratio=ratio, window_size=(side + 1) // 2))
        stages.append(dict(embed_dim=width, blocks=blocks))
    shape('backbone.patch_embed.proj.weight', 4)
    return Arch.from_dict(dict(family=S3.family, stages=stages))


def find_settings(state: Mapping[str, Tensor], arch: Arch) -> dict[str, Any]:
    """Return the backbone's arguments, besides its architecture, that differ from their defaults."""
    patch_size = state['backbone.patch_embed.proj.weight'].shape[-1]
    settings = {} if patch_size == 4 else dict(patch_size=patch_size)
    windows = [max(block.window_size for block in stage.blocks) for stage in SCHEMA.read(arch).stages]
    maps = stage_maps((224, 224), max(1, patch_size), len(windows))
    if any(window > side for window, (side, _) in zip(windows, maps)):  # 224 would clamp windows and cut tables
        settings['img_size'] = max(window * patch_size * 2**s for s, window in enumerate(windows))
    return settings


def check(state: Mapping[str, Tensor], name_of: Callable[[str], str] = str) -> Arch:
    """Find the architecture of a network in our layout, and check that all its tensors fit it.

    Args:
        state: The network.
        name_of: Maps our name of a tensor to the file's, for messages. Defaults to no change.

    Raises:
        CheckpointError: A tensor is missing, unexpected, or has another shape.
    """
    arch = find_arch(state, name_of)
    with building('an S3 checkpoint'):
        backbone = S3(arch=arch, **find_settings(state, arch))
    check_shapes(state, classifier_shapes(state, backbone), 'an S3 of its other tensors', name_of)
    return arch


def find_entry(arch: Arch, patch_size: int = 4) -> zoo.ZooEntry | None:
    """Find the zoo entry whose windows, clamped at its image size, equal those of ``arch``; None if there is none."""
    for entry in (zoo.entry(name) for name in zoo.arch_names()):
        if entry.arch.family != S3.family:
            continue
        maps = stage_maps(entry.input_size, patch_size, len(entry.arch.stages))
        clamped = entry.arch.to_dict()
        for stage, size in zip(clamped['stages'], maps):
            for block in stage['blocks']:
                block['window_size'] = min(block['window_size'], *size)
        if Arch.from_dict(clamped) == arch:
            return entry
    return None


def find_backbone(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the backbone's arguments for a network in our layout; ``arch`` is a zoo name if there is one.

    Raises:
        CheckpointError: As in :func:`find_arch`.
    """
    arch = find_arch(state)
    settings = find_settings(state, arch)
    entry = find_entry(arch, settings.get('patch_size', 4))
    if entry is not None and entry.input_size != (224, 224):
        settings['img_size'] = max(entry.input_size)
    return dict(arch=arch if entry is None else entry.name, **settings)


def _ratio(hidden: int, width: int) -> float:
    """Return the shortest MLP ratio that gives a hidden width."""
    for digits in range(1, 16):
        exact, step = hidden / max(1, width), 10**digits
        for ratio in (round(exact, digits), math.ceil(exact * step) / step):
            if int(width * ratio) == hidden:
                return ratio
    return (hidden + 0.5) / max(1, width)


def _reorder(tensor: Tensor, name: str, ours: str, to_ours: bool) -> Tensor:
    """Put the entries of a tensor into the order of the other layout; ``name`` is the tensor's name in the file.

    - Rows of qkv: theirs are sorted by q, k and v; ours by head.
    - Inputs of a merging: theirs are four groups of channels, for (0, 0), (1, 0), (0, 1) and (1, 1); ours are four
      values per channel, row by row.
    - Tables: ours are in the order of :func:`~vitnas_core.elastic.zigzag`.
    """
    try:
        if '.attn.qkv.' in ours:
            tensor = (by_head if to_ours else by_kind)(tensor, HEAD_DIM)
        elif '.merging.' in ours:
            parts = (2, 2, -1) if to_ours else (-1, 2, 2)  # column, row, channel; or the other way round
            tensor = tensor.unflatten(-1, parts).transpose(-3, -1).flatten(-3)
        elif ours.endswith('.bias.tables.shared'):
            tensor = _table_to_ours(tensor) if to_ours else _table_to_official(tensor)
    except (RuntimeError, IndexError, TypeError, ValueError):  # torch raises these for wrong shapes
        raise CheckpointError(f'{name} has shape {tuple(tensor.shape)}, which no S3 checkpoint has') from None
    return tensor.contiguous()


def _table_to_ours(table: Tensor) -> Tensor:
    """Convert ((2w − 1)², heads) to (heads, 2w − 1, 2w − 1) in zigzag order."""
    side = math.isqrt(len(table))
    if side % 2 == 0:
        raise ValueError('a window of w has 2w − 1 offsets')
    order = zigzag((side + 1) // 2)
    return table.unflatten(0, (side, side)).permute(2, 0, 1)[:, order][:, :, order]


def _table_to_official(table: Tensor) -> Tensor:
    """Inverse of :func:`_table_to_ours`."""
    order = zigzag((table.shape[-1] + 1) // 2).argsort()
    return table[:, order][:, :, order].flatten(1).mT
