"""The study protocol: a killed study repeats nothing, a changed setting is refused, a failing run stops no other."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from projects.studies import study
from projects.studies.studylib import execute
from projects.studies.studylib.curves import draw_curves, read_curves, smooth
from projects.studies.studylib.plan import ROOT, Run, Step, Study, StudyError, fill
from projects.studies.studylib.progress import Progress
from projects.studies.studylib.results import Job, difference, list_jobs, read_measures

SCRIPT = """
import json, os, sys, time
out, value, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with open(os.path.join(os.path.dirname(__file__), 'calls.txt'), 'a') as file:
    file.write(f'{os.getpid()} {out}\\n')
time.sleep(seconds)
if value < 0:
    print('cannot go below 0')
    sys.exit(3)
with open(os.path.join(out, 'measures.json'), 'w') as file:
    json.dump({'score': value}, file)
"""


class Fake:
    """A study whose steps write a number."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.script = folder, folder / 'step.py'
        self.script.write_text(SCRIPT)
        self.work_dir = folder / 'work'

    def write(self, values: dict[str, str], of_seeds: list[int], seconds: float = 0.0, **more: object) -> Path:
        runs = [
            dict(name=name, steps=[dict(name='a', script=str(self.script), args=['{dir}', value, seconds])])
            for name, value in values.items()
        ]
        data = dict(runs=runs, seeds=of_seeds, baseline=next(iter(values)), measures={'a.score': 'score'}) | more
        path = self.folder / 'fake.py'
        path.write_text('\n'.join(f'{name} = {value!r}' for name, value in data.items()))
        return path

    def main(self, path: Path, *args: str) -> int:
        return study.main([str(path), '--work-dir', str(self.work_dir), *args])

    def calls(self) -> list[str]:
        path = self.folder / 'calls.txt'
        lines = path.read_text().splitlines() if path.is_file() else []
        return [os.path.relpath(line.split()[1], self.work_dir) for line in lines]

    def pids(self) -> list[int]:
        return [int(line.split()[0]) for line in (self.folder / 'calls.txt').read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def alive(pid: int) -> bool:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def test_a_study_gives_a_table_and_is_not_repeated(fake: Fake, capsys: pytest.CaptureFixture) -> None:
    path = fake.write({'low': '{seed}', 'high': '1{seed}'}, [0, 1, 2])
    assert fake.main(path, '--jobs', '2') == 0
    assert sorted(fake.calls()) == sorted(f'{run}/seed_{s}/a' for run in ('low', 'high') for s in (0, 1, 2))
    assert '[6/6]' in capsys.readouterr().out
    with open(fake.work_dir / 'results.csv') as file:
        rows = {(r['run'], r['seed'], r['measure']): r['value'] for r in csv.DictReader(file)}
    assert float(rows['high', '2', 'a.score']) == 12.0 and len(rows) == 12  # the score and the seconds
    with open(fake.work_dir / 'table.csv') as file:
        low, high = csv.DictReader(file)
    assert (low['n'], low['mean'], low['sd'], low['difference']) == ('3', '1.0', '1.0', '')
    assert float(low['high95']) == pytest.approx(1 + 4.302653 / 3**0.5, abs=1e-5)  # t of 2 degrees of freedom
    assert (high['difference'], high['difference_low95']) == ('10.0', '10.0')  # the same at every seed
    assert '| score | high | 3 | 11.00 ± 1.00 |' in (fake.work_dir / 'table.md').read_text()
    assert (fake.work_dir / 'plot.png').read_bytes().startswith(b'\x89PNG')
    assert fake.main(path) == 0 and len(fake.calls()) == 6


def test_curves_of_trainings_are_drawn(fake: Fake) -> None:
    path = fake.write({'low': '1', 'high': '2'}, [0, 1])
    assert fake.main(path) == 0
    assert not (fake.work_dir / 'curves.png').exists()  # nothing was trained
    for run, seed, losses in (('low', 0, [4.0, 2.0]), ('low', 1, [2.0, 1.0, 0.5]), ('high', 0, [1.0, 1.0])):
        folder = fake.work_dir / f'{run}/seed_{seed}/a/20260101_000000/vis_data'
        folder.mkdir(parents=True)
        records = [dict(lr=1.0, loss=loss, step=10 * i) for i, loss in enumerate(losses)]
        (folder / 'scalars.json').write_text('\n'.join(json.dumps(record) for record in records))
    assert fake.main(path) == 0
    assert (fake.work_dir / 'curves.png').read_bytes().startswith(b'\x89PNG')
    plan = Study.from_file(path)
    [axes] = draw_curves(plan, read_curves(list_jobs(plan, fake.work_dir))).axes
    low, high = axes.lines
    assert (low.get_label(), high.get_label()) == ('low', 'high')
    assert low.get_xydata().tolist() == [[0.0, 3.0], [10.0, 1.5]]  # as far as both seeds have come
    assert high.get_xydata().tolist() == [[0.0, 1.0], [10.0, 1.0]]
    assert smooth([1.0] * 10 + [2.0] * 10) == [1.0] * 10 + [1.5] + [2.0] * 9


def test_one_seed_claims_no_interval(fake: Fake) -> None:
    path = fake.write({'low': '1', 'high': '2'}, [0, 1])
    assert fake.main(path, '--seeds', '1') == 0
    assert '| score | high | 1 | 2.00 | – | +1.00 |' in (fake.work_dir / 'table.md').read_text()
    assert fake.calls() == ['low/seed_1/a', 'high/seed_1/a']


def test_killed_and_started_again(fake: Fake) -> None:
    path = fake.write({'low': '1', 'mid': '2', 'high': '3'}, [0, 1], seconds=0.4)
    command = [sys.executable, str(ROOT / 'projects/studies/study.py'), str(path), '--work-dir', str(fake.work_dir)]
    process = subprocess.Popen([*command, '--jobs', '2'], stdout=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while len(fake.calls()) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 10
    while any(map(alive, fake.pids())) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(alive, fake.pids())), 'a killed study should leave no process behind'
    finished = [name for name in fake.calls() if (fake.work_dir / name / 'result.json').is_file()]
    begun = fake.calls()
    assert 1 <= len(finished) < len(begun) <= 5
    assert fake.main(path, '--jobs', '2') == 0
    calls = fake.calls()
    assert all(calls.count(name) == 1 for name in finished)
    assert len(set(calls)) == 6 and len(calls) == 6 + len(begun) - len(finished)
    again = next(name for name in begun if name not in finished)
    assert json.loads((fake.work_dir / again / 'result.json').read_text())['starts'] == 2


def test_a_failing_run_stops_no_other(fake: Fake, capsys: pytest.CaptureFixture) -> None:
    path = fake.write({'good': '1', 'bad': '-{seed}', 'fine': '2'}, [0, 1])
    assert fake.main(path) == 1
    out = capsys.readouterr().out
    log = fake.work_dir / 'bad/seed_1/a/log.txt'
    assert f'failed: bad, seed 1, step a (exit code 3): {log}' in out
    assert 'cannot go below 0' in log.read_text()
    assert len(fake.calls()) == 6
    assert '| score | bad | 1 |' in out and '| score | fine | 2 |' in out
    assert fake.main(path) == 1 and fake.calls()[6:] == ['bad/seed_1/a']  # only it is tried again


def test_a_failing_shared_step_stops_the_study(fake: Fake) -> None:
    shared = [dict(name='truth', script=str(fake.script), args=['{dir}', '-1', '0'])]
    assert fake.main(fake.write({'good': '1'}, [0], shared=shared)) == 1
    assert fake.calls() == ['shared/truth']


def test_a_changed_setting_is_refused(fake: Fake) -> None:
    (fake.folder / 'recipe.py').write_text('optim = dict(lr=0.1)')

    def write(lr: float, value: str) -> Path:
        recipe = dict(name='b', script=str(fake.script), config=str(fake.folder / 'recipe.py'))
        recipe |= dict(overrides={'optim.lr': lr}, args=['{dir}', value, '0'])
        last = dict(name='c', script=str(fake.script), args=['{dir}', '1', '0', '{b}'])
        runs = [dict(name='x', steps=[recipe, last])]
        return fake.write({'unused': '1'}, [0], runs=runs, baseline='x', measures={'b.score': 'score'})

    assert fake.main(write(0.2, '1')) == 0
    config = (fake.work_dir / 'x/seed_0/b/config.py').read_text()
    assert 'lr=0.2' in config and 'seed=0' in config
    with pytest.raises(SystemExit, match=r'x, seed 0, step b, .* \(config.optim.lr was 0.2, is 0.3\); give another'):
        fake.main(write(0.3, '1'))
    (fake.work_dir / 'x/seed_0/b/result.json').unlink()
    with pytest.raises(SystemExit, match='step c, was made with other settings .a step before it was'):
        fake.main(write(0.3, '1'))
    assert len(fake.calls()) == 2


def test_what_was_begun_with_other_settings_starts_over(tmp_path: Path) -> None:
    job = Job(Run('x', 0, ()), Step('a'), 'new', {}, tmp_path / 'a')
    assert Job(job.run, job.step, 'old', {}, job.folder).begin() == 1
    (job.folder / 'epoch_1.pth').write_text('weights of other settings')
    assert job.begin() == 1 and not (job.folder / 'epoch_1.pth').exists()
    (job.folder / 'epoch_1.pth').write_text('weights')
    assert job.begin() == 2 and (job.folder / 'epoch_1.pth').exists()


def test_two_studies_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, '_PATIENCE', 0.1)
    with execute.hold(tmp_path), pytest.raises(StudyError, match='another study'), execute.hold(tmp_path):
        pass
    with execute.hold(tmp_path):
        pass


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(baseline='nope'), "baseline should be one of good, but got 'nope'"),
        (dict(measures={'x.score': 'score'}), 'it should begin with a step: a'),
        (dict(seeds=[0, 0]), 'seeds should be different'),
        (dict(runs=[('good', 'configs/nope.py', {})]), 'names the file configs/nope.py, which is not there'),
        (dict(runs=[dict(name='good', steps=[dict(name='a', scrip='x')])]), 'has scrip; a step has name, script'),
        (dict(runs=[dict(name='good', stages=[])]), r'runs\[0\] should be dict\(name, steps\)'),
        (dict(seeds=[]), 'a study should have seeds'),
        (
            dict(shared=[dict(name='a', script='tools/train.py', config='configs/_base_/default_runtime.py')]),
            'give two names',
        ),
    ],
)
def test_a_mistake_in_the_file_is_named(fake: Fake, change: dict, words: str) -> None:
    with pytest.raises(StudyError, match=words + r'.*fake.py'):
        Study.from_file(fake.write({'good': '1'}, [0], **change))


