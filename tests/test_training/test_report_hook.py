"""The supernet report: right numbers, kept as CSV, and no duplicate rows after a resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from tests.families import FAMILIES
from tests.supernets import UNIFORM, model_config, supernet_config
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import VitnasError
from vitnas_core.training.hooks import read_report


def run(work_dir: Path, resume: bool = False, ema: bool = False, **length: int) -> Runner:
    config = supernet_config(work_dir, UNIFORM, **(length or dict(max_epochs=2)))
    config.custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=1, num_random=2)]
    config.custom_hooks += [dict(type='EMAHook', momentum=0.5)] * ema
    config.resume = resume
    runner = Runner.from_cfg(config)
    runner.train()
    return runner


def accuracy(runner: Runner, name: str) -> float:
    """By hand: the fraction of val images that the architecture names rightly."""
    backbone = elastic_backbone(runner.model)
    backbone.set_arch(getattr(backbone.space, name)())
    runner.model.eval()
    right = total = 0
    for batch in runner.val_loop.dataloader:
        with torch.no_grad():
            for sample in runner.model.val_step(batch):
                right, total = right + int(sample.pred_label == sample.gt_label), total + 1
    return 100 * right / total


@pytest.mark.parametrize('ema', [False, True])
def test_rows_hold_the_accuracy_and_costs_of_each(tmp_path: Path, ema: bool) -> None:
    runner = run(tmp_path, ema=ema)
    rows = read_report(tmp_path / 'supernet_report.csv')
    names = ['largest', 'smallest', 'random_0', 'random_1']
    assert [(row['epoch'], row['iter'], row['name']) for row in rows] == [
        (epoch, step, name) for epoch, step in (('1', '8'), ('2', '16')) for name in names
    ]
    if ema:
        weights = torch.load(tmp_path / 'epoch_2.pth', weights_only=True)['state_dict']  # the averaged ones
        runner.model.load_state_dict(weights)
    family = FAMILIES['autoformer']
    settings = {name: family.settings[name] for name in family.cls.cost_settings if name in family.settings}
    for row in rows[4:6]:
        assert float(row['value']) == pytest.approx(accuracy(runner, row['name']))
        cost = family.cls.cost(getattr(family.space, row['name'])(), 32, 10, **settings)
        assert (int(row['macs']), int(row['params'])) == (cost.macs, cost.params)


def test_two_sided_architectures_have_the_mean_of_both_sides(tmp_path: Path) -> None:
    """As the score of a search; a pattern with one side has that of a plain validation."""
    model = model_config()
    model['backbone']['sharing'] = 'bilateral'
    config = supernet_config(tmp_path, UNIFORM, model=model, max_epochs=1)
    config.custom_hooks = [dict(type='vitnas.SupernetReportHook', num_random=0), dict(type='Spread')]
    runner = Runner.from_cfg(config)
    runner.train()
    backbone = elastic_backbone(runner.model)
    values = {row['name']: float(row['value']) for row in read_report(tmp_path / 'supernet_report.csv')}
    sides = {name: [accuracy(runner, name) for _ in backbone.pattern.each_side()] for name in values}
    assert sides['smallest'][0] != sides['smallest'][1] and sides['largest'][0] == sides['largest'][1]
    assert values == {name: pytest.approx(sum(both) / 2) for name, both in sides.items()}


@HOOKS.register_module()
class Spread(Hook):
    """Weights with which predictions differ, just before the report."""

    priority = 'NORMAL'

    def after_train_epoch(self, runner: Runner) -> None:
        torch.manual_seed(0)
        with torch.no_grad():
            for name, tensor in runner.model.named_parameters():
                if tensor.ndim > 1:
                    tensor.normal_(std=0.2 if 'backbone' in name else 1.0)


def test_a_resume_drops_what_is_trained_again(tmp_path: Path) -> None:
    run(tmp_path)
    whole = (tmp_path / 'supernet_report.csv').read_text()
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'epoch_1.pth'))
    run(tmp_path, resume=True)
    assert (tmp_path / 'supernet_report.csv').read_text() == whole


def test_by_iterations(tmp_path: Path) -> None:
    run(tmp_path, max_iters=3)
    assert {row['iter'] for row in read_report(tmp_path / 'supernet_report.csv')} == {'1', '2', '3'}


def test_needs_val_data(tmp_path: Path) -> None:
    config = supernet_config(tmp_path)
    config.custom_hooks = [dict(type='vitnas.SupernetReportHook')]
    config.val_cfg = config.val_dataloader = config.val_evaluator = None
    with pytest.raises(VitnasError, match='SupernetReportHook needs val_dataloader, val_cfg and val_evaluator'):
        Runner.from_cfg(config).train()
