"""Convert AutoFormer's published checkpoints to vitnas and back, without losing a bit.

python tools/converters/autoformer.py supernet-tiny.pth autoformer-tiny_supernet.pth
python tools/converters/autoformer.py supernet-tiny.pth autoformer-tiny.pth --arch autoformer-tiny
python tools/converters/autoformer.py autoformer-tiny_supernet.pth supernet-tiny.pth --to-official

The result is a checkpoint of an ``ImageClassifier``; the backbone that runs it is printed. ``--arch`` keeps one
architecture's part, and needs no ``official=True``. ``--to-official`` writes the qkv bias as it is stored, so it is
for networks that were built with ``official=True``.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import check_shapes, config_line, digest, make_parser, parse, read, refusing, write
from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer, cut_to_shape
from vitnas_core.errors import CheckpointError
from vitnas_core.families.autoformer.arch import HEAD_DIM, SCHEMA
from vitnas_core.spaces import SearchSpace

# Official name → ours. `blocks.{i}.` stands before those of a block.
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
_NEEDED = ('cls_token', 'patch_embed_super.proj.weight', 'blocks.0.attn.qkv.weight', 'norm.weight')


def our_name(name: str) -> str | None:
    """Our name of an official one, or None where there is none."""
    match = re.fullmatch(r'blocks\.(\d+)\.(.+)', name)
    if match is None:
        return _OUTSIDE.get(name)
    return f'backbone.blocks.{match[1]}.{_BLOCK[match[2]]}' if match[2] in _BLOCK else None


def official_name(name: str) -> str | None:
    """The official name of one of ours, or None where there is none."""
    match = re.fullmatch(r'backbone\.blocks\.(\d+)\.(.+)', name)
    names = {ours: theirs for theirs, ours in (_OUTSIDE if match is None else _BLOCK).items()}
    if match is None:
        return names.get(name)
    return f'blocks.{match[1]}.{names[match[2]]}' if match[2] in names else None


def to_vitnas(official: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename, and reorder the rows of qkv: theirs go q, k, v, q, k, v, …; ours keep those of a head together.

    The qkv bias stays as it is: ``official=True`` cuts it as the published code does.

    Raises:
        CheckpointError: It is no AutoFormer of the published layout.
    """
    converted = {}
    for name, tensor in official.items():
        ours = our_name(name)
        if ours is None:
            raise CheckpointError(f'not an official AutoFormer checkpoint: {name} is none of its tensors')
        if name.endswith('attn.qkv.weight'):
            _check_heads(name, tensor)
            tensor = tensor.unflatten(0, (-1, HEAD_DIM, 3)).transpose(1, 2).flatten(0, 2)
        converted[ours] = tensor.contiguous()
    missing = [name for name in _NEEDED if name not in official or official[name].ndim < 2 - name.startswith('norm')]
    if missing:
        raise CheckpointError(f'not an official AutoFormer checkpoint: it lacks {", ".join(missing)}')
    return converted