def test_an_unknown_place_is_named(fake: Fake) -> None:
    with pytest.raises(StudyError, match='the step a names {sed}; it can name seed, dir'):
        Study.from_file(fake.write({'good': '{sed}'}, [0]))


def test_places(tmp_path: Path) -> None:
    (tmp_path / 'last_checkpoint').write_text('work/epoch_3.pth\n')
    places = {'seed': '7', 'net': str(tmp_path)}
    assert fill(['{seed}', {'x': '{net.checkpoint}', 'y': 3}], places) == ['7', {'x': 'work/epoch_3.pth', 'y': 3}]
    with pytest.raises(StudyError, match='has no checkpoint'):
        fill('{net.checkpoint}', {'net': str(tmp_path / 'other')})


def test_time_left(tmp_path: Path) -> None:
    steps = {name: Step(name) for name in ('truth', 'a', 'b')}

    def jobs(run: str, *names: str) -> list[Job]:
        return [Job(Run(run, 0, ()), steps[name], '', {}, tmp_path / run / name) for name in names]

    runs = [jobs('shared', 'truth'), jobs('x', 'a', 'b'), jobs('y', 'a', 'b')]
    progress = Progress(runs, jobs=2)
    progress.finished(runs[0][0], 1000.0, {})
    assert progress.left() is None  # the truth says nothing of the others
    progress.finished(runs[1][0], 10.0, {})
    assert progress.left() == pytest.approx((10 + 10 + 10) / 2)  # the a of y, and two b as long as what is known
    progress.finished(runs[1][1], 30.0, {})
    assert progress.left() == pytest.approx(10 + 30)  # one run is left, so one job at a time
    progress.failed(runs[2][0], 'exit code 1')
    assert progress.left() == 0


