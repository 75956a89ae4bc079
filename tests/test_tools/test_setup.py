"""The setup scripts, without installing anything."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / 'tools').glob('*.sh'))
pytestmark = pytest.mark.skipif(shutil.which('bash') is None, reason='the scripts are for bash')


def run(command, cwd=ROOT, **env):
    """Run a command with variables set, or unset if None."""
    merged = {**os.environ, **env}
    merged = {name: value for name, value in merged.items() if value is not None}
    return subprocess.run(command, cwd=cwd, env=merged, capture_output=True, text=True, timeout=120)


def fake_clone(folder):
    """Copy what the scripts read, without the package."""
    for name in ('pyproject.toml', 'requirements/tested.txt', *(f'tools/{script.name}' for script in SCRIPTS)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def stamp(clone, environment):
    """Write the stamp that a finished set-up of ``clone`` leaves in ``environment``."""
    files = ('pyproject.toml', 'requirements/tested.txt', 'tools/setup.sh', 'tools/build_mmcv.sh')
    data = b''.join((clone / file).read_bytes() for file in files)
    checksum = subprocess.run(['cksum'], input=data, capture_output=True, check=True).stdout.decode()
    (environment / '.vitnas-setup').write_text(f'{clone.resolve()} {environment.resolve()}\n{checksum}')


@pytest.fixture
def ready(tmp_path):
    """A clone whose .venv is a shell script that notes how it was called, stamped as set up."""
    clone = fake_clone(tmp_path / 'a clone')
    python = clone / '.venv' / 'bin' / 'python'
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "python $* in $(pwd -P) PYTHONPATH=$PYTHONPATH"\nexit 7\n')
    python.chmod(0o755)
    stamp(clone, clone / '.venv')
    return clone


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda script: script.name)
def test_scripts_parse(script):
    assert run(['bash', '-n', script]).returncode == 0


def test_fast_path_does_nothing(ready, tmp_path):
    before = sorted(ready.rglob('*'))
    start = time.monotonic()
    result = run(['bash', ready / 'tools' / 'setup.sh'], cwd=tmp_path, VITNAS_PYTHON=None)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f'vitnas is set up in {ready}/.venv\n'
    assert time.monotonic() - start < 20
    assert sorted(ready.rglob('*')) == before


@pytest.mark.parametrize('file', ['pyproject.toml', 'requirements/tested.txt'])
def test_a_changed_file_ends_the_fast_path(ready, file):
    with open(ready / file, 'a') as f:
        f.write('# changed\n')
    result = run(['bash', ready / 'tools' / 'setup.sh'], VITNAS_PYTHON=None)
    # The made-up .venv is not one of ours, so the set-up stops before it touches anything.
    assert result.returncode == 1
    assert 'was not made by this script' in result.stderr


def test_test_sh_passes_arguments_and_exit_code(ready, tmp_path):
    result = run(
        ['bash', ready / 'tools' / 'test.sh', '-k', 'a b'], cwd=tmp_path, VITNAS_PYTHON=None, PYTHONPATH='elsewhere'
    )
    assert result.returncode == 7, result.stderr
    several = '-n auto --maxprocesses 4 --dist worksteal'
    assert result.stdout.splitlines()[-1] == f'python -m pytest {several} -k a b in {ready} PYTHONPATH='


def test_quickstart_sh_passes_arguments(ready, tmp_path):
    result = run(['bash', ready / 'tools' / 'quickstart.sh', '--fast'], cwd=tmp_path, VITNAS_PYTHON=None)
    assert result.returncode == 7, result.stderr
    assert result.stdout.splitlines()[-1].startswith('python -m tools.quickstart --fast in')


def test_python_that_does_not_exist(tmp_path):
    result = run(['bash', fake_clone(tmp_path) / 'tools' / 'setup.sh'], VITNAS_PYTHON='no-such-python')
    assert result.returncode == 1
    assert "VITNAS_PYTHON is 'no-such-python', which is not a program" in result.stderr


@pytest.mark.parametrize('body', ['exit 0', 'echo Python 2.7; exit 1'])
def test_python_that_is_none(tmp_path, body):
    python = tmp_path / 'python'
    python.write_text(f'#!/bin/sh\n{body}\n')
    python.chmod(0o755)
    result = run(['bash', fake_clone(tmp_path / 'clone') / 'tools' / 'setup.sh'], VITNAS_PYTHON=str(python))
    assert result.returncode == 1
    assert 'which is no python 3.10, 3.11 or 3.12' in result.stderr


def test_no_suitable_python(tmp_path):
    clone = fake_clone(tmp_path / 'clone')
    tools = tmp_path / 'bin'
    tools.mkdir()
    for name in ('bash', 'dirname', 'cat', 'cksum', 'mktemp', 'rm', 'flock', 'grep'):
        if shutil.which(name):
            (tools / name).symlink_to(shutil.which(name))
    (tools / 'python3').write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.18\nexit 1\n')
    (tools / 'python3').chmod(0o755)
    result = run(['bash', clone / 'tools' / 'setup.sh'], VITNAS_PYTHON=None, PATH=str(tools))
    assert result.returncode == 1
    assert 'no python 3.10, 3.11 or 3.12' in result.stderr and 'Python 3.8.18' in result.stderr


def test_unknown_argument(tmp_path):
    result = run(['bash', fake_clone(tmp_path) / 'tools' / 'setup.sh', '--fast'])
    assert result.returncode == 2
    assert 'usage: setup.sh [--again], but got: --fast' in result.stderr


def declared():
    text = (ROOT / 'pyproject.toml').read_text()
    listed = text[text.index('\ndependencies') : text.index('[tool.')]
    requirements = [Requirement(r) for r in re.findall(r'"([A-Za-z][\w.\[\]-]*(?:[<>=~!][^"]*)?)"', listed)]
    return [r for r in requirements if r.name != 'vitnas']


def locked():
    lines = (ROOT / 'requirements' / 'tested.txt').read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith('#')]


def test_lock_names_versions_only():
    for requirement in locked():
        (pin,) = requirement.specifier
        assert pin.operator == '==' and '+' not in pin.version and requirement.url is None, requirement


def test_lock_satisfies_pyproject():
    pins = {canonicalize_name(r.name): next(iter(r.specifier)).version for r in locked()}
    assert len(pins) == len(locked())
    assert len(declared()) >= 19
    for requirement in declared():
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_lock_pins_the_tools_that_build_mmcv():
    pins = {r.name: next(iter(r.specifier)).version for r in locked()}
    assert int(pins['setuptools'].split('.')[0]) < 80
    assert {'wheel', 'ninja', 'psutil', 'mmcv'} <= pins.keys()


def test_this_python_is_supported():
    assert (3, 10) <= sys.version_info[:2] <= (3, 12)
