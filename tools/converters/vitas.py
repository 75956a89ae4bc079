"""Convert checkpoints of ViTAS's DeiT space, superformers and networks that stand alone, to vitnas and back.

python tools/converters/vitas.py ViTAS_4.9G.pth vitas-deit-b.pth --arch vitas-deit-b
python tools/converters/vitas.py superformer.pth vitas-deit-tiny.pth --space vitas-deit-tiny --sharing bilateral
python tools/converters/vitas.py vitas-deit-b.pth ViTAS_4.9G.pth --arch vitas-deit-b --to-official

The tool writes a checkpoint of an ``ImageClassifier`` and prints its backbone, which has ``official=True``. A file does
not show the number of heads, so ``--arch`` or ``--space`` has to give it. Nor does it show whether a superformer was
trained from both ends (BCNet) or from one (AutoSlim, ``--sharing ordinal``). Weights are kept bit for bit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import finish, finish_foreign, make_parser, parse, refusing
from vitnas_core.backbones import ViTASDeiT
from vitnas_core.backbones.foreign import read
from vitnas_core.families.vitas.weights import deit_to_official, deit_to_vitnas


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
    settings: dict[str, Any] = dict(arch=options.arch) if options.arch else dict(space=options.space)
    settings |= dict(official=True) if options.arch else dict(official=True, sharing=options.sharing or 'bilateral')
    with refusing(options.source):
        with torch.device('meta'):
            backbone = ViTASDeiT(**settings)
        target = (deit_to_official if options.to_official else deit_to_vitnas)(read(options.source), backbone)
    if options.to_official:
        finish_foreign(options.target, target)
    else:
        finish(options.target, target, ViTASDeiT, settings)


if __name__ == '__main__':
    main()