def test_measures_of_a_training_are_those_of_its_last_validation(tmp_path: Path) -> None:
    for when, lines in (
        ('20260101_000000', ['{"lr": 1.0, "loss": 2.0, "step": 1}', '{"accuracy/top1": 10.0, "time": 1.0, "step": 1}']),
        (
            '20260102_000000',
            ['{"accuracy/top1": 20.0, "data_time": 0.1, "step": 2}', '{"lr": 0.5, "loss": 1', '{"accur'],
        ),
    ):
        (tmp_path / when / 'vis_data').mkdir(parents=True)
        (tmp_path / when / 'vis_data/scalars.json').write_text('\n'.join(lines))
    assert read_measures(tmp_path) == {'accuracy/top1': 20.0, 'train_loss': 2.0}
    lines = ['{"lr": 1.0, "time": 0.5}', '{"lr": 1.0, "time": 0.25}', '{"accuracy/top1": 30.0, "time": 9.0}']
    (tmp_path / '20260102_000000' / 'vis_data/scalars.json').write_text('\n'.join(lines))
    assert read_measures(tmp_path) == {'accuracy/top1': 30.0, 'iteration_seconds': 0.375, 'train_loss': 2.0}
    (tmp_path / 'measures.json').write_text('{"score": 1, "none": null}')
    assert read_measures(tmp_path) == {'score': 1.0}
    (tmp_path / 'measures.json').write_text('[1]')
    with pytest.raises(StudyError, match='should be an object of names and numbers'):
        read_measures(tmp_path)


