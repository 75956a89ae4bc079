"""The doctor on made-up environments, one per conflict, and on the real one."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location('vitnas_doctor', ROOT / 'tools' / 'doctor.py')
doctor = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = doctor
spec.loader.exec_module(doctor)

HEALTHY = {
    'torch': '2.13.0+cpu',
    'torchvision': '0.28.0+cpu',
    'mmengine': '0.10.7',
    'mmcv': '2.1.0',
    'mmdet': '3.3.0',
    'mmsegmentation': '1.2.2',
    'mmpretrain': '1.2.0',
    'timm': '1.0.30',
    'numpy': '1.26.4',
    'safetensors': '0.8.0',
    'scikit-learn': '1.9.1',
    'pymoo': '0.6.2',
    'tokenizers': '0.23.3',
    'scipy': '1.17.1',
    'matplotlib': '3.11.2',
    'ftfy': '6.3.1',
    'regex': '2026.11.9',
    'opencv-python': '5.0.0.93',
    'tensorboard': '2.21.0',
    'setuptools': '79.0.1',
    'pip': '23.2.1',
    'vitnas': '0.1.0',
}


def environment(changes=None, **facts):
    """Facts of a healthy environment with some versions changed; None takes a package out."""
    versions = {**HEALTHY, **(changes or {})}
    return doctor.Facts({name: version for name, version in versions.items() if version is not None}, **facts)


def findings(facts):
    """Every finding as (level, check, sentence)."""
    return [(f.level, title, f.what) for title, found in doctor.diagnose(facts).items() for f in found]


NMS = 'RuntimeError: operator torchvision::nms does not exist'
SYMBOL = 'ImportError: _ext.so: undefined symbol: _ZN3c104cuda9SetDeviceEa'
LIBGL = 'ImportError: libGL.so.1: cannot open shared object file: No such file or directory'

CLASHES = {
    'python too new': (environment(python=(3, 13)), 'fail', 'python', '3.13'),
    'python too old': (environment(python=(3, 9)), 'fail', 'python', '3.9'),
    'no torch': (environment({'torch': None}), 'fail', 'required packages', 'torch is not installed'),
    'torch too old': (environment({'torch': '2.5.1'}), 'fail', 'required packages', 'torch>=2.6'),
    'torch broken': (environment(errors={'torch': 'OSError: libcudart'}), 'fail', 'torch', 'libcudart'),
    'no torchvision': (environment({'torchvision': None}), 'fail', 'required packages', 'torchvision is not'),
    'torchvision of another torch': (environment(errors={'torchvision': NMS}), 'warn', 'torchvision', 'ops.nms'),
    'torchvision broken': (environment(errors={'torchvision': 'ImportError: x'}), 'fail', 'torchvision', 'import'),
    'no mmengine': (environment({'mmengine': None}), 'fail', 'required packages', 'mmengine is not installed'),
    'mmengine too new': (environment({'mmengine': '0.11.0'}), 'fail', 'required packages', 'mmengine>=0.10.7,<0.11'),
    'mmdet too old': (environment({'mmdet': '3.2.0'}), 'fail', 'required packages', 'mmdet is 3.2.0'),
    'no ftfy': (environment({'ftfy': None}), 'fail', 'required packages', 'mmsegmentation imports'),
    'no regex': (environment({'regex': None}), 'fail', 'required packages', 'mmsegmentation imports'),
    'no mmcv': (environment({'mmcv': None}), 'fail', 'mmcv', 'not installed'),
    'mmcv-lite': (environment({'mmcv': None, 'mmcv-lite': '2.1.0'}), 'fail', 'mmcv', 'no operators'),
    'both mmcvs': (environment({'mmcv-lite': '2.1.0'}), 'fail', 'mmcv', 'both installed'),
    'mmcv too new': (environment({'mmcv': '2.2.0'}), 'fail', 'mmcv', 'too new'),
    'mmcv too old': (environment({'mmcv': '2.0.0'}), 'fail', 'mmcv', 'too old'),
    'mmcv of another torch': (environment(errors={'ops': SYMBOL}), 'fail', 'mmcv', 'against another torch'),
    'mmcv without operators': (environment(errors={'ops': 'ImportError: none'}), 'fail', 'mmcv', 'do not load'),
    'mmcv for the CPU on a GPU': (environment(gpu=True), 'warn', 'mmcv', 'CPU only'),
    'vitnas broken': (environment(errors={'vitnas': 'ImportError: x'}), 'fail', 'vitnas', 'does not import'),
    'vitnas not installed': (environment({'vitnas': None}), 'warn', 'vitnas', 'not installed'),
    'checkpoints': (environment(errors={'checkpoint': 'UnpicklingError: x'}), 'fail', 'checkpoints', 'weights_only'),
    'two opencvs': (environment({'opencv-python-headless': '5.0.0.93'}), 'fail', 'opencv', 'both installed'),
    'no opencv': (environment({'opencv-python': None}), 'fail', 'opencv', 'not installed'),
    'no libGL': (environment(errors={'cv2': LIBGL}), 'fail', 'opencv', 'libGL.so.1'),
    'opencv broken': (environment(errors={'cv2': 'ImportError: numpy'}), 'fail', 'opencv', 'does not import'),
    'numpy 2': (environment({'numpy': '2.4.6'}), 'warn', 'numpy', 'hue'),
    'transformers too new': (
        environment({'transformers': '5.22.2'}, errors={'mmpretrain.models': 'TypeError: NoneType'}),
        'fail',
        'transformers',
        'does not import',
    ),
    'transformers untried': (environment({'transformers': '4.50.0'}), 'warn', 'transformers', '4.49'),
    'no tensorboard': (environment({'tensorboard': None}), 'info', 'tensorboard', 'TensorboardVisBackend'),
    'no tokenizers': (environment({'tokenizers': None}), 'info', 'tokenizers', 'only VQA models'),
    'tokenizers too old': (environment({'tokenizers': '0.19.1'}), 'warn', 'tokenizers', 'tokenizers>=0.20'),
    'no pip': (environment({'pip': None}), 'info', 'pip', 'uv'),
}


@pytest.mark.parametrize('case', CLASHES)
def test_a_clash_is_the_one_finding(case):
    facts, level, check, words = CLASHES[case]
    found = findings(facts)
    assert [finding[:2] for finding in found] == [(level, check)]
    assert words in found[0][2]
    assert all(f.fix for fs in doctor.diagnose(facts).values() for f in fs)


@pytest.mark.parametrize(
    'facts',
    [
        environment(),
        environment({'opencv-python': None, 'opencv-python-headless': '4.11.0.86'}),
        environment({'transformers': '4.49.0'}),
        environment({'setuptools': '82.0'}),
        environment({'torch': '2.6.0+cu124'}, cuda='12.4', gpu=True, ops_cuda=True),
        environment(python=(3, 10)),
        environment(python=(3, 12)),
        environment({'mmcv': '2.0.1', 'timm': '1.0'}),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(facts):
    assert findings(facts) == []


def test_setuptools_matters_where_mmcv_has_to_be_built():
    found = findings(environment({'setuptools': '80.0', 'mmcv': None}))
    assert [finding[:2] for finding in found] == [('fail', 'mmcv'), ('warn', 'setuptools')]


def test_an_empty_environment_is_described():
    found = findings(doctor.Facts({}))
    missing = {'required packages', 'mmcv', 'opencv', 'vitnas', 'tensorboard', 'tokenizers', 'pip'}
    assert missing == {title for _, title, _ in found}
    assert sum(title == 'required packages' for _, title, _ in found) == len(doctor.RANGES) - 1


def test_a_broken_package_is_not_blamed_on_checkpoints():
    facts = environment(errors={'vitnas': 'ImportError: x', 'checkpoint': 'ImportError: x'})
    assert [title for _, title, _ in findings(facts)] == ['vitnas']


@pytest.mark.parametrize(
    ('text', 'expected'), [('2.13.0+cpu', (2, 13)), ('2.2.0rc1', (2, 2)), ('2.10', (2, 10)), ('0.0', ()), ('dev', ())]
)
def test_numbers(text, expected):
    assert doctor.numbers(text) == expected


def test_ranges_are_those_of_pyproject():
    text = (ROOT / 'pyproject.toml').read_text()
    block = re.search(r'^dependencies = \[\n(.*?)^\]', text, re.M | re.S)[1]
    declared = {r.name: r.specifier for r in map(Requirement, re.findall(r'^\s*"([^"]+)"', block, re.M))}
    assert declared == {name: SpecifierSet(doctor.spell_range(name)[len(name) :]) for name in doctor.RANGES}
    assert f'vqa = ["tokenizers>={doctor.TOKENIZERS}"]' in text


def test_the_present_environment_passes():
    run = subprocess.run(
        [sys.executable, ROOT / 'tools' / 'doctor.py'], cwd=ROOT.parent, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r'^torch +\d', run.stdout, re.M)
    assert not re.search(r'^fail', run.stdout, re.M)


def test_runs_without_any_package():
    """Neither site-packages nor the folder of the repository is on the path of this run."""
    path = str(ROOT / 'tools' / 'doctor.py')
    code = f'import runpy, sys; sys.argv = ["doctor.py"]; runpy.run_path({path!r}, run_name="__main__")'
    run = subprocess.run([sys.executable, '-I', '-S', '-c', code], capture_output=True, text=True, timeout=300)
    assert run.returncode == 1 and not run.stderr
    assert 'torch is not installed' in run.stdout and 'mmcv is not installed' in run.stdout
