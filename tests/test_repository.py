"""Rules for every file of the repository: no trace of one machine, short modules, clean lint and types."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vitnas_core

ROOT = Path(__file__).resolve().parent.parent
MADE = {'.git', '.venv', 'work_dirs', 'build', 'dist', '.pytest_cache', '.mypy_cache', '.ruff_cache', '.hypothesis'}
# Put together from parts, so that this file passes its own test.
FOLDERS = '|'.join(['work', 'root', 'opt', 'tmp', 'home', 'Users', 'mnt'])
HOSTS = '|'.join(
    re.escape(host) for host in ['pypi' + '.org', 'python' + 'hosted', 'pytorch' + '.org/whl', 'npm' + 'js']
)
FORBIDDEN = re.compile(rf'((?<![\w.~$}})\]/*-])|(?<=file://))/(?:{FOLDERS})(?![\w-])|{HOSTS}')


def repository_files():
    """Files that are tracked or could be; without git, all but what tools make."""
    command = ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        found = [ROOT / name for name in listed.split('\0') if name]
    except (OSError, subprocess.CalledProcessError):
        found = [f for f in ROOT.rglob('*') if not MADE & set(f.relative_to(ROOT).parts) and '.egg-info' not in str(f)]
    return sorted(file for file in found if file.is_file())


FILES = repository_files()


def test_there_are_files():
    assert ROOT / 'pyproject.toml' in FILES and Path(__file__).resolve() in FILES


@pytest.mark.parametrize(
    ('text', 'bad'),
    [
        ('see /' + 'work/main', True),
        ("path = '/" + "root'", True),
        ('file:///' + 'opt/simple', True),
        ('--index-url https://' + 'pypi' + '.org/simple', True),
        ('work_dirs/x and data/' + 'tmp/y', False),
        ('${TMPDIR}/' + 'tmp/y', False),
        ('a/' + 'home/b', False),
    ],
)
def test_pattern(text, bad):
    assert bool(FORBIDDEN.search(text)) == bad


def test_no_file_names_a_machine_or_a_package_host():
    found = []
    for file in FILES:
        data = file.read_bytes()
        if b'\0' in data:
            continue
        for number, line in enumerate(data.decode('utf-8', errors='replace').splitlines(), 1):
            if match := FORBIDDEN.search(line):
                found.append(f'{file.relative_to(ROOT)}:{number}: {match[0]}')
    assert not found, '\n'.join(found)


def test_no_placeholder_is_left_in_a_text():
    for file in FILES:
        if file.suffix == '.md':
            assert not re.findall(r'@[A-Z]+@|TODO|TBD', file.read_text()), file


def test_python_files_are_short():
    lengths = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in FILES if file.suffix == '.py'}
    too_long = {str(file): lines for file, lines in lengths.items() if lines > 500}
    assert not too_long, f'at most 500 lines a file, but got {too_long}'


@pytest.mark.parametrize('command', ['ruff check --no-cache', 'ruff format --check --no-cache', 'mypy'])
def test_clean(command):
    """What .pre-commit-config.yaml runs too; a cache of ruff forgets that an import became first-party."""
    pytest.importorskip(command.split()[0])
    run = subprocess.run([sys.executable, '-m', *command.split()], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_inheritance_is_flat():
    def depth(kind):
        ours = [base for base in kind.__bases__ if base.__module__.partition('.')[0] == vitnas_core.__name__]
        return max((1 + depth(base) for base in ours), default=0)

    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(vitnas_core.__path__, 'vitnas_core.')]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    deep = {kind.__qualname__: depth(kind) for kind in classes if depth(kind) > 3}
    assert len(classes) > 200 and not deep, f'inheritance of our own classes is at most three deep, but got {deep}'