def test_difference_names_what_changed() -> None:
    assert difference({'a': {'b': [1, 2]}}, {'a': {'b': [1, 3]}}) == 'a.b[1] was 2, is 3'
    assert difference({'a': 1}, {'a': 1, 'c': None}) == 'c was not set, is None'
    assert difference({'a': 1}, {'a': 1}) == ''


def test_results_and_studies_from_before_the_move_stay_valid() -> None:
    """Scripts were in tools/benchmarks/, and VQA was part of the core, so its configs imported nothing else."""
    config = 'projects/vqa/configs/digits/question-only_8e_scenes.py'
    former, now = (
        Step.read(dict(name='a', script=f'{folder}/score.py', config=config), 'a')
        for folder in ('tools/benchmarks', 'projects/studies')
    )
    assert former == now and now.script == 'projects/studies/score.py'
    settings = now.settings(0)
    assert settings['script'] == 'tools/benchmarks/score.py'
    assert settings['config']['custom_imports'] == {'imports': ['vitnas_core'], 'allow_failed_imports': False}
    resolved = now.resolve(0)
    assert resolved is not None and resolved.custom_imports.imports == ['vitnas_core', 'projects.vqa.vqa']


def test_the_first_study_is_well_formed() -> None:
    path = ROOT / 'projects/studies/configs/autoformer_uniform_vs_sandwich.py'
    runs = list_jobs(Study.from_file(path), Path('nowhere'))
    assert [steps[0].run.title for steps in runs[:3]] == ['shared', 'uniform, seed 0', 'sandwich, seed 0']
    rules = {steps[0].run.name: steps[0].settings['config']['train_cfg']['rule']['type'] for steps in runs[1:4]}
    assert rules == {'uniform': 'vitnas.SinglePath', 'sandwich': 'vitnas.Sandwich', 'uniform-4x': 'vitnas.SinglePath'}


