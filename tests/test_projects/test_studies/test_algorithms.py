"""Searches with a memory equal those of the real loop, and count the images that it runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.runner import Runner

from projects.studies import algorithms
from projects.studies.algorithms import largest_halving, make_searches
from projects.studies.studylib.plan import ROOT, StudyError
from projects.studies.studylib.remembered import Bench, Replay
from projects.studies.studylib.runs import Run, table
from tests.test_search.common import config, save_supernet, search
from vitnas_core.evaluation import Job, Racing
from vitnas_core.search import Evolution, Halving, ranked

EVOLUTION = dict(population=8, parents=3, generations=4, mutations=4, crossovers=4)
IMAGES = 8 * 4 * 100


@pytest.fixture(scope='module')
def searched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A search of a supernet on 100 images in 9 batches, and its checkpoint."""
    folder = tmp_path_factory.mktemp('algorithms')
    save_supernet(folder)
    limits = dict(macs=(None, 2.0e6))
    cfg = config(folder / 'run', dict(type='vitnas.EvolutionSearchLoop', constraint=limits, **EVOLUTION))
    cfg['train_dataloader']['batch_size'] = 12
    digits = dict(
        type='vitnas.Digits', split='test', pipeline=cfg['train_dataloader']['dataset']['dataset']['pipeline']
    )
    return {**cfg, 'test_dataloader': {**cfg['train_dataloader'], 'dataset': digits}}


@pytest.fixture(scope='module')
def bench(searched: dict[str, Any]) -> Bench:
    return Bench(Config(searched), searched['load_from'])


def test_replayed_scores_are_those_of_the_scorer(bench: Bench, rng: np.random.Generator) -> None:
    """Exactly, with the images that it runs, whether or not racing drops the architecture."""
    scorer, memory = bench.memory.scorer, bench.memory
    archs = bench.space.draw_several(8, rng)
    floor = sorted(memory.recall(arch)[-1] for arch in archs)[4]
    dropped = []
    for arch in archs:
        for fraction, racing in (
            (1.0, None), (1 / 3, None), (1 / 9, None), (0.01, None), (1.0, Racing(1.0)), (1.0, Racing(0.6)),
            (1 / 3, Racing(0.6)),
        ):  # fmt: skip
            job, replay, scorer.racing = Job(arch, fraction, floor), Replay(memory, racing), racing
            found = replay.score(job)
            assert found == scorer.score(job)
            assert replay.images == len(scorer.evaluator.metrics[0].results)
            dropped += [] if found.complete else [(arch, racing)]
    scorer.racing = None
    assert 0 < len(dropped) < 16


@pytest.mark.parametrize('name', ['random', 'half', 'halving', 'evolution', 'racing'])
def test_a_search_with_a_memory_is_that_of_the_loop(
    name: str, searched: dict[str, Any], bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, '_log_env', lambda *_: None)  # asks every compiler for its version
    algorithm, racing = make_searches(searched['train_cfg'], bench.memory)[name]
    found = bench.run(name, algorithm, racing, seed=0)
    settings = {field.name: getattr(algorithm, field.name) for field in algorithm.fields()}
    kept = {key: searched['train_cfg'][key] for key in ('evaluator', 'constraint', 'input_size', 'num_classes')}
    own = dict(type=f'vitnas.{type(algorithm).__name__}', **settings)
    raced = {} if racing is None else dict(racing=dataclasses.asdict(racing))
    cfg = {**searched, 'work_dir': str(tmp_path), 'experiment_name': f'loop_{name}', 'test_dataloader': None}
    loop = search({**cfg, 'train_cfg': dict(type='vitnas.SearchLoop', algorithm=own, **kept, **raced)})
    best = ranked(loop.history)[0]
    assert found.score == best.score and found.best == best.arch.digest()
    assert found.score == bench.memory.scorer.score(Job(best.arch)).value
    assert found.test == bench.tests.scorer.score(Job(best.arch)).value
    assert found.architectures == len({candidate.arch for candidate in loop.history})
    whole = sum(bench.memory.ends[bench.memory.num_batches(c.fraction) - 1] for c in loop.history)
    assert found.images < whole if name == 'racing' else found.images == whole <= IMAGES


