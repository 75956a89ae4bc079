"""Convert checkpoints of S3 (AutoFormerV2), the published ones and timm's, to vitnas and back.

python tools/converters/s3.py S3-T.pth s3-t.pth
python tools/converters/s3.py swin_s3_tiny_224.safetensors s3-t.pth
python tools/converters/s3.py s3-t.pth S3-T.pth --to-official
python tools/converters/s3.py s3-t.pth swin_s3_tiny_224.safetensors --to-timm

Which of the two layouts a file has is seen from its names. The result is a checkpoint of an ``ImageClassifier``; the
backbone that runs it is printed, and where the zoo has no name for its architecture, that is written beside the
target. Every bit of the parameters is kept; buffers of indices and masks, which follow from the image size, are not.
A Swin of these layouts is converted, too: it is an S3 with other windows.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import check_shapes, config_line, digest, make_parser, parse, read, refusing, write
from vitnas_core import zoo
from vitnas_core.backbones import S3
from vitnas_core.costs.algebra import stage_maps
from vitnas_core.elastic import zigzag
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.families.s3.arch import HEAD_DIM, SCHEMA
from vitnas_core.spaces import Arch
from vitnas_core.utils.fileio import atomic_write

# Official name → ours. `layers.{s}.blocks.{b}.` stands before those of a block, `layers.{s}.downsample.` before those
# of a merging, which is ours of the stage behind.
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
    """Our name of an official one in a network of so many stages, or None where there is none."""
    if match := re.fullmatch(r'layers\.(\d+)\.blocks\.(\d+)\.(.+)', name):
        stage, block, rest = match.groups()
        return f'backbone.stages.{stage}.blocks.{block}.{_BLOCK[rest]}' if rest in _BLOCK else None
    if match := re.fullmatch(r'layers\.(\d+)\.downsample\.(.+)', name):
        return f'backbone.stages.{int(match[1]) + 1}.merging.{match[2]}' if match[2] in _MERGING else None
    if match := re.fullmatch(r'norm\.(weight|bias)', name):
        return f'backbone.norm{stages - 1}.{match[1]}'
    return _OUTSIDE.get(name)


def official_name(name: str, stages: int) -> str | None:
    """The official name of one of ours in a network of so many stages, or None where there is none."""
    if match := re.fullmatch(r'backbone\.stages\.(\d+)\.blocks\.(\d+)\.(.+)', name):
        rest = {ours: theirs for theirs, ours in _BLOCK.items()}.get(match[3])
        return rest and f'layers.{match[1]}.blocks.{match[2]}.{rest}'
    if match := re.fullmatch(r'backbone\.stages\.([1-9]\d*)\.merging\.(.+)', name):
        return f'layers.{int(match[1]) - 1}.downsample.{match[2]}' if match[2] in _MERGING else None
    if match := re.fullmatch(rf'backbone\.norm{stages - 1}\.(weight|bias)', name):
        return f'norm.{match[1]}'
    return {ours: theirs for theirs, ours in _OUTSIDE.items()}.get(name)


def timm_name(name: str) -> str:
    """timm's name of an official one; there, too, a merging belongs to the stage behind it."""
    name = re.sub(r'^layers\.(\d+)\.downsample\.', lambda match: f'layers.{int(match[1]) + 1}.downsample.', name)
    return re.sub(r'^head\.', 'head.fc.', name)


def name_of_timm(name: str) -> str:
    """The inverse of :func:`timm_name`."""
    name = re.sub(r'^layers\.(\d+)\.downsample\.', lambda match: f'layers.{int(match[1]) - 1}.downsample.', name)
    return re.sub(r'^head\.fc\.', 'head.', name)


def is_timm(state: Mapping[str, Tensor]) -> bool:
    """Whether a file has timm's layout rather than the published one."""
    first, second = (any(name.startswith(f'layers.{s}.downsample.') for name in state) for s in (0, 1))
    return any(name.startswith('head.fc.') for name in state) or (second and not first)


