"""Configs find the projects of this repository from any folder, even if it has its own ``projects`` folder."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from mmengine.config import Config

from projects import VQA, read_config
from vitnas_core.registry import DATASETS, METRICS, MODELS

from ..config_files import ROOT
from .test_vqa.test_configs import write_small

STEM = 'question-only_8e_scenes'


def foreign(folder: Path, packages: bool) -> Path:
    """Another repository with a project ``other`` and one that is called ``vqa``, too."""
    for name in ('other', 'vqa/vqa'):
        module = folder / 'projects' / name / '__init__.py'
        module.parent.mkdir(parents=True)
        module.write_text(f'FILE = {str(module)!r}\n')
    if packages:
        for name in ('', 'vqa'):
            (folder / 'projects' / name / '__init__.py').touch()
    return folder


def run(folder: Path, *command: str) -> str:
    """Run Python in a folder that is on the path, as launchers of other repositories put theirs."""
    env = {**os.environ, 'PYTHONPATH': str(folder), 'OMP_NUM_THREADS': '1'}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize('packages', [False, True], ids=['folders as in mmdet', 'packages'])
def test_tools_run_inside_another_repository(packages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(foreign(tmp_path, packages))
    path = write_small(STEM, monkeypatch)
    cfg = Config.fromfile(path)
    assert cfg.custom_imports.imports == ['vitnas_core', 'projects.vqa.vqa']
    if packages:  # a dump from when the model was part of the core
        cfg.custom_imports.imports = ['vitnas_core']
        cfg.dump(path)
    run(tmp_path, str(ROOT / 'tools/train.py'), path)
    run(tmp_path, str(ROOT / 'tools/test.py'), path, f'work_dirs/{STEM}/epoch_1.pth')
    assert (tmp_path / 'work_dirs' / STEM / 'test.json').is_file()


def test_projects_of_other_repositories_stay_importable(tmp_path: Path) -> None:
    """A process of theirs, with this repository behind their own on the path."""
    folder = foreign(tmp_path, packages=False)
    code = 'import sys; sys.path.append(sys.argv[1]); import projects.vqa.vqa as a, projects.other as b'
    found = run(folder, '-c', f'{code}; print(a.__file__, b.FILE, sep="\\n")', str(ROOT)).splitlines()
    assert found == [str(ROOT / 'projects/vqa/vqa/__init__.py'), str(folder / 'projects/other/__init__.py')]


def test_types_of_old_configs_are_those_of_the_project() -> None:
    path = ROOT / 'projects/vqa/configs/digits' / f'{STEM}.py'
    read_config(Namespace(config=str(path), cfg_options={}, launcher='none', work_dir=None))
    registered = {**MODELS.module_dict, **DATASETS.module_dict, **METRICS.module_dict}
    names = [name for name, part in registered.items() if part.__module__.startswith('projects.vqa')]
    assert len(names) == 8 and all(VQA.fullmatch(name) for name in names)
