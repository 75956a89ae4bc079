"""Convert checkpoints of ViT-ResNAS, supernets and fixed networks, to vitnas and back.

python tools/converters/vit_resnas.py vit_resnas_tiny.pth vit-resnas-tiny.pth
python tools/converters/vit_resnas.py vit_res_tiny.pth vit-res-tiny.pth --head-dims 64 64 64
python tools/converters/vit_resnas.py vit-resnas-tiny.pth vit_resnas_tiny.pth --to-official

The tool writes a checkpoint of an ``ImageClassifier`` and prints its backbone. If the zoo has no name for the
architecture, the tool writes it beside the target. Weights are kept bit for bit. A file does not show the size of its
heads. In the published ones, heads have 32, 48 and 64 channels in the three stages, except in ViT-Res-Tiny.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import finish, finish_foreign, make_parser, parse, refusing
from vitnas_core.backbones import ViTRes
from vitnas_core.backbones.foreign import read
from vitnas_core.families.vit_res.weights import HEAD_DIMS, find_backbone, to_official, to_vitnas


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    parser.add_argument('--head-dims', type=int, nargs='+', default=HEAD_DIMS, help='size of a head in each stage')
    options = parse(parser, args)
    with refusing(options.source):
        target = (to_official if options.to_official else to_vitnas)(read(options.source), options.head_dims)
    if options.to_official:
        finish_foreign(options.target, target)
    else:
        finish(options.target, target, ViTRes, find_backbone(target, options.head_dims))


if __name__ == '__main__':
    main()