def to_official(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`.

    Raises:
        CheckpointError: It is no AutoFormer of ours, or one with conditional positions.
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
            raise CheckpointError(f'not a vitnas AutoFormer checkpoint: {name} is none of its tensors')
        if theirs.endswith('attn.qkv.weight'):
            _check_heads(name, tensor)
            tensor = tensor.unflatten(0, (-1, 3, HEAD_DIM)).transpose(1, 2).flatten(0, 2)
        converted[theirs] = tensor.contiguous()
    missing = [name for name in _NEEDED if name not in converted]
    if missing:
        raise CheckpointError(
            f'not a vitnas AutoFormer checkpoint: it lacks {", ".join(map(str, map(our_name, missing)))}'
        )
    return converted


def find_space(official: Mapping[str, Tensor], name: str | None = None) -> SearchSpace:
    """The space whose supernet this is: ``name``, or the one of the zoo that fits.

    Raises:
        CheckpointError: The file is of another size.
    """
    width = official['cls_token'].shape[-1]
    depth = 1 + max(int(key.split('.')[1]) for key in official if key.startswith('blocks.'))
    heads = official['blocks.0.attn.qkv.weight'].shape[0] // (3 * HEAD_DIM)
    spaces = [zoo.load_space(n) for n in ([name] if name else zoo.space_names())]
    sizes = []
    for space in (space for space in spaces if space.family == AutoFormer.family):
        (stage,) = SCHEMA.read(space.largest()).stages
        most = max(block.num_heads for block in stage.blocks)
        if stage.embed_dim <= width and len(stage.blocks) == depth and most == heads:
            return space
        sizes.append(f'{space.name} (width from {stage.embed_dim}, depth {len(stage.blocks)}, {most} heads)')
    raise CheckpointError(
        f'the file holds a supernet of width {width}, depth {depth}, {heads} heads, which is none of '
        f'{"; ".join(sizes) or f"an AutoFormer space ({name})"}'
    )


def find_settings(official: Mapping[str, Tensor], space: SearchSpace) -> dict[str, Any]:
    """Arguments of the backbone that runs a converted file.

    Raises:
        CheckpointError: No AutoFormer of this space has just these tensors.
    """
    patch_size = official['patch_embed_super.proj.weight'].shape[-1]
    settings: dict[str, Any] = dict(embed_dims=official['cls_token'].shape[-1], official=True)
    if patch_size != 16:
        settings['patch_size'] = patch_size
    if 'pos_embed' not in official:
        settings['position'] = 'none'
    elif (side := math.isqrt(official['pos_embed'].shape[1] - 1) * patch_size) != 224:
        settings['img_size'] = side
    table = official.get('blocks.0.attn.rel_pos_embed_k.embeddings_table_v')
    if (reach := 0 if table is None else table.shape[0] // 2 - 1) != 14:
        settings['reach'] = reach
    with torch.device('meta'):
        backbone = AutoFormer(space=space, **settings)
    wanted = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    given = {name: tensor for name, tensor in to_vitnas(official).items() if name.startswith('backbone.')}
    check_shapes(given, wanted, f'a supernet of {space.name}', official_name)
    return settings


def cut(state: Mapping[str, Tensor], space: SearchSpace, settings: dict[str, Any], arch: str) -> dict[str, Tensor]:
    """The part of a converted supernet that one architecture uses, head included, for ``official=False``.

    Raises:
        ArchError: There is no such architecture, or it does not fit.
    """
    with torch.device('meta'):
        supernet = AutoFormer(space=space, **settings)
        fixed = supernet.extract(arch)
    target = {f'backbone.{name}': tensor for name, tensor in fixed.state_dict().items()}
    if 'head.fc.weight' in state:
        classes = len(state['head.fc.weight'])
        target['head.fc.weight'] = torch.empty(classes, fixed.out_channels()[-1], device='meta')
        target['head.fc.bias'] = torch.empty(classes, device='meta')
    part = cut_to_shape(state, target)
    for name, bias in part.items():
        if name.endswith('qkv.bias'):  # the thirds of this width, sorted by heads: no flag is needed any more
            part[name] = bias.unflatten(0, (3, -1, HEAD_DIM)).transpose(0, 1).flatten()
    return part


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    parser.add_argument('--space', help='zoo name or file of the space that the file should be of')
    parser.add_argument('--arch', help='keep the part of this architecture only: a zoo name or a file')
    options = parse(parser, args)
    if options.arch and options.to_official:
        parser.error('--arch goes from the published layout to vitnas')
    with refusing(options.source):
        source = read(options.source)
        target = to_official(source) if options.to_official else to_vitnas(source)
        official = target if options.to_official else source
        space = find_space(official, options.space)
        settings = find_settings(official, space)
        if options.arch:
            target = cut(target, space, settings, options.arch)
    which = dict(arch=options.arch) if options.arch else dict(space=options.space or space.name)
    if options.arch:
        del settings['embed_dims'], settings['official']
    with torch.device('meta'):
        note = None if options.to_official else AutoFormer(**which, **settings).note()
    write(options.target, 'model' if options.to_official else 'state_dict', target, note)
    if options.to_official:
        print(
            'The qkv bias is written as it is stored: right for a network built with official=True, wrong for others.'
        )
    print(f'{len(target)} tensors, digest {digest(target)[:16]}: {options.target}')
    print(config_line('AutoFormer', which | settings))


def _check_heads(name: str, tensor: Tensor) -> None:
    if tensor.ndim != 2 or tensor.shape[0] % (3 * HEAD_DIM):
        raise CheckpointError(f'{name} should have 3 × {HEAD_DIM} rows a head, but has shape {tuple(tensor.shape)}')


if __name__ == '__main__':
    main()
