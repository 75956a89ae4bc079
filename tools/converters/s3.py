"""Convert checkpoints of S3 (AutoFormerV2), the published ones and timm's, to vitnas and back.

python tools/converters/s3.py S3-T.pth s3-t.pth
python tools/converters/s3.py swin_s3_tiny_224.safetensors s3-t.pth
python tools/converters/s3.py s3-t.pth S3-T.pth --to-official
python tools/converters/s3.py s3-t.pth swin_s3_tiny_224.safetensors --to-timm

The names in a file show which of the two layouts it has. The tool writes a checkpoint of an ``ImageClassifier`` and
prints its backbone. If the zoo has no name for the architecture, the tool writes it beside the target. Parameters are
kept bit for bit. Buffers, i.e. indices and masks, are dropped: they follow from the image size. A Swin of these layouts
is converted, too: it is an S3 with other windows.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import finish, finish_foreign, make_parser, parse, refusing
from vitnas_core.backbones import S3
from vitnas_core.backbones.foreign import read
from vitnas_core.families.s3.weights import find_backbone, to_official, to_timm, to_vitnas


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
    if convert is to_vitnas:
        finish(options.target, target, S3, find_backbone(target))
    else:
        finish_foreign(options.target, target, 'model' if options.to_official else 'state_dict')


if __name__ == '__main__':
    main()
