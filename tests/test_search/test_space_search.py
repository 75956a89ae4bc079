"""Searching the search space: its files, its errors, and kills, which cost only the interrupted part."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config

from tests.families import FAMILIES
from tests.supernets import model_config, supernet_config
from vitnas_core.checkpoints import load_file, load_overlap
from vitnas_core.costs import Constraint
from vitnas_core.errors import CheckpointError, InfeasibleError, VitnasError
from vitnas_core.launch import make_runner
from vitnas_core.search import Predictor, Random, SearchLoop, SpaceSearch, read_candidates
from vitnas_core.search.space_quality import Sample, SpaceEvolution, SpaceQuality
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.zoo import load_space

STEPS = {
    's3': dict(depth=1, embed_dim=8, num_heads=1, mlp_ratio=0.5, window_size=1),
    'autoformer': dict(depth=1, embed_dim=12, num_heads=1, mlp_ratio=0.5),
}
THRESHOLD = 8.0  # scores are of 16 images: 6.25 % each
SEARCH = dict(
    type='vitnas.EvolutionSearchLoop', evaluator=dict(type='mmpretrain.Accuracy'), input_size=32, num_classes=10,
    population=4, parents=2, generations=2, mutations=2, crossovers=2,
)  # fmt: skip


def config(work_dir: Path, family: str = 's3', **changes: Any) -> Config:
    """Two moves of a space on 80 images, each supernet trained for 2 short epochs."""
    cfg = supernet_config(
        work_dir, images=80, batch_size=16, augment=False, max_epochs=2, model=model_config(FAMILIES[family])
    )
    cfg.launcher, cfg.runner_type = 'none', 'vitnas.SpaceSearch'
    settings = dict(
        iterations=2, num_samples=6, evolution=dict(steps=STEPS[family], threshold=THRESHOLD), search=SEARCH
    )
    cfg.space_search = {**settings, **changes}
    return cfg


def run(cfg: Config) -> SearchSpace:
    return make_runner(cfg).train()


def results(folder: Path) -> dict[str, Any]:
    """What a space search found, without how long it took."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob('step_*/*.json')) + sorted(folder.glob('step_*/samples.csv')):
        found[str(path.relative_to(folder))] = path.read_text()
    for path in sorted(folder.glob('step_*/*/history.jsonl')):
        found[str(path.relative_to(folder))] = [(c.arch, c.score) for c in read_candidates(path)]
    return found


