"""Print the versions of the stack and every known conflict between them, each with a command that fixes it.

Usage: ``python tools/doctor.py [--quiet]``. The exit code is 1 if something will not work. The top level imports only
the standard library, so the tool also runs if other packages are missing or broken.
"""

import argparse
import contextlib
import io
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PIP = f'{sys.executable} -m pip'
SETUP = 'bash tools/setup.sh --again'

# The lowest version that works and the first that does not, as in pyproject.toml.
RANGES: dict[str, tuple[str, str]] = {
    'torch': ('2.6', ''),
    'torchvision': ('0.21', ''),
    'mmengine': ('0.10.7', '0.11'),
    'mmcv': ('2.0.1', '2.2.0'),
    'mmdet': ('3.3.0', '3.4'),
    'mmsegmentation': ('1.2.2', '1.3'),
    'mmpretrain': ('1.2.0', '1.3'),
    'timm': ('1.0', ''),
    'numpy': ('1.26', ''),
    'safetensors': ('0.4', ''),
    'scikit-learn': ('1.3', ''),
    'pymoo': ('0.6.1.6', ''),
    'scipy': ('1.10', ''),
    'matplotlib': ('3.7', ''),
    'ftfy': ('', ''),
    'regex': ('', ''),
}
TOKENIZERS = '0.20'
"""Lowest version for VQA models, as in the extra `vqa` of pyproject.toml."""
OPENCVS = ('opencv-python', 'opencv-python-headless', 'opencv-contrib-python', 'opencv-contrib-python-headless')
SHOWN = (*RANGES, 'mmcv-lite', *OPENCVS, 'tokenizers', 'transformers', 'tensorboard', 'setuptools', 'pip', 'vitnas')


@dataclass(frozen=True)
class Facts:
    """Properties of an environment that the checks use.

    Args:
        versions (dict[str, str]): Version of each installed distribution.
        errors (dict[str, str]): Error of each failing probe. Defaults to none: every probe worked.
        python (tuple[int, int]): Version of Python. Defaults to (3, 11).
        cuda (str): Version of CUDA that torch was built for. Defaults to '': a CPU build.
        gpu (bool): Whether torch sees a GPU. Defaults to False.
        ops_cuda (bool): Whether mmcv's operators were compiled for CUDA. Defaults to False.
    """

    versions: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    python: tuple[int, int] = (3, 11)
    cuda: str = ''
    gpu: bool = False
    ops_cuda: bool = False

    def at_least(self, name: str, version: str) -> bool:
        """Return whether ``name`` is installed in ``version`` or a later one."""
        return name in self.versions and numbers(self.versions[name]) >= numbers(version)

    def below(self, name: str, version: str) -> bool:
        """Return whether ``name`` is installed in a version before ``version``."""
        return name in self.versions and numbers(self.versions[name]) < numbers(version)

    @property
    def ops_broken(self) -> bool:
        """True if an mmcv with operators still has to be built for this torch."""
        return 'mmcv' not in self.versions or 'mmcv-lite' in self.versions or 'ops' in self.errors


@dataclass(frozen=True)
class Finding:
    """Result of a check: level (``info``, ``warn`` or ``fail``), one sentence, and the fix."""

    level: str
    what: str
    fix: str


def numbers(version: str) -> tuple[int, ...]:
    """Parse a version for comparison: ``2.13.0+cpu`` gives (2, 13), without trailing zeros."""
    match = re.match(r'\d+(\.\d+)*', version)
    found = [int(part) for part in match[0].split('.')] if match else []
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def spell_range(name: str) -> str:
    """Range of ``name`` as pip reads it, e.g. ``mmcv>=2.0.1,<2.2.0``."""
    low, high = RANGES[name]
    return name + ','.join(filter(None, [low and f'>={low}', high and f'<{high}']))


def check_python(facts: Facts) -> list[Finding]:
    """Python is one that torch and the mm packages have wheels or builds for."""
    if (3, 10) <= facts.python <= (3, 12):
        return []
    what = f'Python {facts.python[0]}.{facts.python[1]} is not supported; vitnas needs 3.10 to 3.12.'
    return [Finding('fail', what, 'VITNAS_PYTHON=python3.11 bash tools/setup.sh')]


