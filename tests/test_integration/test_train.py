"""``tools/train.py`` on the digits: training, resuming and clear errors."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from tools import train
from vitnas_core.errors import ArchError, VitnasError

CONFIG = 'projects/classification/configs/autoformer/autoformer-micro_retrain_20e_digits.py'


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])


def run(work_dir: Path, *args: str, epochs: int = 1):
    options = [f'train_cfg.max_epochs={epochs}', 'train_cfg.val_interval=1', 'default_hooks.checkpoint.interval=1']
    return train.main([CONFIG, '--work-dir', str(work_dir), *args, '--cfg-options', *options])


def test_train_then_resume(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert first.epoch == 1
    assert (tmp_path / 'epoch_1.pth').is_file()
    weights = torch.load(tmp_path / 'epoch_1.pth', weights_only=True)['state_dict']
    assert 'backbone.blocks.0.attn.relative.key_vertical' in weights and 'head.fc.weight' in weights
    second = run(tmp_path, '--resume', epochs=2)
    assert (second.epoch, second.iter) == (2, 2 * first.iter)
    losses = second.message_hub.get_scalar('train/loss').data[0]
    assert len(losses) == second.iter  # the first run's are kept
    assert losses[-10:].mean() < losses[:10].mean()
    assert 'val/accuracy/top1' in second.message_hub.log_scalars
    moved = second.model.state_dict()
    assert any(not torch.equal(moved[name], value) for name, value in weights.items())


def test_resume_goes_on_from_its_own_checkpoint_not_from_where_it_began(tmp_path: Path) -> None:
    """The config of a finetuning has load_from; mmengine would resume from that."""
    first = run(tmp_path / 'first')
    began = tmp_path / 'first' / 'epoch_1.pth'
    finetune = tmp_path / 'finetune.py'
    finetune.write_text(f'_base_ = {str(Path(CONFIG).resolve())!r}\nload_from = {str(began)!r}\n')
    config = [str(finetune), '--work-dir', str(tmp_path / 'second'), '--resume', '--cfg-options']
    more = ['train_cfg.val_interval=9', 'default_hooks.checkpoint.interval=1', 'optim_wrapper.optimizer.lr=0']
    started = train.main([*config, *more, 'train_cfg.max_epochs=1'])  # nothing to resume yet
    assert started.epoch == 1 and started.iter == first.iter
    weights = first.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in started.model.state_dict().items())
    resumed = train.main([*config, *more, 'train_cfg.max_epochs=3'])
    assert resumed.epoch == 3 and (tmp_path / 'second' / 'epoch_3.pth').is_file()
    assert len(resumed.message_hub.get_scalar('train/loss').data[0]) == 3 * first.iter
    # A file that the command names is what is resumed from, as in mmengine.
    named = train.main([*config, *more, 'train_cfg.max_epochs=2', f'load_from={began}'])
    assert (named.epoch, named.iter) == (2, 2 * first.iter)


def test_a_search_needs_its_supernet_also_with_resume() -> None:
    search = 'projects/classification/configs/autoformer/autoformer-micro_search_evolution-2m_digits.py'
    for path, expected in ((search, True), (CONFIG, False)):
        assert train.is_search(Config.fromfile(path)) == expected


def test_a_mistake_in_the_config_names_the_choice(tmp_path: Path) -> None:
    with pytest.raises(
        ArchError, match=r'stages\[0\].blocks\[0\].num_heads should be a whole number above 0, but got -1'
    ):
        train.main(
            [CONFIG, '--work-dir', str(tmp_path), '--cfg-options', 'model.backbone.arch.stages.0.blocks.0.num_heads=-1']
        )


def test_a_config_that_is_not_there() -> None:
    with pytest.raises(VitnasError, match='there is no config file projects/nope.py'):
        train.main(['projects/nope.py'])
    with pytest.raises(VitnasError, match='digits.py has no `model`; give a config to train, not a part of one'):
        train.main(['configs/_base_/datasets/digits.py'])