@pytest.fixture(scope='module')
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole space search."""
    folder = tmp_path_factory.mktemp('space') / 'run'
    run(config(folder))
    return folder


def test_every_step_leaves_its_files(finished: Path) -> None:
    assert sorted(path.name for path in finished.glob('step_*')) == ['step_0', 'step_1', 'step_2']
    for step in range(3):
        folder = finished / f'step_{step}'
        space, quality = load_space(folder / 'space.json'), json.loads((folder / 'et_errors.json').read_text())
        checkpoint = folder / json.loads((folder / 'supernet.json').read_text())['checkpoint']
        assert checkpoint.name == 'epoch_2.pth' and checkpoint.is_file()
        with (folder / 'samples.csv').open() as file:
            rows = list(csv.DictReader(file))
        candidates = read_candidates(folder / 'samples/history.jsonl')
        assert len(rows) == len(candidates) == quality['count'] == 6
        for row, candidate in zip(rows, candidates):
            assert candidate.arch in space
            assert float(row['error']) == pytest.approx(100 - candidate.score)
            assert float(row['macs']) == candidate.cost['macs']
            assert row['stages[1].depth'] == str(len(candidate.arch.stages[1].blocks))
            heads = [str(block['num_heads']) for block in candidate.arch.stages[0].blocks]
            assert row['stages[0].block.num_heads'].split() == heads
        assert quality['et_error'] == SpaceQuality.of(float(row['error']) for row in rows).et_error
        assert bool(quality['dimensions']) == (step < 2)
    best = Arch.from_json((finished / 'step_2/search/best_arch.json').read_text())
    assert best in load_space(finished / 'step_2/space.json')
    for name in ('report.html', 'space_steps.png', 'error_distribution.png', 'step_2/search/report.html'):
        assert (finished / name).stat().st_size > 1000
    assert 'step_2/search/report.html' in (finished / 'report.html').read_text()


def test_a_space_moves_as_its_samples_say(finished: Path) -> None:
    """Each space is the one before it, moved by its own samples; so what is recorded can be checked."""
    evolution = SpaceEvolution(STEPS['s3'], threshold=THRESHOLD)
    moved = 0
    for step in range(2):
        folder = finished / f'step_{step}'
        space = load_space(folder / 'space.json')
        with (folder / 'samples.csv').open() as file:
            errors = [float(row['error']) for row in csv.DictReader(file)]
        archs = [candidate.arch for candidate in read_candidates(folder / 'samples/history.jsonl')]
        tendencies = evolution.tendencies(space, [Sample(*pair) for pair in zip(archs, errors)])
        assert [t.to_dict() for t in tendencies] == json.loads((folder / 'et_errors.json').read_text())['dimensions']
        after = load_space(finished / f'step_{step + 1}/space.json')
        assert evolution.evolve(space, tendencies).stages == after.stages
        assert after.name == f's3-test-{step + 1}'
        moved += sum(tendency.steps != 0 for tendency in tendencies)
    assert moved


def test_a_space_does_not_outgrow_its_limits(tmp_path: Path) -> None:
    """However steep the slopes are, a tenth of the moved space is within the limits."""
    limited = dict(SEARCH, constraint=dict(macs=(None, 1.6e6)))
    evolution = dict(steps=STEPS['s3'], threshold=0.01)
    search = make_runner(config(tmp_path / 'run', iterations=1, evolution=evolution, search=limited))
    last = search.train()
    found = json.loads((tmp_path / 'run/step_0/et_errors.json').read_text())['dimensions']
    assert any(dimension['steps'] < dimension['wanted'] for dimension in found)
    assert search._room(last, Constraint(limited['constraint']))[0] >= 0.1
    # What goes down is not held back, but for the last choice.
    downs = [dimension for dimension in found if dimension['wanted'] < 0]
    assert all(0 >= dimension['steps'] >= dimension['wanted'] for dimension in downs)
    assert all(len(dimension['moved']) == 1 for dimension in downs if dimension['steps'] > dimension['wanted'])


def test_the_same_again(finished: Path, tmp_path: Path) -> None:
    run(config(tmp_path / 'run'))
    assert results(tmp_path / 'run') == results(finished)


def test_what_is_finished_is_not_repeated(finished: Path, tmp_path: Path) -> None:
    """After a cut in the last step, nothing of the first ones is touched; more iterations go on from there."""
    shutil.copytree(finished, tmp_path / 'run', copy_function=shutil.copy2)
    for name in ('step_1/samples.csv', 'step_2/supernet.json', 'step_2/samples.csv', 'step_2/search/history.jsonl'):
        (tmp_path / 'run' / name).unlink()
    shutil.rmtree(tmp_path / 'run/step_2/supernet')
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / 'run').rglob('*') if path.suffix in ('.pth', '.jsonl')
    }
    run(config(tmp_path / 'run'))
    assert results(tmp_path / 'run') == results(finished)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    run(config(tmp_path / 'run', iterations=3))
    after = results(tmp_path / 'run')
    assert (tmp_path / 'run/step_3/search/best_arch.json').is_file()
    for name in ('step_0/et_errors.json', 'step_1/space.json', 'step_2/space.json', 'step_2/samples.csv'):
        assert after[name] == results(finished)[name]


_CHILD = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import vitnas_core
from tests.test_search.test_space_search import config, run
cfg = config(Path(sys.argv[1]))
cfg.launcher = sys.argv[2]
run(cfg)
"""
ENVIRONMENT = {**os.environ, 'PYTHONPATH': '.', 'OMP_NUM_THREADS': '1'}
ROOT = Path(__file__).parents[2]


