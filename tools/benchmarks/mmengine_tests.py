"""Run mmengine's own tests of runner, hooks and checkpoints with and without vitnas, and compare every outcome.

    git clone --branch v0.10.7 https://github.com/open-mmlab/mmengine
    python tools/benchmarks/mmengine_tests.py mmengine

The tests come from the checkout, and they test the installed mmengine: both should have the same version. Every test
file runs in its own process, as some leave parts in the registries. If torchvision was built for another torch, both
runs repair its import. Some tests need ``parameterized``.

The tool fails if a test passes without vitnas but not with it. Tests that pass only with vitnas read checkpoints that
torch refuses since version 2.6.
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
    """Run a test file with one of the plugins.

    Args:
        file: The file.
        run: Name of the plugin.
        folder: Folder of the plugins. The test runs here, so it does not import the checkout's mmengine.

    Returns:
        Test → passed, failed or skipped. A file without a report counts as one failure.
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
    """Return the tests that vitnas breaks, and those that pass only with it."""
    changed = [name for name in {**without, **with_vitnas} if without.get(name) != with_vitnas.get(name)]
    broken = [name for name in changed if with_vitnas.get(name) != 'passed']
    return broken, [name for name in changed if name not in broken]


def main() -> int:
    """Read the command line, run the tests and print the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('checkout', type=Path, help='folder of an mmengine checkout with its tests')
    parser.add_argument('--folders', nargs='+', default=FOLDERS, help=f'test folders; defaults to {" ".join(FOLDERS)}')
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
