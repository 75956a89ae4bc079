"""Convert checkpoints of ViTAS's DeiT space, superformers and networks that stand alone, to vitnas and back.

python tools/converters/vitas.py ViTAS_4.9G.pth vitas-deit-b.pth --arch vitas-deit-b
python tools/converters/vitas.py superformer.pth vitas-deit-tiny.pth --space vitas-deit-tiny --sharing bilateral
python tools/converters/vitas.py vitas-deit-b.pth ViTAS_4.9G.pth --arch vitas-deit-b --to-official

The result is a checkpoint of an ``ImageClassifier`` whose backbone has ``official=True``, which is printed. A file does
not say how many heads there are, so it has to be told; nor whether a superformer was trained from both ends (BCNet) or
from one (AutoSlim, ``--sharing ordinal``). Every bit is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import config_line, digest, join, make_parser, parse, part, read, refusing, write
from vitnas_core.backbones import ViTASDeiT

# Official name → ours, of a block without its queries, keys and values.
_BLOCK = {
    f'{theirs}.{name}': f'{ours}.{name}'
    for theirs, ours in (
        ('norm1', 'norm1'),
        ('attn.proj', 'attn.proj'),
        ('norm2', 'norm2'),
        ('mlp.fc1', 'fc1'),
        ('mlp.fc2', 'fc2'),
    )
    for name in ('weight', 'bias')
}


def name_table(backbone: ViTASDeiT) -> dict[str, tuple[str, ...]]:
    """Official name → ours; queries and keys, and values, of a network that stands alone are one tensor there.

    Args:
        backbone: The network that the weights are for, with ``official=True``.
    """
    supernet = backbone.space.size() > 1
    table: dict[str, tuple[str, ...]] = {}
    for i, size in enumerate(sorted(backbone.grids)):  # one that stands alone has the first place
        stem = f'net.backbone_init_stem_Patch_init_0.{i}'
        table |= {f'{stem}.{name}': (f'backbone.{name}.{size}',) for name in ('cls_token', 'pos_embed')}
        table |= {
            f'{stem}.patch_embed.proj.{name}': (f'backbone.patch_embed.{size}.{name}',) for name in ('weight', 'bias')
        }
    for b, block in enumerate(backbone.blocks):
        theirs, ours = f'net.backbone_Block_{"id" if supernet else "Block"}_{b}.0', f'backbone.blocks.{b}'
        if isinstance(block, nn.Identity):  # no block at this place
            continue
        table |= {f'{theirs}.{a}': (f'{ours}.{o}',) for a, o in _BLOCK.items()}
        heads = list(block.attn.qk)  # type: ignore[union-attr, arg-type]
        for name in ('weight', 'bias'):
            if supernet:
                table |= {f'{theirs}.attn.qk{i}.{name}': (f'{ours}.attn.qk.{h}.{name}',) for i, h in enumerate(heads)}
                table[f'{theirs}.attn.v.{name}'] = (f'{ours}.attn.v.{name}',)
            else:
                table[f'{theirs}.attn.qkv.{name}'] = (f'{ours}.attn.qk.{heads[0]}.{name}', f'{ours}.attn.v.{name}')
    for name in ('weight', 'bias'):
        table[f'net.backbone_Norm_Norm_0.0.{name}'] = (f'backbone.norm.{name}',)
        table[f'net.backbone_FC_FC_0.0.module.0.{name}'] = (f'head.fc.{name}',)
    return table


def to_vitnas(state: Mapping[str, Tensor], backbone: ViTASDeiT) -> dict[str, Tensor]:
    """Rename the tensors of the published layout; part queries and keys from values.

    Args:
        state: The published weights.
        backbone: The network that they are for, with ``official=True``.

    Raises:
        CheckpointError: They are not of this network.
    """
    return part(state, name_table(backbone), backbone, 'a ViTAS checkpoint of this network')


def to_official(state: Mapping[str, Tensor], backbone: ViTASDeiT) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    return join(state, name_table(backbone), backbone)


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument('--arch', help='the architecture of a network that stands alone: a zoo name or a file')
    which.add_argument('--space', help='the space of a superformer: a zoo name or a file')
    parser.add_argument(
        '--sharing', choices=['bilateral', 'ordinal'], help='how a superformer shares channels; defaults to bilateral'
    )
    options = parse(parser, args)
    if options.arch and options.sharing:
        parser.error('--sharing is for a superformer (--space): a network that stands alone shares no channels')
    settings: dict[str, Any] = {'arch': options.arch} if options.arch else {'space': options.space}
    settings |= {'official': True} if options.arch else {'official': True, 'sharing': options.sharing or 'bilateral'}
    with refusing(options.source):
        with torch.device('meta'):
            backbone = ViTASDeiT(**settings)
        target = (to_official if options.to_official else to_vitnas)(read(options.source), backbone)
    key, note = ('model', None) if options.to_official else ('state_dict', backbone.note())
    write(options.target, key, target, note)
    print(f'{len(target)} tensors, digest {digest(target)[:16]}: {options.target}')
    if not options.to_official:
        print(config_line('ViTASDeiT', settings))


if __name__ == '__main__':
    main()