def test_two_processes_go_the_same_way(tmp_path: Path) -> None:
    """Ranks train and judge together, and leave one set of files, from which one process has nothing to add."""
    (tmp_path / 'child.py').write_text(_CHILD)
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2']
    done = subprocess.run(
        [*command, str(tmp_path / 'child.py'), str(tmp_path / 'run'), 'pytorch'],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = results(tmp_path / 'run')
    assert len([name for name in found if name.endswith('space.json')]) == 3
    assert not list((tmp_path / 'run').rglob('history.rank*'))
    run(config(tmp_path / 'run'))
    assert results(tmp_path / 'run') == found


def test_killed_again_and_again_it_finds_the_same(finished: Path, tmp_path: Path) -> None:
    """A real SIGKILL after every new file of a kind: checkpoint, drawn architecture, space, search."""
    marks = ['step_0/supernet/epoch_1.pth', 'step_0/samples/history.jsonl', 'step_1/space.json',
             'step_1/supernet/epoch_2.pth', 'step_2/samples.csv', 'step_2/search/history.jsonl']  # fmt: skip
    kills = 0
    for mark in [*marks, None]:
        process = subprocess.Popen(
            [sys.executable, '-c', _CHILD, str(tmp_path / 'run'), 'none'],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while mark is not None and process.poll() is None and not (tmp_path / 'run' / mark).exists():
            time.sleep(0.002)
        if mark is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = process.communicate()
        assert mark is not None or process.returncode == 0, errors.decode()
    assert kills >= 4
    assert results(tmp_path / 'run') == results(finished)


def test_a_moved_folder_goes_on(finished: Path, tmp_path: Path) -> None:
    """Cut after the first epoch of a supernet, with checkpoints that were written under another path."""
    shutil.copytree(finished, tmp_path / 'moved')
    for name in ('step_2/supernet.json', 'step_2/samples.csv', 'step_2/supernet/epoch_2.pth'):
        (tmp_path / 'moved' / name).unlink()
    (tmp_path / 'moved/step_2/supernet/last_checkpoint').write_text('/gone/run/step_2/supernet/epoch_1.pth')
    run(config(tmp_path / 'moved'))
    assert results(tmp_path / 'moved') == results(finished)


def test_files_that_were_changed(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / 'run')
    (tmp_path / 'run/step_1/space.json').write_text(FAMILIES['s3'].space.to_json())
    with pytest.raises(VitnasError, match='is another space than the steps before lead to now'):
        run(config(tmp_path / 'run'))
    (tmp_path / 'run/space_search.json').write_text('{')
    with pytest.raises(VitnasError, match='space_search.json is not JSON'):
        run(config(tmp_path / 'run'))
    (tmp_path / 'run/space_search.json').unlink()
    with pytest.raises(VitnasError, match='has steps of a space search, but no space_search.json'):
        run(config(tmp_path / 'run'))


def test_another_family(tmp_path: Path) -> None:
    """Nothing in it is S3's."""
    space = run(config(tmp_path / 'run', family='autoformer', iterations=1))
    assert space.family == 'autoformer' and (tmp_path / 'run/step_1/search/best_arch.json').is_file()


def test_weights_that_overlap_are_inherited(finished: Path, tmp_path: Path) -> None:
    cfg = config(tmp_path / 'run', inherit=True, iterations=1)
    cfg.optim_wrapper.optimizer.lr = 0.0
    run(cfg)
    first, second = (load_file(tmp_path / f'run/step_{step}/supernet/epoch_2.pth')['state_dict'] for step in range(2))
    assert first.keys() & second.keys() and any(first[name].shape != second[name].shape for name in first)
    for name in first.keys() & second.keys():
        common = tuple(slice(0, min(sizes)) for sizes in zip(first[name].shape, second[name].shape))
        assert torch.equal(first[name][common], second[name][common]), name


def test_nothing_overlaps(tmp_path: Path) -> None:
    torch.save({'state_dict': {'other': torch.ones(2)}}, tmp_path / 'other.pth')
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.clone()
    with pytest.raises(CheckpointError, match='has no weight that this model has'):
        load_overlap(layer, tmp_path / 'other.pth')
    assert torch.equal(layer.weight, before)
    torch.save({'state_dict': {'weight': torch.ones(1, 3)}}, tmp_path / 'part.pth')
    assert load_overlap(layer, tmp_path / 'part.pth') == pytest.approx(2 / 6)
    assert torch.equal(layer.weight[0], torch.ones(2)) and torch.equal(layer.weight[1], before[1])


def test_kernels_overlap_at_their_centres(tmp_path: Path) -> None:
    small, large = torch.nn.Conv2d(1, 1, 3, bias=False), torch.nn.Conv2d(1, 1, 7, bias=False)
    torch.save({'state_dict': small.state_dict()}, tmp_path / 'small.pth')
    assert load_overlap(large, tmp_path / 'small.pth') == pytest.approx(9 / 49)
    assert torch.equal(large.weight[..., 2:5, 2:5], small.weight)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(iterations=-1), '`iterations` should be a whole number of at least 0, but got -1'),
        (dict(num_samples=0), '`num_samples` should be a whole number of at least 1, but got 0'),
        (dict(evolution=dict(steps=dict(kernel_size=2))), '`steps` has kernel_size, but the dimensions that can move'),
        (dict(evolution=dict(steps=STEPS['s3'], rounding='up')), '`rounding` should be one of floor, symmetric'),
        (dict(search=dict(type='vitnas.SupernetTrainLoop')), '`search` should be the config of a search loop'),
        (dict(search=dict(type='vitnas.RandomSearchLoop', evaluator=[])), '`search` should have `num_candidates`'),
        (dict(search='evolution'), "`search` should be the config of a search loop, .*but got 'evolution'"),
        (dict(search=dict(SEARCH, cost='latency')), '`search` has cost="latency", whose table would be of one space'),
        (
            dict(search=dict(type=SearchLoop, evaluator=[], algorithm=Predictor(cost='latency'))),
            '`search` has cost="latency", whose table would be of one space',
        ),
        (dict(search=dict(type=SearchLoop, evaluator=[], algorithm='Random')), '`algorithm` should be the config of a'),
        (dict(search=dict(SEARCH, populaton=4)), '`search` has no setting populaton; did you mean population'),
        (dict(search=dict(SEARCH, evaluator=dict(type='Acuracy'))), '`search.evaluator` cannot be built: .*Acuracy'),
        (dict(evolution=dict(steps=None)), '`steps` should be a dict of numbers by dimension, but got None'),
        (dict(constraint=5), 'a constraint should be a dict of limits by cost, e.g. macs, but got 5'),
        (dict(inherit='x.pth'), "`inherit` should be True or False, but got 'x.pth'"),
        (dict(search=dict(SEARCH, latency_table='x.json')), '`search` has a latency_table, which is of one space'),
        (dict(samples=3), '`space_search`: .*samples'),
        (dict(evolution=dict(steps={}, tau=0.4)), '`space_search.evolution`: .*tau'),
        (dict(evolution=None), '`space_search.evolution`: .*mapping'),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(VitnasError, match=message):
        make_runner(config(tmp_path / 'run', **changes))
    assert not (tmp_path / 'run').exists()


def test_loop_and_algorithm_may_be_a_class_and_an_object(tmp_path: Path) -> None:
    search = dict(type=SearchLoop, evaluator=dict(type='mmpretrain.Accuracy'), algorithm=Random(num_candidates=3))
    folder = tmp_path / 'run'
    assert run(config(folder, iterations=0, num_samples=2, search=search)) == FAMILIES['s3'].space
    assert len(read_candidates(folder / 'step_0/search/history.jsonl')) == 3


def test_configs_that_cannot_run(tmp_path: Path) -> None:
    cfg = config(tmp_path / 'run')
    cfg.test_dataloader = cfg.val_dataloader
    with pytest.raises(VitnasError, match='val_dataloader of the space search'):
        make_runner(cfg)
    for hook in (None, dict(type='CheckpointHook', out_dir='elsewhere')):
        cfg = config(tmp_path / 'run')
        cfg.default_hooks.checkpoint = hook
        with pytest.raises(VitnasError, match='a space search needs default_hooks.checkpoint, in the folder of each'):
            make_runner(cfg)
    for name in ('train_cfg', 'val_dataloader', 'optim_wrapper'):
        cfg = config(tmp_path / 'run')
        cfg[name] = None
        with pytest.raises(VitnasError, match=f'the config lacks `{name}`'):
            make_runner(cfg)
    cfg = config(tmp_path / 'run')
    cfg.load_from = 'x.pth'
    with pytest.raises(VitnasError, match='load_from is x.pth, but every supernet of a space search is trained here'):
        make_runner(cfg)
    cfg = config(tmp_path / 'run')
    cfg.pop('space_search')
    with pytest.raises(VitnasError, match='the config should have `space_search`, a dict'):
        make_runner(cfg)


def test_limits_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match='no architecture of s3-test has macs <= 1000'):
        make_runner(config(tmp_path / 'run', constraint=dict(macs=(None, 1000))))
    with pytest.raises(InfeasibleError, match='has macs >= 1000G'):
        make_runner(config(tmp_path / 'run', search=dict(SEARCH, constraint=dict(macs=(1e12, None))), constraint={}))
    assert not (tmp_path / 'run').exists()


def test_a_folder_of_another_space_search(finished: Path) -> None:
    before = results(finished)
    for change in (dict(num_samples=7), dict(evolution=dict(steps=STEPS['s3'], threshold=0.3)), dict(inherit=True)):
        with pytest.raises(VitnasError, match=r'space_search.json is of another space search: space_search\.'):
            run(config(finished, **change))
    for limits in (
        dict(constraint=dict(macs=(None, 2e6))),
        dict(search=dict(SEARCH, constraint=dict(macs=(None, 2e6)))),
    ):
        with pytest.raises(VitnasError, match=r'space_search\.constraint: null → '):
            run(config(finished, **limits))
    cfg = config(finished)
    cfg.train_cfg.max_epochs = 3
    with pytest.raises(VitnasError, match=r'train_cfg.max_epochs: 2 → 3 \(then → now\)'):
        run(cfg)
    assert results(finished) == before


def test_from_a_config_it_is_not_a_runner_of_mmengine(tmp_path: Path) -> None:
    assert isinstance(make_runner(config(tmp_path / 'run')), SpaceSearch)
