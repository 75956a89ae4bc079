"""torchvision imports with a torch for which it was not built, and a working one stays untouched."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from tests.processes import run
from vitnas_core.integration import torchvision_operators

FILE = Path(torchvision_operators.__file__)
# That module alone, so that nothing else of the package imports torchvision.
LOAD = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location('torchvision_operators', {str(FILE)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


def test_installed_torchvision_imports_afterwards():
    """Whichever build is installed: not imported by ours, then usable by timm."""
    run(f"""{LOAD}
declared = module.ensure_torchvision()
assert module.ensure_torchvision() is declared
assert 'torchvision' not in sys.modules
import timm, torch, torchvision.transforms.functional as F
from torchvision.extension import _has_ops
assert _has_ops() is not declared
assert F.resize(torch.zeros(1, 3, 8, 8), [4, 4]).shape == (1, 3, 4, 4)
assert module.ensure_torchvision() is declared
""")


def fake_torchvision(folder, code):
    package = folder / 'torchvision'
    package.mkdir()
    (package / '__init__.py').write_text(code)
    return package


UNTOUCHED = f"""{LOAD}
import torch
assert module.ensure_torchvision() is False
assert not module._schemas and not hasattr(torch.ops.torchvision, 'qnms')
"""


def test_working_torchvision_is_not_touched(tmp_path):
    """One without a library to load, whose own operator would clash with a declared one."""
    fake_torchvision(
        tmp_path,
        'import torch\nprint("imported")\nlib = torch.library.Library("torchvision", "DEF")\n'
        'lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")\nfrom . import part\n',
    )
    (tmp_path / 'torchvision' / 'part.py').write_text('')
    output = run(
        UNTOUCHED + "import torchvision\nassert 'torchvision.part' in sys.modules and torchvision.lib\n"
        'torch.ops.torchvision.nms\n',
        tmp_path,
    )
    assert output.split() == ['imported']


def test_torchvision_that_loads_its_library_is_not_even_imported(tmp_path):
    library = importlib.util.find_spec('_ctypes').origin
    if not library or not os.path.isfile(library):
        pytest.skip('this Python has no shared library to stand in for the compiled operators')
    package = fake_torchvision(tmp_path, 'print("imported")')
    shutil.copy(library, package / '_C.so')
    assert run(UNTOUCHED + "assert 'torchvision' not in sys.modules", tmp_path) == ''


def test_other_failures_of_torchvision_are_not_hidden(tmp_path):
    fake_torchvision(tmp_path, 'raise RuntimeError("compiled with different CUDA major versions")')
    run(
        f"""{LOAD}
try:
    module.ensure_torchvision()
except RuntimeError as err:
    assert 'CUDA major' in str(err)
else:
    raise AssertionError
""",
        tmp_path,
    )
