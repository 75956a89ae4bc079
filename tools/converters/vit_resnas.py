"""Convert checkpoints of ViT-ResNAS, supernets and fixed networks, to vitnas and back.

python tools/converters/vit_resnas.py vit_resnas_tiny.pth vit-resnas-tiny.pth
python tools/converters/vit_resnas.py vit_res_tiny.pth vit-res-tiny.pth --head-dims 64 64 64
python tools/converters/vit_resnas.py vit-resnas-tiny.pth vit_resnas_tiny.pth --to-official

The result is a checkpoint of an ``ImageClassifier``; the backbone that runs it is printed. Its architecture is written
beside the target where the zoo has no name for it. Every bit is kept. A file does not say how large heads are; those
that were published have 32, 48 and 64 channels in the three stages, but for ViT-Res-Tiny.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import check_shapes, config_line, digest, make_parser, parse, read, refusing, write
from vitnas_core import zoo
from vitnas_core.backbones import ViTRes
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.spaces import Arch
from vitnas_core.utils.fileio import atomic_write

HEAD_DIMS = (32, 48, 64)
"""Of ViT-ResNAS-Tiny, -Small and -Medium and of their supernets."""

# Official name → ours. Blocks and reductions stand in one list, `blocks.{n}.`, which begins with a block.
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
    """Official name → ours, for every tensor that a network may have.

    Args:
        reductions: Which entries of the official list of blocks are reductions.
        length: How long that list is.
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
    """Rename the tensors of the published layout, and put rows of qkv into the order of heads.

    Raises:
        CheckpointError: It is no ViT-ResNAS of this layout.
    """
    reductions = [
        int(m[1]) for m in (re.fullmatch(r'blocks\.(\d+)\.patch_reduce\.weight', name) for name in state) if m
    ]
    table = name_table(reductions, _count(r'blocks\.(\d+)\.', state))
    converted = {}
    for name, tensor in state.items():
        if name not in table:
            raise CheckpointError(f'not a ViT-ResNAS checkpoint of the published layout: {name} is none of its tensors')
        converted[table[name]] = _reorder(tensor, name, table[name], head_dims, to_ours=True)
    official = {ours: theirs for theirs, ours in table.items()}
    check(converted, head_dims, lambda name: official.get(name, name))
    return converted


