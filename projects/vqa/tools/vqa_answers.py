"""List the most frequent answers of VQA v2: ``python projects/vqa/tools/vqa_answers.py ANNOTATIONS… --out FILE``.

ANNOTATIONS are VQA's files, such as v2_mscoco_train2014_annotations.json. A model chooses among these answers.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # run as a script, it finds the repository's packages

from projects.vqa.vqa import frequent_answers
from vitnas_core.errors import DatasetError, VitnasError
from vitnas_core.utils.fileio import atomic_write


def read_annotations(path: Path) -> list[dict]:
    """Read the annotations of a file.

    Raises:
        DatasetError: The file is missing, or is not one of VQA v2.
    """
    try:
        annotations = json.loads(path.read_text(encoding='utf-8'))['annotations']
        assert all('multiple_choice_answer' in one for one in annotations)
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise DatasetError(f'{path} should be a file of annotations as VQA v2 has them') from None
    return annotations


def main(args: list[str] | None = None) -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('annotations', type=Path, nargs='+', help='files of annotations')
    parser.add_argument('--num', type=int, default=3129, help='number of answers; defaults to 3129')
    parser.add_argument('--out', type=Path, required=True, help='JSON file to write')
    options = parser.parse_args(args)
    try:
        found = [one for path in options.annotations for one in read_annotations(path)]
        answers = frequent_answers(found, options.num)
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
    atomic_write(options.out, json.dumps(answers, ensure_ascii=False) + '\n')
    print(f'{len(answers):,} answers to {len(found):,} questions: {options.out}')


if __name__ == '__main__':
    main()
