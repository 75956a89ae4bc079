"""Convert checkpoints of mmpretrain's Twins-SVT to vitnas and back.

python tools/converters/twins.py twins-svt-small_3rdparty_8xb128_in1k.pth twins-svt-s.pth --arch twins-svt-s
python tools/converters/twins.py twins-svt-s.pth svt-small.pth --arch twins-svt-s --to-mmpretrain

The tool writes a checkpoint of an ``ImageClassifier`` and prints its backbone. mmpretrain's network should have
``qkv_bias=True``, as in its published files. Weights are kept bit for bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import finish, finish_foreign, make_parser, parse, refusing
from vitnas_core.backbones import ViTASTwins
from vitnas_core.backbones.foreign import read
from vitnas_core.families.vitas.weights import twins_to_mmpretrain, twins_to_vitnas


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--arch', required=True, help='the architecture: a zoo name or a file')
    parser.add_argument('--to-mmpretrain', action='store_true', help="from vitnas to mmpretrain's layout")
    options = parse(parser, args)
    with refusing(options.source):
        with torch.device('meta'):
            backbone = ViTASTwins(arch=options.arch)
        target = (twins_to_mmpretrain if options.to_mmpretrain else twins_to_vitnas)(read(options.source), backbone)
    if options.to_mmpretrain:
        finish_foreign(options.target, target, 'state_dict')
    else:
        finish(options.target, target, ViTASTwins, dict(arch=options.arch))


if __name__ == '__main__':
    main()