def check_required(facts: Facts) -> list[Finding]:
    """Every package of pyproject.toml is installed in its range (mmcv has its own check)."""
    found = []
    for name, (low, high) in RANGES.items():
        if name == 'mmcv':
            continue
        if name not in facts.versions:
            reason = ', which mmsegmentation imports without declaring it' if name in ('ftfy', 'regex') else ''
            found.append(Finding('fail', f'{name} is not installed{reason}.', SETUP))
        elif facts.below(name, low) or (high and facts.at_least(name, high)):
            what = f'{name} is {facts.versions[name]}; vitnas needs {spell_range(name)}.'
            found.append(Finding('fail', what, f"{PIP} install '{spell_range(name)}'"))
    return found


def check_torch(facts: Facts) -> list[Finding]:
    """The installed torch imports."""
    if 'torch' not in facts.errors:
        return []
    what = f'torch does not import: {facts.errors["torch"]}.'
    return [Finding('fail', what, f'{PIP} install --force-reinstall torch')]


def check_torchvision(facts: Facts) -> list[Finding]:
    """Torchvision was built for this torch."""
    error = facts.errors.get('torchvision')
    if error is None:
        return []
    torch = facts.versions.get('torch', '').split('+')[0]
    fix = f'{PIP} install --force-reinstall --no-deps torchvision  # the build for torch {torch}, from its index'
    if 'torchvision::nms' not in error:
        return [Finding('fail', f'torchvision does not import: {error}.', fix)]
    what = (
        'torchvision was built for another torch, so its compiled operators do not load. vitnas repairs the import if '
        '`import vitnas_core` comes first. '
        'torchvision.ops.nms and torchvision.io.read_image will not work; use mmcv.ops, cv2 or Pillow instead.'
    )
    return [Finding('warn', what, fix)]


def check_mmcv(facts: Facts) -> list[Finding]:
    """There is one mmcv, in a version that mmdet and mmseg accept, with operators that load."""
    version, lite = facts.versions.get('mmcv'), facts.versions.get('mmcv-lite')
    anew = f'{PIP} uninstall -y mmcv mmcv-lite && {SETUP}'
    if version is None and lite is None:
        return [Finding('fail', 'mmcv is not installed.', SETUP)]
    if version is None:
        what = f'mmcv-lite {lite} has no operators: detection and segmentation models will not import.'
        return [Finding('fail', what, anew)]
    if lite is not None:
        what = f'mmcv {version} and mmcv-lite {lite} are both installed and overwrite each other.'
        return [Finding('fail', what, anew)]
    if facts.at_least('mmcv', RANGES['mmcv'][1]):
        what = f'mmcv {version} is too new: mmdet 3.3 and mmsegmentation 1.2 refuse 2.2.0 and later.'
        return [Finding('fail', what, anew)]
    if facts.below('mmcv', RANGES['mmcv'][0]):
        return [Finding('fail', f'mmcv {version} is too old; vitnas needs {spell_range("mmcv")}.', anew)]
    error = facts.errors.get('ops')
    if error is not None:
        what = f'the operators of mmcv {version} do not load: {error}.'
        if 'undefined symbol' in error:
            what = f'mmcv {version} was compiled against another torch than {facts.versions.get("torch")}: {error}.'
        return [Finding('fail', what, anew)]
    if facts.gpu and not facts.ops_cuda:
        what = f'torch sees a GPU, but the operators of mmcv {version} were compiled for the CPU only.'
        return [Finding('warn', what, f'{anew}  # with nvcc on the PATH')]
    return []


def check_setuptools(facts: Facts) -> list[Finding]:
    """Setuptools can build mmcv, if it has to be built."""
    if not facts.ops_broken or not facts.at_least('setuptools', '80'):
        return []
    what = f'mmcv has to be built, but setuptools {facts.versions["setuptools"]} cannot (80 dropped what it uses).'
    return [Finding('warn', what, f"{PIP} install 'setuptools<80'")]


def check_vitnas(facts: Facts) -> list[Finding]:
    """The package of this repository is installed and imports."""
    if 'vitnas' in facts.errors:
        return [Finding('fail', f'vitnas_core does not import: {facts.errors["vitnas"]}.', SETUP)]
    if 'vitnas' not in facts.versions:
        what = 'vitnas is not installed: `import vitnas_core` works only in the repository folder.'
        return [Finding('warn', what, f'{PIP} install --no-deps --no-build-isolation -e .')]
    return []


