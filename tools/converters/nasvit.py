"""Convert supernets of NASViT to vitnas and back.

python tools/converters/nasvit.py nasvit_supernet.pth nasvit.pth
python tools/converters/nasvit.py nasvit.pth nasvit_supernet.pth --to-official

The tool writes a checkpoint of an ``ImageClassifier`` with the backbone
``dict(type='vitnas.NASViT', space='nasvit', official=True)``. From a published file, it takes the averaged weights. It
drops tensors that the published network never reads: copies of batch-norm statistics, scaling vectors of depths and
sizes outside the space, positions of maps larger than its own, and convolutions of residuals that keep their width. On
the way back, these get their initial values.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import finish, finish_foreign, make_parser, parse, refusing
from vitnas_core import zoo
from vitnas_core.backbones import NASViT
from vitnas_core.backbones.foreign import read
from vitnas_core.families.nasvit.weights import to_official, to_vitnas


def main(args: list[str] | None = None) -> None:
    """Convert one file."""
    parser = make_parser(__doc__)
    parser.add_argument('--to-official', action='store_true', help='from vitnas to the published layout')
    parser.add_argument('--space', default='nasvit', help='name or file of the search space')
    options = parse(parser, args)
    with refusing(options.source):
        space = zoo.load_space(options.space)
        state = read(options.source, ('model_ema', 'model', 'state_dict'))
        target = (to_official if options.to_official else to_vitnas)(state, space)
    if options.to_official:
        finish_foreign(options.target, target)
    else:
        finish(options.target, target, NASViT, dict(space=options.space, official=True))


if __name__ == '__main__':
    main()
