"""Score architectures of a trained supernet with inherited weights; used as steps of studies.

    score.py rank CONFIG CHECKPOINT TRUTH         correlations of hold-out scores with architectures trained alone
    score.py compare CONFIG CHECKPOINT ARCH       test scores: searched, random of the same MACs, largest, smallest
    score.py draw CONFIG CHECKPOINT ARCH          random.json: an architecture of the same MACs; largest.json
    score.py ends CONFIG CHECKPOINT [CONFLICTS]   test scores: largest, smallest; and the ratio of conflicts.csv
    score.py budgets CONFIG CHECKPOINT SEARCH…    test scores of the best under --budgets, evaluations and seconds
    score.py space SPACE_SEARCH                   E-T error of each step of a space search, from its work dir

CONFIG is a search config: its train_dataloader is the hold-out part, its test_dataloader the test set.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from mmengine.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

import vitnas_core  # noqa: F401  (before mm: it repairs imports)
from projects.studies.studylib.results import write_measures
from projects.studies.studylib.scoring import Supernet, compare, ends, rank, under_budgets
from projects.studies.studylib.truth import Truth
from vitnas_core import zoo
from vitnas_core.errors import VitnasError
from vitnas_core.search import read_candidates
from vitnas_core.training.hooks import read_conflicts
from vitnas_core.utils.fileio import atomic_write


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    added = {name: commands.add_parser(name) for name in ('rank', 'compare', 'draw', 'ends', 'budgets', 'space')}
    for name, command in added.items():
        if name != 'space':
            command.add_argument('config', help='search config')
            command.add_argument('checkpoint', help="the supernet's weights")
        command.add_argument('--out', type=Path, required=True, help='folder for measures.json and more')
    added['space'].add_argument('space_search', type=Path, help='work dir of a space search')
    added['rank'].add_argument('truth', type=Path)
    for name in ('compare', 'draw'):
        added[name].add_argument('arch', type=Path)
        added[name].add_argument('--seed', type=int, default=0, help='seed of the draw; defaults to 0')
    added['compare'].add_argument('--num-random', type=int, default=10, help='random architectures; defaults to 10')
    added['ends'].add_argument('conflicts', type=Path, nargs='?', help='conflicts.csv of the training')
    added['budgets'].add_argument('searches', type=Path, nargs='+', help='work dirs of one search or of several')
    added['budgets'].add_argument('--budgets', type=float, nargs='+', required=True, help='in MACs')
    return parser.parse_args(args)


def space_quality(folder: Path) -> dict[str, float]:
    """Read ``et_error_<i>``, ``expected_<i>``, ``top_<i>`` and ``moved_<i>`` (dimensions) of each space search step.

    Raises:
        VitnasError: The folder holds no step.
    """
    measures: dict[str, float] = {}
    i = 0
    while (path := folder / f'step_{i}/et_errors.json').is_file():
        step = json.loads(path.read_text())
        measures |= {f'{name}_{i}': step[name] for name in ('et_error', 'expected', 'top')}
        measures[f'moved_{i}'] = sum(dimension['steps'] != 0 for dimension in step['dimensions'])
        i += 1
    if not measures:
        raise VitnasError(f'{folder} holds no step of a space search')
    return measures


def score_supernet(options: argparse.Namespace) -> dict[str, float]:
    """Run a command on a supernet and return its measures."""
    supernet = Supernet(Config.fromfile(options.config), options.checkpoint)
    if options.command == 'rank':
        truth = Truth.from_file(options.truth)
        measures, scores = rank(supernet, truth)
        rows = [f'{e.macs},{e.params},{e.score},{s}' for e, s in zip(truth.archs, scores)]
        atomic_write(options.out / 'scores.csv', '\n'.join(['macs,params,truth,score', *rows, '']))
        return measures
    if options.command == 'draw':
        arch = zoo.load_arch(options.arch)
        [drawn] = supernet.draw(supernet.price(arch).macs, 1, np.random.default_rng(options.seed))
        archs = {'searched': arch, 'random': drawn, 'largest': supernet.space.largest()}
        for name in ('random', 'largest'):
            atomic_write(options.out / f'{name}.json', archs[name].to_json())
        return {f'{name}_macs': float(supernet.price(one).macs) for name, one in archs.items()}
    if options.command == 'ends':
        measures = ends(supernet)
        if options.conflicts is not None:
            cosines = [row[2] for row in read_conflicts(options.conflicts)]
            measures['conflict_ratio'] = 100 * float(np.mean(np.array(cosines) < 0))
        return measures
    if options.command == 'budgets':
        found = [c for folder in options.searches for c in read_candidates(folder / 'history.jsonl')]
        return under_budgets(supernet, found, options.budgets)
    return compare(supernet, zoo.load_arch(options.arch), options.num_random, np.random.default_rng(options.seed))


def main(args: list[str] | None = None) -> None:
    """Score a supernet, or the spaces of a space search."""
    options = parse_args(args)
    try:
        measures = space_quality(options.space_search) if options.command == 'space' else score_supernet(options)
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
    write_measures(options.out / 'measures.json', measures)
    print(json.dumps(measures, indent=1))


if __name__ == '__main__':
    main()
