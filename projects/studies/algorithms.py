"""Compare search algorithms: ``python projects/studies/algorithms.py CONFIG SUPERNET [SUPERNET ...] --out FILE.json``.

CONFIG is a search by evolution. Others get as many hold-out images: random search, successive halving (also with half
of the images) and evolution with a predictor. Evolution with racing leaves some images out. An architecture runs once
per supernet, so more seeds are cheap. FILE keeps every search. None is repeated: kill it at any time and start it
again, also with more seeds or supernets. The table is printed as Markdown.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

import vitnas_core  # noqa: F401  (before mm: it repairs imports)
from projects.studies.studylib.plan import StudyError
from projects.studies.studylib.progress import clock
from projects.studies.studylib.remembered import Bench, Memory
from projects.studies.studylib.runs import NAMES, Run, read_runs, table, write_runs
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import Racing
from vitnas_core.search import Evolution, Halving, Random, SearchAlgorithm
from vitnas_core.search.checks import digest_data
from vitnas_core.search.settings import split

Searches = Mapping[str, tuple[SearchAlgorithm, Racing | None]]


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', type=Path, help='search config with an evolution')
    parser.add_argument('supernets', type=Path, nargs='+', help='checkpoints of supernets')
    parser.add_argument('--seeds', type=int, default=8, help='seeds per supernet, from 0 on; defaults to 8')
    parser.add_argument('--searches', nargs='+', choices=NAMES, default=list(NAMES), help='defaults to all')
    parser.add_argument('--baseline', choices=NAMES, default='random', help='to compare with; defaults to random')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='changes to the config')
    parser.add_argument('--out', type=Path, required=True, help='JSON file of all searches')
    return parser.parse_args(args)


def make_searches(train_cfg: Mapping[str, Any], memory: Memory) -> Searches:
    """Build the searches: the evolution of a config, and others for as many images.

    Raises:
        StudyError: The config has no evolution.
    """
    settings, _ = split(Evolution, train_cfg.get('algorithm', train_cfg))
    if 'population' not in settings:
        raise StudyError('train_cfg should be a search by evolution with a `population`')
    evolution = Evolution(**{**settings, 'predictor': None})
    images = evolution.max_candidates * memory.ends[-1]
    return {
        'random': (Random(evolution.max_candidates), None),
        'half': (largest_halving(memory, images // 2), None),
        'halving': (largest_halving(memory, images), None),
        'evolution': (evolution, None),
        'predictor': (Evolution(**{**settings, 'predictor': settings.get('predictor') or {}}), None),
        'racing': (evolution, Racing(**(train_cfg.get('racing') or dict(confidence=0.99)))),
    }


def largest_halving(memory: Memory, images: int) -> Halving:
    """Return successive halving with the most architectures for at most so many images."""

    def seen(halving: Halving) -> int:
        last = halving.max_rounds - 1
        fractions = [float(halving.factor) ** (number - last) for number in range(last + 1)]
        sizes = [math.ceil(halving.num_candidates / halving.factor**number) for number in range(last + 1)]
        return sum(size * memory.ends[memory.num_batches(part) - 1] for size, part in zip(sizes, fractions))

    candidates = map(Halving, range(images // memory.ends[0], 0, -1))
    return next((halving for halving in candidates if seen(halving) <= images), Halving(1))


def describe(config: Config, memory: Memory, searches: Searches) -> dict[str, Any]:
    """Return what results depend on, besides supernet and seed."""
    rest = {name: config.train_cfg.get(name) for name in ('evaluator', 'metric', 'constraint', 'recalibrate')}
    return {
        'config': Path(config.filename).name,
        'data': digest_data([config.train_dataloader.dataset, config.test_dataloader.dataset, rest]),
        'images': memory.ends[-1],
        'batch_size': memory.ends[0],
        'searches': {
            name: {field.name: getattr(algorithm, field.name) for field in algorithm.fields()}
            | {'racing': None if racing is None else asdict(racing)}
            for name, (algorithm, racing) in searches.items()
        },
    }


def compare(options: argparse.Namespace) -> str:
    """Run the searches that are not in the file yet; return the table.

    Raises:
        VitnasError: A file is missing, or the file of results is of other searches.
    """
    for path in (options.config, *options.supernets):
        if not path.is_file():
            raise StudyError(f'there is no file {path}; train a supernet with tools/train.py first')
    config = Config.fromfile(options.config)
    config.merge_from_dict(options.cfg_options)
    begun, asked = time.monotonic(), []
    runs: list[Run] = []
    for path in options.supernets:
        bench = Bench(config, path)
        searches = make_searches(config.train_cfg, bench.memory)
        about = describe(config, bench.memory, searches)
        runs = read_runs(options.out, about)
        asked += [(bench.digest, name, seed) for name in options.searches for seed in range(options.seeds)]
        for seed in range(options.seeds):
            for name in options.searches:
                if (bench.digest, name, seed) not in {(run.supernet, run.search, run.seed) for run in runs}:
                    runs.append(bench.run(name, *searches[name], seed))
                    write_runs(options.out, about, runs)
            known = f'{len(bench.memory.scores):,} architectures scored'
            print(f'{path}: seed {seed}, {known}; elapsed {clock(time.monotonic() - begun)}', flush=True)
    found = {(run.supernet, run.search, run.seed): run for run in runs}
    return table([found[key] for key in asked], options.baseline)


def main(args: list[str] | None = None) -> None:
    """Compare search algorithms and print the table."""
    try:
        print(compare(parse_args(args)))
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None


if __name__ == '__main__':
    main()
