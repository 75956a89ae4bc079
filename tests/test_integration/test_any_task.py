"""The loops are independent of the task: supernet training, report and search also work for a segmentor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.runner import Runner
from PIL import Image

from tests.families import BACKBONES, FAMILIES, Family
from vitnas_core.training.hooks import read_report


@pytest.fixture
def streets(tmp_path: Path) -> Path:
    """Twelve images in the usual layout: a dark half and a bright one, in two classes."""
    rng = np.random.default_rng(0)
    for folder in ('img', 'ann'):
        (tmp_path / 'data' / folder).mkdir(parents=True)
    for i in range(12):
        labels = np.zeros((64, 64), np.uint8)
        labels[:, rng.integers(20, 44) :] = 1
        image = np.clip(labels[..., None] * 120 + rng.integers(0, 100, (64, 64, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(image).save(tmp_path / 'data/img' / f'{i}.jpg')
        Image.fromarray(labels).save(tmp_path / 'data/ann' / f'{i}.png')
    return tmp_path / 'data'


def config(work_dir: Path, data: Path, family: Family, workers: int, **more: Any) -> Config:
    pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
    dataset = dict(
        type='BaseSegDataset',
        data_root=str(data),
        data_prefix=dict(img_path='img', seg_map_path='ann'),
        metainfo=dict(classes=('dark', 'bright'), palette=[[0, 0, 0], [255, 255, 255]]),
        pipeline=pipeline,
    )

    def loader(part: str) -> dict[str, Any]:
        split = dict(type='vitnas.HoldOut', part=part, fraction=0.5, dataset=dataset)
        sampler = dict(type='DefaultSampler', shuffle=part == 'train')
        return dict(batch_size=2, num_workers=workers, dataset=split, sampler=sampler)

    backbone = dict(type=f'vitnas.{family.cls.__name__}', space=family.space.to_dict(), **family.settings)
    width = family.elastic().out_channels()[-1]
    head = dict(type='FCNHead', in_channels=width, channels=8, num_convs=1, num_classes=2, in_index=0)
    head['norm_cfg'] = dict(type='BN')
    return Config(
        dict(
            default_scope='mmseg',
            model=dict(
                type='EncoderDecoder',
                data_preprocessor=dict(type='SegDataPreProcessor', mean=[110.0] * 3, std=[60.0] * 3, size=(64, 64)),
                backbone=backbone,
                decode_head=head,
                test_cfg=dict(mode='whole'),
            ),
            train_dataloader=loader('train'),
            val_dataloader=loader('holdout'),
            val_cfg=dict(type='ValLoop'),
            val_evaluator=dict(type='IoUMetric'),
            train_cfg=dict(
                type='vitnas.SupernetTrainLoop',
                max_iters=8,
                val_interval=8,
                sampler=dict(type='vitnas.SandwichSampler', num_random=1),
                rule=dict(type='vitnas.Sandwich'),
            ),
            optim_wrapper=dict(optimizer=dict(type='AdamW', lr=2e-3)),
            default_hooks=dict(checkpoint=dict(type='vitnas.CheckpointHook', interval=8, by_epoch=False)),
            custom_hooks=[dict(type='vitnas.SupernetReportHook', interval=8, num_random=1)],
            work_dir=str(work_dir),
            randomness=dict(seed=0),
            log_level='ERROR',
            experiment_name=work_dir.name,
            **more,
        )
    )


@pytest.mark.parametrize('name', BACKBONES)
def test_a_segmentor_is_trained_and_searched(tmp_path: Path, streets: Path, name: str) -> None:
    family = FAMILIES[name]
    Runner.from_cfg(config(tmp_path / 'supernet', streets, family, workers=0)).train()
    rows = read_report(tmp_path / 'supernet/supernet_report.csv')
    assert {row['metric'] for row in rows} >= {'mIoU', 'aAcc'} and {row['name'] for row in rows} >= {'largest'}

    cfg = config(
        tmp_path / 'search', streets, family, workers=1, load_from=str(tmp_path / 'supernet/iter_8.pth')
    )  # images come from a worker
    cfg.train_cfg = dict(
        type='vitnas.RandomSearchLoop',
        num_candidates=4,
        evaluator=dict(type='IoUMetric'),
        metric='mIoU',
        input_size=64,
    )
    cfg.train_dataloader = cfg.val_dataloader
    cfg.val_dataloader = cfg.val_cfg = cfg.val_evaluator = None
    cfg.custom_hooks = []
    runner = Runner.from_cfg(cfg)
    runner.train()
    lines = [json.loads(line) for line in (tmp_path / 'search/history.jsonl').read_text().splitlines()[1:]]
    assert len(lines) == 4 and all(0 <= line['score'] <= 100 and line['complete'] for line in lines)
    assert (tmp_path / 'search/report.html').is_file()
    best = min(lines, key=lambda line: (-line['score'], line['cost']['macs'], line['id']))  # of equals the cheaper
    assert json.loads((tmp_path / 'search/best_arch.json').read_text()) == best['arch']

    # The winner's score is what mmengine's own validation gives it.
    loop = runner.build_val_loop(
        dict(type='ValLoop', dataloader=cfg.train_dataloader, evaluator=dict(type='IoUMetric'))
    )
    runner._val_loop = loop
    assert loop.run()['mIoU'] == pytest.approx(best['score'], abs=1e-6)


def test_a_segmentor_is_trained_and_searched_with_a_learned_sampler(
    tmp_path: Path, streets: Path, capfd: pytest.CaptureFixture
) -> None:
    family = FAMILIES['autoformer-conditional']
    cfg = config(tmp_path / 'supernet', streets, family, workers=0)
    sampler = dict(type='vitnas.FocusSampler', input_size=64, step=2e6, width=16)
    cfg.train_cfg.sampler, cfg.train_cfg.rule = sampler, dict(type='vitnas.SinglePath')
    training = dict(interval=4, iterations=3, metric='mIoU', optimizer=dict(type='AdamW', lr=5e-3))
    cfg.custom_hooks = [dict(type='vitnas.SamplerTrainHook', **training)]
    cfg.val_dataloader.batch_size, cfg.log_level = 2, 'INFO'
    runner = Runner.from_cfg(cfg)
    runner.train()
    learned = runner.train_loop.sampler
    assert learned.training.iterations == 6
    shown = ''.join(capfd.readouterr())
    assert 'Sampler: 6 iterations' in shown and shown.count('| bright |') == 1  # the table of the validation only

    cfg = config(tmp_path / 'search', streets, family, 0, load_from=str(tmp_path / 'supernet/iter_8.pth'))
    budget = (learned.low + learned.high) / 2
    cfg.train_cfg = dict(
        type='vitnas.SamplerSearchLoop',
        sampler=sampler,
        budgets=budget,
        num_candidates=3,
        evaluator=dict(type='IoUMetric'),
        metric='mIoU',
    )
    cfg.train_dataloader = cfg.val_dataloader
    cfg.val_dataloader = cfg.val_cfg = cfg.val_evaluator = None
    cfg.custom_hooks = []
    search = Runner.from_cfg(cfg)
    search.train()
    history = search.train_loop.history
    assert len(history) == 3 and all(c.cost['macs'] <= budget and 0 <= c.score <= 100 for c in history)