def to_official(state: Mapping[str, Tensor], head_dims: Sequence[int] = HEAD_DIMS) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`.

    Raises:
        CheckpointError: It is no ViTRes of ours, or one that the published layout has no place for.
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
            raise CheckpointError(f'not a vitnas ViTRes checkpoint: {name} is none of its tensors')
    check(state, head_dims)
    return {official[name]: _reorder(tensor, name, name, head_dims, to_ours=False) for name, tensor in state.items()}


def find_arch(
    state: Mapping[str, Tensor], head_dims: Sequence[int] = HEAD_DIMS, name_of: Callable[[str], str] = str
) -> Arch:
    """The architecture of all weights in our layout.

    Args:
        state: The network.
        head_dims: Size of a head in each stage.
        name_of: What its file calls one of our names. Defaults to the same.

    Raises:
        CheckpointError: It lacks a tensor that shows it, or heads are not of this size.
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
            if proj[1] % head_dim:
                raise CheckpointError(
                    f'{name_of(f"{path}.attn.proj.weight")} takes {proj[1]} channels, which are no heads '
                    f'of {head_dim}; see --head-dims'
                )
            widths.add(proj[0])
            blocks.append(dict(num_heads=proj[1] // head_dim, hidden_dim=hidden[0]))
        stages.append(dict(embed_dim=max(widths), head_dim=head_dim, blocks=blocks))
    return Arch.from_dict(dict(family=ViTRes.family, stages=stages))


def find_settings(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Arguments of the backbone, beside its architecture, that are not the default's: another image size."""
    patches = _shape(state, 'backbone.pos_embed', str, 3)[1] - 1
    side = round(patches**0.5)
    return {} if side == 16 else dict(img_size=14 * side)


def check(state: Mapping[str, Tensor], head_dims: Sequence[int], name_of: Callable[[str], str] = str) -> Arch:
    """Check that a state dict in our layout is just that of the architecture that it shows, and return that.

    Raises:
        CheckpointError: It is not.
    """
    arch = find_arch(state, head_dims, name_of)
    try:
        with torch.device('meta'):
            backbone = ViTRes(arch=arch, **find_settings(state))
    except VitnasError as err:
        raise CheckpointError(f'not a ViT-ResNAS checkpoint: {err}') from None
    wanted = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    for head in ('head.fc', 'head.token_fc'):
        if f'{head}.weight' in state or f'{head}.bias' in state:
            classes = next(
                state[f'{head}.{name}'].shape[:1] for name in ('bias', 'weight') if f'{head}.{name}' in state
            )
            wanted[f'{head}.weight'] = torch.empty((*classes, backbone.embed_dims[-1]), device='meta')
            wanted[f'{head}.bias'] = torch.empty(classes, device='meta')
    check_shapes(state, wanted, 'a ViT-ResNAS of its other tensors', name_of)
    return arch


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    parser.add_argument('--head-dims', type=int, nargs='+', default=HEAD_DIMS, help='size of a head in each stage')
    options = parse(parser, args)
    convert = to_official if options.to_official else to_vitnas
    with refusing(options.source):
        target = convert(read(options.source), options.head_dims)
    note, backbone = None, {}
    if not options.to_official:
        arch = find_arch(target, options.head_dims)
        known = next((name for name in zoo.arch_names() if zoo.entry(name).arch == arch), None)
        file = options.target.with_suffix('.arch.json')
        if known is None:
            atomic_write(file, arch.to_json())
        backbone = dict(arch=known or str(file), **find_settings(target))
        with torch.device('meta'):
            note = ViTRes(**backbone).note()
    write(options.target, 'model' if options.to_official else 'state_dict', target, note)
    print(f'{len(target)} tensors, digest {digest(target)[:16]}: {options.target}')
    if backbone:
        print(config_line('ViTRes', backbone))


def _block_counts(state: Mapping[str, Tensor]) -> list[int]:
    """How many blocks each stage of our layout has, absent ones before its last included."""
    stages = max(1, _count(r'backbone\.stages\.(\d+)\.', state))
    counts = [_count(rf'backbone\.stages\.{s}\.blocks\.(\d+)\.', state) for s in range(stages)]
    if 0 in counts:
        raise CheckpointError(f'not a ViT-ResNAS checkpoint: it has no block in stage {counts.index(0)}')
    return counts


def _count(pattern: str, names: Mapping[str, Tensor]) -> int:
    """How many there are of what a pattern numbers, from 0."""
    return 1 + max((int(match[1]) for match in (re.match(pattern, name) for name in names) if match), default=-1)


def _shape(state: Mapping[str, Tensor], name: str, name_of: Callable[[str], str], axes: int = 2) -> tuple[int, ...]:
    if name not in state:
        raise CheckpointError(f'not a ViT-ResNAS checkpoint: it lacks {name_of(name)}')
    if state[name].ndim != axes:
        raise CheckpointError(f'{name_of(name)} has shape {tuple(state[name].shape)}, which it has in none')
    return tuple(state[name].shape)


def _reorder(tensor: Tensor, name: str, ours: str, head_dims: Sequence[int], to_ours: bool) -> Tensor:
    """Rows of qkv: theirs go by q, k and v, ours by heads; ``name`` is what its file calls it."""
    if '.attn.qkv.' not in ours:
        return tensor
    stage = int(ours.split('.')[2])
    try:
        parts = (3, -1, head_dims[stage]) if to_ours else (-1, 3, head_dims[stage])
        return tensor.unflatten(0, parts).transpose(0, 1).flatten(0, 2).contiguous()
    except (RuntimeError, IndexError):
        raise CheckpointError(
            f'{name} has shape {tuple(tensor.shape)}, which it has in no ViT-ResNAS whose heads have '
            f'{", ".join(map(str, head_dims))} channels'
        ) from None


if __name__ == '__main__':
    main()