def check_checkpoints(facts: Facts) -> list[Finding]:
    """A checkpoint of mmengine passes torch's ``weights_only`` loading."""
    if 'checkpoint' not in facts.errors or 'vitnas' in facts.errors:
        return []
    what = f'a checkpoint of mmengine does not load with weights_only=True: {facts.errors["checkpoint"]}.'
    return [Finding('fail', what, f"{PIP} install '{spell_range('torch')}' '{spell_range('mmengine')}'")]


def check_opencv(facts: Facts) -> list[Finding]:
    """There is one opencv, and it imports."""
    present = [name for name in OPENCVS if name in facts.versions]
    headless = f'{PIP} uninstall -y {" ".join(present)} && {PIP} install --no-deps opencv-python-headless'
    if len(present) > 1:
        what = f'{" and ".join(present)} are both installed and overwrite each other.'
        return [Finding('fail', what, headless)]
    if not present:
        return [Finding('fail', 'opencv is not installed.', SETUP)]
    error = facts.errors.get('cv2')
    if error is None:
        return []
    library = re.search(r'(lib[\w.+-]+): cannot open shared object', error)
    if library:
        what = f'{present[0]} needs the system library {library[1]}, which is missing.'
        return [Finding('fail', what, f'apt-get install -y libgl1 libglib2.0-0  (or: {headless})')]
    fix = f'{PIP} install --force-reinstall --no-deps {present[0]}'
    return [Finding('fail', f'cv2 does not import: {error}.', fix)]


def check_numpy(facts: Facts) -> list[Finding]:
    """Hue jitter of mmcv works with this numpy."""
    if not facts.at_least('numpy', '2'):
        return []
    what = 'with numpy 2 mmcv.adjust_hue overflows on a negative factor, so ColorJitter(hue=...) fails at random.'
    older = f'{PIP} uninstall -y opencv-python && {PIP} install numpy==1.26.4 opencv-python-headless==4.11.0.86'
    return [Finding('warn', what, f'leave hue out of the recipe (ours do), or: {older}')]


def check_transformers(facts: Facts) -> list[Finding]:
    """mmpretrain can import the installed version of transformers, if any."""
    version, error = facts.versions.get('transformers'), facts.errors.get('mmpretrain.models')
    fix = f'{PIP} install transformers==4.49.0'
    if version is None:
        return []
    if error is not None:
        return [Finding('fail', f'mmpretrain.models does not import beside transformers {version}: {error}.', fix)]
    if facts.at_least('transformers', '4.50'):
        return [Finding('warn', f'mmpretrain supports transformers up to 4.49, but this is {version}.', fix)]
    return []


def check_tensorboard(facts: Facts) -> list[Finding]:
    """Tensorboard is installed, for TensorboardVisBackend."""
    if 'tensorboard' in facts.versions:
        return []
    what = 'tensorboard is missing; only TensorboardVisBackend needs it.'
    return [Finding('info', what, f'{PIP} install tensorboard')]


def check_tokenizers(facts: Facts) -> list[Finding]:
    """Tokenizers is installed, for VQA models."""
    if facts.at_least('tokenizers', TOKENIZERS):
        return []
    version = facts.versions.get('tokenizers')
    fix = f"{PIP} install 'tokenizers>={TOKENIZERS}'"
    if version is None:
        return [Finding('info', 'tokenizers is missing; only VQA models (projects/vqa) need it.', fix)]
    return [Finding('warn', f'tokenizers is {version}; VQA models need tokenizers>={TOKENIZERS}.', fix)]


def check_pip(facts: Facts) -> list[Finding]:
    """The environment has pip, which the set-up uses."""
    if 'pip' in facts.versions:
        return []
    what = "this environment has no pip (made by uv?); uv ignores pip's configuration and may pick another torch build."
    return [Finding('info', what, f'{sys.executable} -m ensurepip')]


CHECKS: dict[str, Callable[[Facts], list[Finding]]] = {
    'python': check_python,
    'required packages': check_required,
    'torch': check_torch,
    'torchvision': check_torchvision,
    'mmcv': check_mmcv,
    'setuptools': check_setuptools,
    'opencv': check_opencv,
    'vitnas': check_vitnas,
    'checkpoints': check_checkpoints,
    'numpy': check_numpy,
    'transformers': check_transformers,
    'tensorboard': check_tensorboard,
    'tokenizers': check_tokenizers,
    'pip': check_pip,
}