def test_the_study_of_focusformer_is_well_formed() -> None:
    runs = list_jobs(Study.from_file(ROOT / 'projects/studies/configs/focusformer_sampler.py'), Path('nowhere'))
    assert len(runs) == 15 and [steps[0].run.title for steps in runs[:2]] == ['uniform, seed 0', 'sampler, seed 0']
    first = {steps[0].run.name: steps[0].settings['config'] for steps in runs[:3]}
    assert first['uniform']['train_cfg']['sampler'] == {'type': 'vitnas.UniformSampler'}
    assert not first['uniform']['custom_hooks']
    sizes = {name: first[name]['custom_hooks'][1]['start'] for name in ('sampler', 'progressive')}
    assert sizes == {'sampler': 28, 'progressive': 21}
    same = ('model', 'train_dataloader', 'optim_wrapper', 'param_scheduler')
    assert all(first['uniform'][key] == first['sampler'][key] == first['progressive'][key] for key in same)
    assert len({config['train_cfg']['max_epochs'] for config in first.values()}) == 1  # as many steps


@pytest.mark.parametrize('path', sorted((ROOT / 'projects/studies/configs').glob('*.py')), ids=lambda path: path.stem)
def test_every_study_is_well_formed(path: Path) -> None:
    assert list_jobs(Study.from_file(path), Path('nowhere'))


def test_the_study_of_the_readme_is_well_formed(tmp_path: Path) -> None:
    text = (ROOT / 'projects/studies/README.md').read_text()
    (tmp_path / 'rates.py').write_text(text.partition('```python\n')[2].partition('```')[0])
    assert len(list_jobs(Study.from_file(tmp_path / 'rates.py'), tmp_path)) == 4
    listed = re.findall(r'\(configs/(\w+\.py)\)', text)
    assert sorted(listed) == sorted(path.name for path in (ROOT / 'projects/studies/configs').glob('*.py'))


def test_models_of_the_scenes_differ_in_the_weights_that_they_begin_with_alone() -> None:
    runs = list_jobs(Study.from_file(ROOT / 'projects/studies/configs/scenes_transfer.py'), Path('nowhere'))
    random, searched = ({job.step.name: job.settings['config'] for job in steps} for steps in runs[:2])
    assert len(random) == len(searched) == 5
    for name in random:
        assert difference(random[name], searched[name]).startswith('model.backbone.init_cfg was None')
        backbone = searched[name]['model']['backbone']
        assert backbone['init_cfg'] and backbone['init_cfg'].pop('type') == 'Pretrained'
        backbone['init_cfg'] = None
        assert random[name] == searched[name]


def test_configs_of_a_toolbox_are_parsed_one_at_a_time() -> None:
    """mmengine fails where several threads look up a toolbox at once."""
    step = Step('train', config='projects/detection/configs/digits/mask-rcnn_s3-micro_fpn_4e_scenes.py')
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(step.resolve, range(8)))
    assert [cfg.randomness.seed for cfg in found if cfg] == list(range(8))


def test_trainings_by_tools_train(tmp_path: Path) -> None:
    config = 'projects/classification/configs/autoformer/autoformer-micro_retrain_20e_digits.py'
    overrides = {'train_cfg.max_epochs': 1}
    data = dict(runs=[('one', config, overrides)], seeds=[3], baseline='one', measures={'train.accuracy/top1': '%'})
    path = tmp_path / 'real.py'
    path.write_text('\n'.join(f'{name} = {value!r}' for name, value in data.items()))
    assert study.main([str(path), '--work-dir', str(tmp_path / 'work')]) == 0
    folder = tmp_path / 'work/one/seed_3/train'
    assert 0 <= json.loads((folder / 'result.json').read_text())['measures']['accuracy/top1'] <= 100
    assert 'seed=3' in (folder / 'config.py').read_text() and (folder / 'epoch_1.pth').is_file()
