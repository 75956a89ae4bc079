"""Modules that ``import vitnas_core`` imports or defers, and code that runs when a library is imported."""

import sys
from pathlib import Path

import pytest

from tests.processes import run
from vitnas_core.integration.on_import import when_imported

LATER = ['timm', 'torchvision', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'sklearn', 'scipy', 'matplotlib', 'pymoo']
LATER += [
    'tokenizers',
    'transformers',
    'pycocotools',
    'cv2',
    'pandas',
    'safetensors',
    'mmengine.model',
    'mmengine.runner',
]


def test_importing_vitnas_is_cheap() -> None:
    """It takes little longer than importing torch and mmengine: the rest is imported when it is used."""
    broken = run('import vitnas_core.integration.torchvision_operators as module; print(module.ensure_torchvision())')
    found = run(f'import sys, vitnas_core\nprint(*[name for name in {LATER} if name in sys.modules])').split()
    assert found == [], broken


def test_parts_are_found_after_the_import() -> None:
    run("""
import vitnas_core
from mmengine.registry import HOOKS, LOOPS, MODELS
for registry, names in (
    (MODELS, ('AutoFormer', 'SimpleFeaturePyramid', 'Teacher')),
    (LOOPS, ('SupernetTrainLoop', 'EvolutionSearchLoop')),
    (HOOKS, ('CheckpointHook',)),
):
    assert all(registry.get(f'vitnas.{name}').__module__.startswith('vitnas_core.') for name in names)
""")


@pytest.mark.parametrize('order', ['vitnas_core, timm', 'timm, vitnas_core'])
def test_timm_knows_the_zoo(order: str) -> None:
    if order.startswith('timm'):  # beside another torch it needs vitnas first
        order = 'vitnas_core.integration.torchvision_operators as module; module.ensure_torchvision(); import ' + order
    assert int(run(f"import {order}\nprint(len(timm.list_models('vitnas_*')))")) > 10


def test_mmengine_reads_files_our_way_whenever_it_is_imported() -> None:
    for order in ('vitnas_core, mmengine.runner', 'mmengine.runner, vitnas_core'):
        loader = run(f"""
import {order}
from mmengine.runner.checkpoint import CheckpointLoader, load_url
assert load_url.keywords == dict(weights_only=True)
print(CheckpointLoader._get_checkpoint_loader('x.pth').__module__)
""")
        assert loader.strip() == 'vitnas_core.integration.checkpoint_files'


def test_actions_run_once_and_after_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'waited_for.py').write_text('value = 1\n')
    seen: list[int] = []
    for factor in (1, 10):
        when_imported('waited_for', lambda module, factor=factor: seen.append(factor * module.value))
    assert seen == []
    import waited_for

    assert seen == [1, 10]
    del sys.modules['waited_for']
    import waited_for  # noqa: F401, F811

    assert seen == [1, 10]
    when_imported('waited_for', lambda module: seen.append(module.value))
    assert seen == [1, 10, 1]


def test_a_module_that_fails_runs_no_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'broken_once.py').write_text('raise ImportError("no")\n')
    seen: list[str] = []
    when_imported('broken_once', lambda module: seen.append(module.__name__))
    with pytest.raises(ImportError, match='no'):
        __import__('broken_once')
    (tmp_path / 'broken_once.py').write_text('works = True\n')
    __import__('broken_once')
    assert seen == ['broken_once']
