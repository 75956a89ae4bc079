"""Make scenes of handwritten digits for detection and segmentation: ``python tools/dataset_converters/make_scenes.py``.

Scenes show real digits from scikit-learn on textured backgrounds. The tool writes images, boxes and masks in COCO's
format, and label maps in ADE20K's format. It needs no download, and the same seed gives the same files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vitnas_core.datasets import write_scenes
from vitnas_core.errors import VitnasError


def main(args: list[str] | None = None) -> None:
    """Make the dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, default=Path('data/scenes'), help='defaults to data/scenes')
    parser.add_argument('--train', type=int, default=600, help='number of training scenes; defaults to 600')
    parser.add_argument('--val', type=int, default=150, help='number of validation scenes; defaults to 150')
    parser.add_argument('--size', type=int, nargs=2, default=(96, 128), metavar=('H', 'W'), help='defaults to 96 128')
    parser.add_argument('--seed', type=int, default=0, help='defaults to 0')
    parser.add_argument('--overwrite', action='store_true', help='replace existing scenes in the folder')
    options = parser.parse_args(args)
    try:
        written = write_scenes(
            options.out, options.train, options.val, tuple(options.size), options.seed, options.overwrite
        )
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
    there = '' if written else ' (already there, nothing to do)'
    print(f'{options.train:,} training and {options.val:,} validation scenes: {options.out}{there}')


if __name__ == '__main__':
    main()