def to_vitnas(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename and reorder the parameters of either layout, and leave its buffers out.

    Raises:
        CheckpointError: It is no S3 of these layouts.
    """
    timm, stages = is_timm(state), _count(r'layers\.(\d+)\.', state)
    converted = {}
    for name, tensor in state.items():
        if _BUFFER.fullmatch(name):
            continue
        ours = our_name(name_of_timm(name) if timm else name, stages)
        if ours is None:
            layout = "timm's" if timm else 'the published'
            raise CheckpointError(f'not an S3 checkpoint of {layout} layout: {name} is none of its tensors')
        converted[ours] = _reorder(tensor, name, ours, to_ours=True)

    def name_of(ours: str) -> str:
        official = str(official_name(ours, stages))
        return timm_name(official) if timm else official

    check(converted, name_of)
    return converted


def to_official(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`, in the published layout.

    A fixed network of ``bias='per-window'`` has one table a block, too.

    Raises:
        CheckpointError: It is no S3 of ours, or one that the published layout has no place for.
    """
    stages = _count(r'backbone\.stages\.(\d+)\.', state)
    ours = {}
    for name, tensor in state.items():
        shared = re.sub(r'\.bias\.tables\.\d+$', '.bias.tables.shared', name)
        if shared in ours or re.fullmatch(rf'backbone\.norm(?!{stages - 1}\.)\d+\..+', name):
            raise CheckpointError(
                f'{name} has no place in the published layout, which is for fixed networks with one output, '
                f'out_indices=(-1,)'
            )
        if official_name(shared, stages) is None:
            raise CheckpointError(f'not a vitnas S3 checkpoint: {name} is none of its tensors')
        ours[shared] = tensor
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


def to_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`, in timm's layout.

    Raises:
        CheckpointError: As :func:`to_official`.
    """
    return {timm_name(name): tensor for name, tensor in to_official(state).items()}


def find_arch(state: Mapping[str, Tensor], name_of: Callable[[str], str] = str) -> Arch:
    """The architecture of a fixed network in our layout, with the windows that its tables are for.

    Args:
        state: The network.
        name_of: What its file calls one of our names. Defaults to the same.

    Raises:
        CheckpointError: It lacks a tensor that shows it.
    """

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if name not in state:
            raise CheckpointError(f'not an S3 checkpoint: it lacks {name_of(name)}')
        if state[name].ndim != axes:
            raise CheckpointError(
                f'{name_of(name)} has shape {tuple(state[name].shape)}, which it has in no S3 checkpoint'
            )
        return tuple(state[name].shape)

    stages = []
    for s in range(max(1, _count(r'backbone\.stages\.(\d+)\.', state))):
        path = f'backbone.stages.{s}.blocks'
        width, blocks = shape(f'{path}.0.attn.qkv.weight', 2)[1], []
        for b in range(_count(rf'{re.escape(path)}\.(\d+)\.', state)):
            heads, side, _ = shape(f'{path}.{b}.attn.bias.tables.shared', 3)
            ratio = _ratio(shape(f'{path}.{b}.fc1.weight', 2)[0], width)
            blocks.append(dict(num_heads=heads, mlp_ratio=ratio, window_size=(side + 1) // 2))
        stages.append(dict(embed_dim=width, blocks=blocks))
    shape('backbone.patch_embed.proj.weight', 4)
    return Arch.from_dict(dict(family=S3.family, stages=stages))


def find_settings(state: Mapping[str, Tensor], arch: Arch) -> dict[str, Any]:
    """Arguments of the backbone, beside its architecture, that are not the default's."""
    patch_size = state['backbone.patch_embed.proj.weight'].shape[-1]
    settings = {} if patch_size == 4 else dict(patch_size=patch_size)
    windows = [max(block.window_size for block in stage.blocks) for stage in SCHEMA.read(arch).stages]
    maps = stage_maps((224, 224), max(1, patch_size), len(windows))
    if any(window > side for window, (side, _) in zip(windows, maps)):  # clamped there, and the tables cut
        settings['img_size'] = max(window * patch_size * 2**s for s, window in enumerate(windows))
    return settings


def check(state: Mapping[str, Tensor], name_of: Callable[[str], str] = str) -> Arch:
    """Check that a state dict in our layout is just that of the architecture that it shows, and return that.

    Args:
        state: The state dict.
        name_of: What its file calls one of our names. Defaults to the same.

    Raises:
        CheckpointError: It is not.
    """
    arch = find_arch(state, name_of)
    try:
        with torch.device('meta'):
            backbone = S3(arch=arch, **find_settings(state, arch))
    except VitnasError as err:
        raise CheckpointError(f'not an S3 checkpoint: {err}') from None
    wanted = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    if any(name.startswith('head.') for name in state):
        classes = next(iter(state[name].shape[:1] for name in ('head.fc.bias', 'head.fc.weight') if name in state))
        wanted['head.fc.weight'] = torch.empty((*classes, backbone.embed_dims[-1]), device='meta')
        wanted['head.fc.bias'] = torch.empty(classes, device='meta')
    check_shapes(state, wanted, 'an S3 of its other tensors', name_of)
    return arch


def find_entry(arch: Arch, patch_size: int = 4) -> zoo.ZooEntry | None:
    """The entry of the zoo whose windows, clamped at its image size, are those of an architecture; None without one."""
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


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    back = parser.add_mutually_exclusive_group()
    back.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    back.add_argument('--to-timm', action='store_true', help="from vitnas to timm's layout")
    options = parse(parser, args)
    convert = to_official if options.to_official else to_timm if options.to_timm else to_vitnas
    with refusing(options.source):
        target = convert(read(options.source))
    backbone: dict[str, Any] = {}
    note = None
    if convert is to_vitnas:
        arch = find_arch(target)
        backbone, file = find_settings(target, arch), options.target.with_suffix('.arch.json')
        entry = find_entry(arch, backbone.get('patch_size', 4))
        if entry is None:
            atomic_write(file, arch.to_json())
        elif entry.input_size != (224, 224):
            backbone['img_size'] = max(entry.input_size)
        backbone = dict(arch=str(file) if entry is None else entry.name, **backbone)
        with torch.device('meta'):
            note = S3(**backbone).note()
    write(options.target, 'model' if options.to_official else 'state_dict', target, note)
    print(f'{len(target)} tensors, digest {digest(target)[:16]}: {options.target}')
    if backbone:
        print(config_line('S3', backbone))


def _count(pattern: str, names: Mapping[str, Tensor]) -> int:
    """How many there are of what a pattern numbers, from 0."""
    return 1 + max((int(match[1]) for match in (re.match(pattern, name) for name in names) if match), default=-1)


def _ratio(hidden: int, width: int) -> float:
    """The shortest MLP ratio that gives a hidden width."""
    for digits in range(1, 16):
        exact, step = hidden / max(1, width), 10**digits
        for ratio in (round(exact, digits), math.ceil(exact * step) / step):
            if int(width * ratio) == hidden:
                return ratio
    return (hidden + 0.5) / max(1, width)


def _reorder(tensor: Tensor, name: str, ours: str, to_ours: bool) -> Tensor:
    """The entries of a tensor in the order of the other layout; ``name`` is what its file calls it.

    Rows of qkv: theirs go by q, k and v, ours by heads. What a merging takes in: theirs has four groups of channels,
    for (0, 0), (1, 0), (0, 1), (1, 1); ours four values a channel, row by row. A table: see :func:`zigzag`.
    """
    try:
        if '.attn.qkv.' in ours:
            parts = (3, -1, HEAD_DIM) if to_ours else (-1, 3, HEAD_DIM)
            tensor = tensor.unflatten(0, parts).transpose(0, 1).flatten(0, 2)
        elif '.merging.' in ours:
            parts = (2, 2, -1) if to_ours else (-1, 2, 2)  # column, row, channel; or the other way round
            tensor = tensor.unflatten(-1, parts).transpose(-3, -1).flatten(-3)
        elif ours.endswith('.bias.tables.shared'):
            tensor = _table_to_ours(tensor) if to_ours else _table_to_official(tensor)
    except (RuntimeError, IndexError, ValueError):
        raise CheckpointError(f'{name} has shape {tuple(tensor.shape)}, which it has in no S3 checkpoint') from None
    return tensor.contiguous()


def _table_to_ours(table: Tensor) -> Tensor:
    """((2w − 1)², heads) → (heads, 2w − 1, 2w − 1) in zigzag order."""
    side = math.isqrt(len(table))
    if side % 2 == 0:
        raise ValueError('a window of w has 2w − 1 offsets')
    order = zigzag((side + 1) // 2)
    return table.unflatten(0, (side, side)).permute(2, 0, 1)[:, order][:, :, order]


def _table_to_official(table: Tensor) -> Tensor:
    """The inverse of :func:`_table_to_ours`."""
    order = zigzag((table.shape[-1] + 1) // 2).argsort()
    return table[:, order][:, :, order].flatten(1).mT


if __name__ == '__main__':
    main()
