"""Convert AutoFormer's published checkpoints to vitnas and back, bit for bit.

python tools/converters/autoformer.py supernet-tiny.pth autoformer-tiny_supernet.pth
python tools/converters/autoformer.py supernet-tiny.pth autoformer-tiny.pth --arch autoformer-tiny
python tools/converters/autoformer.py autoformer-tiny_supernet.pth supernet-tiny.pth --to-official

The tool writes a checkpoint of an ``ImageClassifier`` and prints its backbone. ``--arch`` keeps the part of one
architecture, which needs no ``official=True``. ``--to-official`` writes the qkv bias as it is stored. This is correct
only for networks with ``official=True``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from tools.converters.common import config_line, finish, finish_foreign, make_parser, parse, refusing
from vitnas_core.backbones import AutoFormer
from vitnas_core.backbones.foreign import read
from vitnas_core.families.autoformer.weights import cut, find_settings, find_space, to_official, to_vitnas


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
        ours = source if options.to_official else target
        space = find_space(ours, options.space)
        settings = find_settings(ours, space)
        if options.arch:
            target, settings = cut(target, space, settings, options.arch)
        else:
            settings = dict(space=options.space or space.name) | settings
    if not options.to_official:
        finish(options.target, target, AutoFormer, settings)
        return
    print('The qkv bias is written as it is stored: right for a network built with official=True, wrong for others.')
    finish_foreign(options.target, target)
    print(config_line(AutoFormer, settings))


if __name__ == '__main__':
    main()