def test_halving_gets_as_many_architectures_as_the_images_allow(bench: Bench) -> None:
    """With 100 images in batches of 12, a ninth is 12 images and a third is 36."""

    def seen(num: int) -> int:
        return num * 12 + -(-num // 3) * 36 + -(-num // 9) * 100

    for images in (IMAGES, IMAGES // 2, 1000):
        num = largest_halving(bench.memory, images).num_candidates
        assert num >= 9 and seen(num) <= images < seen(num + 1)
    assert largest_halving(bench.memory, 400) == Halving(9)  # in three rounds; eight, in two, see 588 images
    assert largest_halving(bench.memory, 1) == Halving(1)


def test_the_script_repeats_no_search(
    searched: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Config(searched).dump(tmp_path / 'search.py')
    out, net = tmp_path / 'out.json', Path(searched['load_from'])
    args = [str(tmp_path / 'search.py'), str(net), '--out', str(out), '--searches', 'random', 'halving', 'evolution']
    ran: list[str] = []
    run = Bench.run

    def counted(self: Bench, name: str, *rest: Any, **more: Any) -> Run:
        ran.append(name)
        return run(self, name, *rest, **more)

    monkeypatch.setattr(Bench, 'run', counted)
    algorithms.main([*args, '--seeds', '1'])
    first = capsys.readouterr().out
    algorithms.main([*args, '--seeds', '1'])
    assert ran == ['random', 'halving', 'evolution']
    assert capsys.readouterr().out.splitlines()[-5:] == first.splitlines()[-5:]
    algorithms.main([*args, '--seeds', '2'])
    runs = [Run(**one) for one in json.loads(out.read_text())['runs']]
    assert ran == [one.search for one in runs] == ['random', 'halving', 'evolution'] * 2
    assert [one.seed for one in runs] == [0, 0, 0, 1, 1, 1]
    assert capsys.readouterr().out.splitlines()[-5:] == table(runs, 'random').splitlines()
    with pytest.raises(SystemExit, match='has searches with other settings'):
        algorithms.main([*args, '--cfg-options', 'train_cfg.generations=5'])
    with pytest.raises(SystemExit, match='there is no file .*missing.pth; train a supernet'):
        algorithms.main([args[0], str(tmp_path / 'missing.pth'), '--out', str(out)])


def test_the_table_by_hand() -> None:
    def one(search: str, net: str, seed: int, score: float, images: int = 100, best: str = 'a') -> Run:
        return Run(net, search, seed, score, score - 10, images, 5, best)

    runs = [one('evolution', 'x', 0, 50.0), one('evolution', 'x', 1, 52.0), one('evolution', 'y', 0, 60.0)]
    runs += [one('racing', 'x', 0, 50.0, 90), one('racing', 'x', 1, 51.0, 80, 'b'), one('racing', 'y', 0, 60.0, 95)]
    lines = table(runs, 'evolution').splitlines()
    assert lines[2] == '| evolution | 5 | 100 | 54.00 (51.00 ± 1.41, 60.00) | – | 2 of 3 | 44.0 | – |'
    # mean -1/3 and standard deviation 0.577 of three: -0.333 ± 4.303 · 0.333
    difference = '−0.33 (−1.77 to +1.10)'
    assert lines[3] == (
        f'| evolution with racing | 5 | 88 (80 to 95) | 53.67 (50.50 ± 0.71, 60.00) | {difference} | 1 of 3 | 43.7 | '
        f'{difference} |'
    )
    assert lines[-1].endswith('evolution in 2 of 3 searches, with 5.0 to 20.0 % fewer images.')


def test_settings_of_a_config_reach_the_searches(bench: Bench) -> None:
    """Also of ``vitnas.SearchLoop``, whose algorithm has a config of its own."""
    own = dict(type='vitnas.Evolution', **EVOLUTION, predictor=dict(trees=3))
    found = make_searches(dict(algorithm=own, racing=dict(confidence=0.9)), bench.memory)
    assert found['evolution'] == (Evolution(**EVOLUTION), None)
    assert found['predictor'] == (Evolution(**EVOLUTION, predictor=dict(trees=3)), None)
    assert found['racing'] == (Evolution(**EVOLUTION), Racing(0.9))
    assert found['random'][0].max_candidates == 32
    with pytest.raises(StudyError, match='should be a search by evolution'):
        make_searches(dict(type='vitnas.RandomSearchLoop', num_candidates=9), bench.memory)


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    data = json.loads((ROOT / 'projects/studies/results/algorithms_digits.json').read_text())
    *rows, _, racing = table([Run(**one) for one in data['runs']], 'random').splitlines()
    readme = (ROOT / 'projects/classification/configs/autoformer/README.md').read_text()
    assert '\n'.join(rows) in readme
    assert 'in 24 of 24 searches, with 4.7 to 15.5 % fewer' in racing and 'with 4.7 to 15.5 % fewer' in readme
