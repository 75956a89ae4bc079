"""Run mmengine's own tests of runner, hooks and checkpoints with and without vitnas, and compare every outcome.

    git clone --branch v0.10.7 https://github.com/open-mmlab/mmengine
    python tools/benchmarks/mmengine_tests.py mmengine

The tests are the checkout's, the mmengine that they test is the installed one: both should have the same version.
Every file of tests runs in a process of its own, as some leave parts in the registries. Where torchvision cannot be
imported because it was built for another torch, that is repaired in both runs. Some tests need ``parameterized``.

Fails if a test passes without vitnas and not with it. One that passes only with vitnas reads a checkpoint that torch
refuses since version 2.6.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import mmengine

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ('tests/test_runner', 'tests/test_hooks')

PLUGINS = {
    'without': f"""
import importlib.util
path = {str(ROOT / 'vitnas_core/integration/torchvision_operators.py')!r}
spec = importlib.util.spec_from_file_location('torchvision_operators', path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.ensure_torchvision()
""",
    'with': 'import vitnas_core\n',
}


def outcomes(file: Path, run: str, folder: Path) -> dict[str, str]:
    """Run a file of tests with one of the plugins.

    Args:
        file: The file.
        run: Which plugin.
        folder: Where the plugins are; the test runs here, so that the checkout's mmengine is not imported.

    Returns:
        Test → passed, failed or skipped. A file that cannot be read fails as a whole.
    """
    report = folder / 'report.xml'
    report.unlink(missing_ok=True)
    command = [sys.executable, '-m', 'pytest', '-q', '-p', f'{run}_vitnas', '-p', 'no:cacheprovider', '--tb=no']
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get('PYTHONPATH', '')])
    subprocess.run(
        [*command, f'--junitxml={report}', str(file)],
        cwd=folder,
        env={**os.environ, 'PYTHONPATH': path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if not report.is_file():
        return {f'{file.name}': 'failed'}
    cases = ElementTree.parse(report).iter('testcase')
    return {f'{file.name}::{case.get("classname")}::{case.get("name")}': _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    if case.find('failure') is not None or case.find('error') is not None:
        return 'failed'
    return 'passed' if case.find('skipped') is None else 'skipped'


def compare(without: dict[str, str], with_vitnas: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the tests that vitnas breaks, and those that pass or run only with it."""
    changed = [name for name in {**without, **with_vitnas} if without.get(name) != with_vitnas.get(name)]
    broken = [name for name in changed if with_vitnas.get(name) != 'passed']
    return broken, [name for name in changed if name not in broken]


def main() -> int:
    """Read the command line, run the tests and print the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('checkout', type=Path, help='folder of mmengine, with its tests')
    parser.add_argument('--folders', nargs='+', default=FOLDERS, help=f'folders of tests; {" ".join(FOLDERS)}')
    options = parser.parse_args()
    files = sorted(file for name in options.folders for file in (options.checkout / name).resolve().glob('test_*.py'))
    if not files:
        parser.error(f'{options.checkout} holds none of {", ".join(options.folders)}')
    found: dict[str, dict[str, str]] = {run: {} for run in PLUGINS}
    with tempfile.TemporaryDirectory() as name:
        for run, code in PLUGINS.items():
            (Path(name) / f'{run}_vitnas.py').write_text(code)
        for file in files:
            for run, seen in found.items():
                seen.update(outcomes(file, run, Path(name)))
            print(f'{file.name}: done', flush=True)
    print(f'mmengine {mmengine.__version__}, {len(files)} files')
    for run, seen in found.items():
        print(f'{run + " vitnas":15s}', ', '.join(f'{n} {kind}' for kind, n in sorted(Counter(seen.values()).items())))
    broken, repaired = compare(found['without'], found['with'])
    for title, names in (('broken by vitnas', broken), ('only with vitnas', repaired)):
        print(f'{title}: {len(names)}', *names, sep='\n  ')
    return bool(broken)


if __name__ == '__main__':
    sys.exit(main())