def load_operators() -> ModuleType:
    """Load only the compiled part of mmcv, because the package itself needs a working opencv.

    Raises:
        ImportError: There is no compiled part, or it does not fit the installed torch.
    """
    import_module('torch')
    package = PathFinder.find_spec('mmcv')
    folders = package.submodule_search_locations if package else None
    for file in (file for folder in folders or [] for file in Path(folder).glob('_ext*.so')):
        spec = spec_from_file_location('mmcv._ext', file)
        if spec is not None and spec.loader is not None:
            module = sys.modules['mmcv._ext'] = module_from_spec(spec)  # only once per process; mmcv finds it there
            spec.loader.exec_module(module)
            return module
    raise ImportError('mmcv has no compiled part')


def _probe_checkpoint() -> object:
    torch, logging = import_module('torch'), import_module('mmengine.logging')
    import_module('vitnas_core')
    file = io.BytesIO()
    torch.save({'message_hub': {'loss': logging.HistoryBuffer([0.5], [1])}}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# Name → distributions that the probe needs, and the probe. The order matters: torchvision before vitnas repairs it.
PROBES: dict[str, tuple[tuple[str, ...], Callable[[], object]]] = {
    'torch': (('torch',), lambda: import_module('torch')),
    'cv2': ((), lambda: import_module('cv2')),
    'torchvision': (('torch', 'torchvision'), lambda: import_module('torchvision')),
    'ops': (('torch', 'mmcv'), load_operators),
    'vitnas': (('torch', 'mmengine'), lambda: import_module('vitnas_core')),
    'checkpoint': (('torch', 'mmengine'), _probe_checkpoint),
    'mmpretrain.models': (('mmpretrain', 'transformers'), lambda: import_module('mmpretrain.models')),
}


def gather() -> Facts:
    """Collect the facts of the current environment."""
    versions: dict[str, str] = {}
    for dist in distributions():
        name = dist.metadata['Name'] if dist.metadata else None
        if name:
            versions.setdefault(re.sub(r'[-_.]+', '-', name).lower(), dist.version)
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    errors: dict[str, str] = {}
    results: dict[str, Any] = {}
    for name, (needs, probe) in PROBES.items():
        if any(need not in versions for need in needs):
            continue
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter('ignore')
                results[name] = probe()
        except Exception as error:  # report whatever a broken package raises
            lines = str(error).strip().splitlines()
            errors[name] = f'{type(error).__name__}: {lines[0].rstrip(".")}' if lines else type(error).__name__
    torch, ops = results.get('torch'), results.get('ops')
    return Facts(
        versions,
        errors,
        python=sys.version_info[:2],
        cuda=(torch.version.cuda or '') if torch else '',
        gpu=bool(torch and torch.cuda.is_available()),
        ops_cuda=bool(ops and 'not' not in ops.get_compiling_cuda_version()),
    )


def diagnose(facts: Facts) -> dict[str, list[Finding]]:
    """Run every check. A check without findings has passed."""
    return {title: check(facts) for title, check in CHECKS.items()}


def main(argv: list[str] | None = None) -> int:
    """Print versions and findings; return the exit code."""
    parser = argparse.ArgumentParser(description='Print the versions of the stack and known conflicts between them.')
    parser.add_argument('--quiet', action='store_true', help='print warnings and failures only')
    args = parser.parse_args(argv)
    facts = gather()
    if not args.quiet:
        print(f'{"python":<32}{platform.python_version()} ({sys.executable})\n{"platform":<32}{platform.platform()}')
        print(f'{"cuda":<32}{facts.cuda or "torch is a CPU build"}, {"GPU found" if facts.gpu else "no GPU"}')
        ops = 'missing' if facts.ops_broken else 'CUDA' if facts.ops_cuda else 'CPU'
        print(f'{"mmcv operators":<32}{ops}')
        for name in SHOWN:
            if name in facts.versions or name not in OPENCVS:
                print(f'{name:<32}{facts.versions.get(name, "-")}')
        print()
    report = diagnose(facts)
    for title, findings in report.items():
        if not findings and not args.quiet:
            print(f'ok    {title}')
        for finding in findings:
            if finding.level != 'info' or not args.quiet:
                print(f'{finding.level:<6}{title}: {finding.what}\n      fix: {finding.fix}')
    return int(any(finding.level == 'fail' for findings in report.values() for finding in findings))


if __name__ == '__main__':
    sys.exit(main())
