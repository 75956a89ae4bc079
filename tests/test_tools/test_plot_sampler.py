"""``tools/analysis/plot_sampler.py``: a picture and a table of the draws of a checkpoint's sampler."""

from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS

from tests.families import FAMILIES
from tools.analysis import plot_sampler
from vitnas_core.auto import fill_auto
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.training.samplers import FocusSampler

FAMILY = FAMILIES['autoformer']
MODEL = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.AutoFormer', space=FAMILY.space.to_dict(), **FAMILY.settings),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead', num_classes=10, in_channels='auto'),
)
SAMPLER = dict(type='vitnas.FocusSampler', input_size=32, num_classes=10, step=2e5, width=8)


def write_config(folder: Path, train_cfg: object) -> None:
    (folder / 'config.py').write_text(
        f"default_scope = 'mmpretrain'\nmodel = {MODEL!r}\ntrain_cfg = {train_cfg!r}\n"
        "custom_imports = dict(imports=['vitnas_core'])\n"
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a supernet's config and a checkpoint with a sampler."""
    write_config(tmp_path, dict(type='vitnas.SupernetTrainLoop', sampler=SAMPLER))
    model = MODELS.build(fill_auto({**MODEL, '_scope_': 'mmpretrain'}))
    backbone = elastic_backbone(model)
    sampler = FocusSampler(32, 10, 2e5, 8)
    sampler.bind(backbone.space, backbone.price, 3)
    torch.save(
        dict(state_dict=model.state_dict(), arch_sampler=sampler.state_dict()),
        tmp_path / 'supernet.pth',
    )
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    return tmp_path


def run(files: Path, *more: str, checkpoint: str = 'supernet.pth') -> None:
    paths = [str(files / name) for name in ('config.py', checkpoint)]
    plot_sampler.main([*paths, '--out', str(files / 'new' / 'sampler.png'), *more])


def test_picture_and_table(files: Path, capsys: pytest.CaptureFixture) -> None:
    run(files, '--draws', '10')
    first = (files / 'new' / 'sampler.png').read_bytes()
    assert first.startswith(b'\x89PNG') and [f.name for f in (files / 'new').iterdir()] == ['sampler.png']
    out, _ = capsys.readouterr()
    head, _, *rows, last = out.splitlines()
    assert 'WARNING' not in out and head.split('  ')[0] == 'budget (MACs)'
    assert len(rows) == 7 and all(row.endswith(' of 10') for row in rows)
    assert ' 100%  ' in rows[-1]  # everything is within the greatest budget
    assert last == f'Picture: {files / "new" / "sampler.png"}'
    run(files, '--draws', '10')
    assert (files / 'new' / 'sampler.png').read_bytes() == first


@pytest.mark.parametrize('train_cfg', [None, dict(by_epoch=True, max_epochs=3)])
def test_no_sampler_in_the_config(files: Path, train_cfg: object) -> None:
    write_config(files, train_cfg)
    with pytest.raises(VitnasError, match=r'train_cfg of .*config.py has no `sampler`; give sampler=dict\(type="vitna'):
        run(files)


def test_a_sampler_that_does_not_learn(files: Path) -> None:
    write_config(files, dict(sampler=dict(type='vitnas.UniformSampler')))
    with pytest.raises(VitnasError, match=r'config.py is a UniformSampler, which does not learn; give sampler='):
        run(files)


def test_checkpoints_that_do_not_do(files: Path) -> None:
    with pytest.raises(CheckpointError, match='weights.pth has no architecture sampler: train the supernet with'):
        run(files, checkpoint='weights.pth')
    with pytest.raises(CheckpointError, match='there is no checkpoint file'):
        run(files, checkpoint='none.pth')
    for change, words in (
        ('train_cfg.sampler.step=1e5', 'does not fit: its step is 200000.0, not 100000.0'),
        ('model.backbone.space.stages.0.embed_dim=48,72', 'does not fit: it is of another space'),
        ('train_cfg.sampler.input_size=64', 'does not fit: its range of budgets is'),
    ):
        with pytest.raises(CheckpointError, match=words) as raised:
            run(files, '--cfg-options', change)
        assert str(raised.value).endswith('supernet.pth)') and '\n' not in str(raised.value)
    assert not (files / 'new').exists()


def test_number_of_draws(files: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        run(files, '--draws', '0')
    assert '--draws should be at least 1, but got 0' in capsys.readouterr().err
