"""The shell scripts that start several processes forward their arguments and print their usage."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / 'tools'


@pytest.fixture
def run(tmp_path: Path):
    """Run a script with a python and an srun that only print what they are given."""
    for name in ('python', 'srun'):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\necho PYTHONPATH=$PYTHONPATH\n')
        (tmp_path / name).chmod((tmp_path / name).stat().st_mode | stat.S_IXUSR)

    def call(script: str, *args: str, **environment: str) -> subprocess.CompletedProcess:
        path = f'{tmp_path}{os.pathsep}{os.environ["PATH"]}'
        env = {**os.environ, 'VITNAS_PYTHON': str(tmp_path / 'python'), 'PATH': path, **environment}
        return subprocess.run(['bash', str(TOOLS / script), *args], env=env, capture_output=True, text=True)

    return call


def test_dist_train(run, tmp_path: Path) -> None:
    done = run('dist_train.sh', 'a b.py', '2', '--cfg-options', 'x=1 2', PORT='29511', PYTHONPATH='mine')
    assert done.returncode == 0, done.stderr
    assert f'PYTHONPATH={TOOLS.parent}:mine' in done.stdout
    assert '--nproc_per_node=2' in done.stdout and '--master_port=29511' in done.stdout
    assert f'{TOOLS}/train.py a b.py --launcher pytorch --cfg-options x=1 2' in done.stdout


def test_dist_test(run) -> None:
    done = run('dist_test.sh', 'c.py', 'w.pth', '4', '--arch', 'best.json', NNODES='2', NODE_RANK='1')
    assert '--nnodes=2 --node_rank=1' in done.stdout
    assert f'{TOOLS}/test.py c.py w.pth --launcher pytorch --arch best.json' in done.stdout


@pytest.mark.parametrize(('script', 'rest'), [('slurm_train.sh', 'c.py --work-dir out'), ('slurm_test.sh', 'c.py out')])
def test_slurm(run, script: str, rest: str) -> None:
    done = run(script, 'gpu', 'job', 'c.py', 'out', '--cfg-options', 'a=1', GPUS='4', SRUN_ARGS='--qos high --quiet')
    assert done.stdout.startswith('srun -p gpu --job-name=job --gres=gpu:4 --ntasks=4 --ntasks-per-node=4 ')
    assert '--qos high --quiet' in done.stdout
    assert f'{rest} --launcher slurm --cfg-options a=1' in done.stdout


@pytest.mark.parametrize('script', ['dist_train.sh', 'dist_test.sh', 'slurm_train.sh', 'slurm_test.sh'])
def test_usage(run, script: str) -> None:
    done = run(script, 'only.py')
    assert done.returncode == 2 and script in done.stderr and 'CONFIG' in done.stderr
