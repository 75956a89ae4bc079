"""Make scenes of digits and questions about them: ``python projects/vqa/tools/make_scenes_vqa.py``.

The tool draws scenes as make_scenes.py does, but more of them. It writes questions and answers in VQA v2's own format.
Answers are balanced against guessing. It needs no download; the same seed gives the same files.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # run as a script, it finds the repository's packages

from projects.vqa.vqa.scenes import guessed, write_questions
from vitnas_core.datasets import write_scenes
from vitnas_core.errors import VitnasError


def main(args: list[str] | None = None) -> None:
    """Make the dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, default=Path('data/scenes_vqa'), help='defaults to data/scenes_vqa')
    parser.add_argument('--train', type=int, default=3000, help='number of training scenes; defaults to 3000')
    parser.add_argument('--val', type=int, default=300, help='number of validation scenes; defaults to 300')
    parser.add_argument('--questions', type=int, default=10, help='average per scene; defaults to 10')
    parser.add_argument('--size', type=int, nargs=2, default=(96, 128), metavar=('H', 'W'), help='defaults to 96 128')
    parser.add_argument('--seed', type=int, default=0, help='defaults to 0')
    parser.add_argument('--overwrite', action='store_true', help='replace the scenes that are in the folder')
    options = parser.parse_args(args)
    try:
        write_scenes(options.out, options.train, options.val, tuple(options.size), options.seed, options.overwrite)
        asked = write_questions(options.out, options.questions, options.seed)
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
    for split, questions in asked.items():
        kinds = ', '.join(f'{kind} {count:,}' for kind, count in sorted(Counter(q.kind for q in questions).items()))
        print(f'{split}: {len(questions):,} questions ({kinds})')
    right = guessed(asked['train'], asked['val'])
    print(f'always the most frequent answer to a question: {100 * right:.1f} % right; written to {options.out}/vqa')


if __name__ == '__main__':
    main()
