"""Convert checkpoints of mmpretrain's Twins-SVT to vitnas and back.

python tools/converters/twins.py twins-svt-small_3rdparty_8xb128_in1k.pth twins-svt-s.pth --arch twins-svt-s
python tools/converters/twins.py twins-svt-s.pth svt-small.pth --arch twins-svt-s --to-mmpretrain

The result is a checkpoint of an ``ImageClassifier``; the backbone that runs it is printed. mmpretrain's should have
``qkv_bias=True``, as its published ones have. Every bit is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import config_line, digest, join, make_parser, parse, part, read, refusing, write
from vitnas_core.backbones import ViTASTwins
from vitnas_core.errors import CheckpointError

_NAMES = ('weight', 'bias')
# Theirs → ours, of a block.
_BLOCK = {
    'norm1': ('norm1',),
    'attn.proj': ('attn.proj',),
    'norm2': ('norm2',),
    'ffn.layers.0.0': ('fc1',),
    'ffn.layers.1': ('fc2',),
}
_LOCAL = {'attn.qkv': ('attn.q', 'attn.k', 'attn.v')}
_GLOBAL = {'attn.q': ('attn.q',), 'attn.kv': ('attn.k', 'attn.v'), 'attn.sr': ('attn.sr',), 'attn.norm': ('attn.norm',)}


def name_table(backbone: ViTASTwins) -> dict[str, tuple[str, ...]]:
    """mmpretrain's name → ours; what is one tensor there may be several here.

    Args:
        backbone: The network, a fixed one.
    """
    layers: dict[str, tuple[str, ...]] = {}
    for s, stage in enumerate(backbone.arch.stages):
        layers[f'patch_embeds.{s}.projection'] = (f'stages.{s}.proj',)
        layers[f'patch_embeds.{s}.norm'] = (f'stages.{s}.norm',)
        layers[f'position_encodings.{s}.proj'] = (f'stages.{s}.peg',)
        layers[f'norm_after_stage{s}'] = (f'norm{s}',)
        for b, block in enumerate(stage.blocks):
            if block is None:
                raise CheckpointError(f'stages[{s}].blocks[{b}] is absent, which mmpretrain has no place for')
            kind = _LOCAL if block['op'] == 'local' else _GLOBAL
            for theirs, ours in {**_BLOCK, **kind}.items():
                layers[f'stages.{s}.{b}.{theirs}'] = tuple(f'stages.{s}.blocks.{b}.{block["op"]}.{o}' for o in ours)
    table = {
        f'backbone.{theirs}.{name}': tuple(f'backbone.{layer}.{name}' for layer in ours)
        for theirs, ours in layers.items()
        for name in _NAMES
    }
    table |= {f'head.fc.{name}': (f'head.fc.{name}',) for name in _NAMES}
    known = {f'backbone.{name}' for name in backbone.state_dict()}
    return {theirs: ours for theirs, ours in table.items() if ours[0] in known or theirs.startswith('head.')}


def to_vitnas(state: Mapping[str, Tensor], backbone: ViTASTwins) -> dict[str, Tensor]:
    """Rename the tensors of mmpretrain's layout, and part queries, keys and values.

    Raises:
        CheckpointError: They are not of this network.
    """
    return part(state, name_table(backbone), backbone, 'a Twins-SVT of this architecture')


def to_mmpretrain(state: Mapping[str, Tensor], backbone: ViTASTwins) -> dict[str, Tensor]:
    """The inverse of :func:`to_vitnas`.

    Raises:
        CheckpointError: The weights are not of this network.
    """
    return join(state, name_table(backbone), backbone)


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--arch', required=True, help='the architecture: a zoo name or a file')
    parser.add_argument('--to-mmpretrain', action='store_true', help="from vitnas to mmpretrain's layout")
    options = parse(parser, args)
    with refusing(options.source):
        with torch.device('meta'):
            backbone = ViTASTwins(arch=options.arch)
        target = (to_mmpretrain if options.to_mmpretrain else to_vitnas)(read(options.source), backbone)
    write(options.target, 'state_dict', target, None if options.to_mmpretrain else backbone.note())
    print(f'{len(target)} tensors, digest {digest(target)[:16]}: {options.target}')
    if not options.to_mmpretrain:
        print(config_line('ViTASTwins', {'arch': options.arch}))


if __name__ == '__main__':
    main()
