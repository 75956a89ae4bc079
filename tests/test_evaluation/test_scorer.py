"""The score of a candidate equals that of mmengine's validation, and images are decoded once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS
from mmengine.runner import Runner

from tests.families import FAMILIES
from tests.test_search.common import build, config, search
from vitnas_core.checkpoints import load_file
from vitnas_core.datasets import Digits
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import (
    AccuracyStep,
    AnyStep,
    BatchScorer,
    Job,
    KeptBatches,
    Scorer,
    recalibrate,
    whole_loader,
)
from vitnas_core.search import Candidate

SEARCH = dict(type='vitnas.RandomSearchLoop', num_candidates=1)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp('evaluator')


def runner(folder: Path, name: str, validate: bool = False, family: str = 'autoformer', **search: Any) -> Runner:
    cfg = config(folder / name, {**SEARCH, **search}, family)
    if validate:
        loader = dict(cfg['train_dataloader'], sampler=dict(type='DefaultSampler', shuffle=False))
        cfg.update(val_cfg=dict(), val_dataloader=loader, val_evaluator=dict(type='mmpretrain.Accuracy'))
    built = build(cfg)
    built.load_or_resume()
    return built


@pytest.mark.parametrize('step', [AccuracyStep, AnyStep])
@pytest.mark.parametrize('family', FAMILIES)
def test_the_score_is_that_of_a_plain_validation(
    folder: Path, family: str, step: type[AnyStep], rng: np.random.Generator
) -> None:
    run = runner(folder, f'plain{family}{step.__name__}', validate=True, family=family)
    scorer, backbone = run.train_loop.scorer, run.model.backbone
    assert type(scorer.step) is AccuracyStep  # what a plain classifier gets
    scorer.step = step(run.model, scorer.evaluator)
    archs = [backbone.space.sample(rng) for _ in range(5)]
    scores = [scorer.score(Job(arch)) for arch in archs]
    assert len({score.value for score in scores}) > 1
    assert [scorer.score(Job(arch)) for arch in reversed(archs)] == scores[::-1]  # whatever was scored before
    for arch, score in zip(archs, scores):
        backbone.set_arch(arch)
        assert score.value == pytest.approx(run.val_loop.run()['accuracy/top1']) and score.complete


def test_batch_norms_get_the_statistics_of_each_candidate(folder: Path, rng: np.random.Generator) -> None:
    """Whatever was scored before: an architecture has one score, which is that of the network that is extracted."""
    run = runner(folder, 'recalibrated', validate=True, family='nasvit', recalibrate=2)
    scorer, backbone = run.train_loop.scorer, run.model.backbone
    archs = [backbone.space.largest(), backbone.space.smallest(), backbone.space.sample(rng)]
    scores = [scorer.score(Job(arch)) for arch in archs]
    assert [scorer.score(Job(arch)) for arch in reversed(archs)] == scores[::-1]
    raw = runner(folder, 'raw', family='nasvit').train_loop.scorer
    assert [raw.score(Job(arch)) for arch in archs] != scores
    for arch, score in zip(archs, scores):
        scorer.activate(arch)
        assert run.val_loop.run()['accuracy/top1'] == pytest.approx(score.value)
        run.model.backbone = backbone.extract(arch)
        run.model.head.fc.weight.data, whole = (
            run.model.head.fc.weight.data[:, : backbone.out_channels(arch)[0]],
            (run.model.head.fc.weight.data),
        )
        assert run.val_loop.run()['accuracy/top1'] == pytest.approx(score.value)
        run.model.backbone, run.model.head.fc.weight.data = backbone, whole


def test_both_sides_of_a_bilateral_supernet_count(folder: Path, rng: np.random.Generator) -> None:
    cfg = config(folder / 'bilateral', SEARCH)
    cfg['model']['backbone']['sharing'] = 'bilateral'
    cfg.update(
        val_cfg=dict(),
        val_dataloader=dict(cfg['train_dataloader'], sampler=dict(type='DefaultSampler', shuffle=False)),
        val_evaluator=dict(type='mmpretrain.Accuracy'),
    )
    run = build(cfg)
    run.model.load_state_dict(dict(load_file(cfg['load_from'])['state_dict']))  # without the note of its pattern
    scorer, backbone = run.train_loop.scorer, run.model.backbone
    arch = backbone.space.smallest()
    score = scorer.score(Job(arch))
    sides = [run.val_loop.run()['accuracy/top1'] for _ in backbone.pattern.each_side()]
    assert sides[0] != sides[1] and score.value == pytest.approx(sum(sides) / 2) and score.complete
    scorer.step = AnyStep(run.model, scorer.evaluator)
    scorer.batches = KeptBatches(run.train_loop.dataloader)
    assert scorer.score(Job(arch)) == score
    for batch in scorer.batches.first(4):
        scorer.step.run(batch)
    assert scorer.step.values(100) == {'accuracy/top1': pytest.approx(score.value)}
    whole = next(iter(whole_loader({**cfg['train_dataloader'], 'batch_size': 100})))
    rewards = BatchScorer(run.model, scorer.evaluator, run.train_loop.dataloader.dataset)
    assert rewards.score_batch(arch, rewards.keep(whole)) == pytest.approx(score.value)
    with pytest.raises(VitnasError, match="`racing` cannot drop candidates of sharing='bilateral'"):
        cfg['train_cfg'] = {**cfg['train_cfg'], 'racing': dict(confidence=0.9)}
        build(cfg).train_loop  # noqa: B018


def test_batch_norms_can_get_the_statistics_of_other_images(folder: Path, rng: np.random.Generator) -> None:
    run = runner(folder, 'calibrated', family='nasvit')
    scored = run.cfg.train_dataloader.to_dict()
    digits = scored['dataset']['dataset']
    other = {**scored, 'batch_size': 20, 'dataset': {**digits, 'split': 'test', 'indices': 60}}
    settings = dict(evaluator=dict(type='mmpretrain.Accuracy'), recalibrate=2)
    scorer = Scorer.build(run.model, scored, calibration=other, **settings)
    assert scorer.calibration is not scorer.batches and len(scorer.calibration) == 3
    archs = [scorer.backbone.space.largest(), scorer.backbone.space.sample(rng)]
    found = [scorer.score(Job(arch)).value for arch in archs]
    assert [scorer.score(Job(arch)).value for arch in archs] == found
    loader = whole_loader(other)
    for arch, value in zip(archs, found):
        run.model.backbone.set_arch(arch)
        assert recalibrate(run.model, run.model.val_step, [batch for _, batch in zip(range(2), loader)])
        assert run.train_loop.scorer.score(Job(arch)).value == value  # which leaves the statistics
    own = Scorer.build(run.model, scored, **settings)
    means = []
    for one in (scorer, own, scorer):
        one.activate(archs[0])
        means.append(run.model.backbone.stem_bn.running_mean.clone())
    assert own.calibration is own.batches and torch.equal(means[0], means[2]) and not torch.equal(means[0], means[1])


def test_a_search_with_other_statistics_is_another_search(tmp_path: Path) -> None:
    asked = dict(type='vitnas.RandomSearchLoop', num_candidates=3)
    first = search(config(tmp_path / 'a', {**asked, 'recalibrate': 1}, 'nasvit'))
    assert search(config(tmp_path / 'a', {**asked, 'recalibrate': 1}, 'nasvit')).history == first.history
    for other in ({}, dict(recalibrate=2)):
        with pytest.raises(VitnasError, match='recalibrate'):
            search(config(tmp_path / 'a', {**asked, **other}, 'nasvit'))
    with pytest.raises(VitnasError, match='`recalibrate` is for models with batch norms that are not frozen'):
        search(config(tmp_path / 'c', {**asked, 'recalibrate': 1}))
    with pytest.raises(VitnasError, match='`recalibrate` should be a whole number of at least 0, but got -1'):
        search(config(tmp_path / 'b', {**asked, 'recalibrate': -1}, 'nasvit'))


def test_both_steps_give_the_metric_the_same_bits(folder: Path, rng: np.random.Generator) -> None:
    run = runner(folder, 'bits')
    scorer, metric = run.train_loop.scorer, run.train_loop.scorer.evaluator.metrics[0]
    found = []
    for step in (AccuracyStep(run.model, scorer.evaluator), AnyStep(run.model, scorer.evaluator)):
        scorer.step, scorer.batches = step, KeptBatches(run.train_loop.dataloader, scorer.keep)
        scorer.score(Job(scorer.backbone.space.largest()))
        found.append([(r['pred_score'].tolist(), r['gt_label'].tolist()) for r in metric.results])
    assert len(found[0]) == 100 and found[0] == found[1]


def test_another_head_or_metric_takes_the_general_way(folder: Path) -> None:
    from mmpretrain.models import MultiLabelLinearClsHead

    run = runner(folder, 'general')
    evaluator = run.train_loop.scorer.evaluator
    assert AccuracyStep.fits(run.model, evaluator)
    run.model.head = MultiLabelLinearClsHead(10, 72)
    assert not AccuracyStep.fits(run.model, evaluator)
    other = runner(folder, 'general2', evaluator=dict(type='mmpretrain.SingleLabelMetric'))
    assert type(other.train_loop.scorer.step) is AnyStep
    assert other.train_loop.scorer.score(Job(run.model.backbone.space.largest())).complete


@pytest.mark.parametrize(('keep_gb', 'reads'), [(4.0, 100), (0.0, 300), (60 * 3 * 32 * 32 / 2**30, 100 + 2 * 50)])
def test_images_are_decoded_once_as_far_as_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, keep_gb: float, reads: int, rng: np.random.Generator
) -> None:
    scorer = runner(folder, f'keep{keep_gb}', keep_gb=keep_gb).train_loop.scorer
    whole = runner(folder, 'whole').train_loop.scorer
    count, read = [], Digits.__getitem__
    archs = [scorer.backbone.space.sample(rng) for _ in range(3)]
    expected = [whole.score(Job(arch)) for arch in archs]
    monkeypatch.setattr(Digits, '__getitem__', lambda self, index: (count.append(index), read(self, index))[1])
    assert [scorer.score(Job(arch)) for arch in archs] == expected
    assert len(count) == reads


def test_no_more_batches_than_there_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all are kept, asking for more reads nothing."""
    loader = runner(folder, 'few').train_loop.dataloader
    batches = KeptBatches(loader)
    found = [list(batches.first(9)), list(batches.first(9))]
    assert len(batches) == len(found[0]) == len(found[1]) == 4
    assert all(a is b for a, b in zip(*found))
    monkeypatch.setattr(type(loader), '__iter__', lambda _: pytest.fail('nothing is missing'))
    assert len(list(batches.first(9))) == 4 and len(list(batches.first(2))) == 2


def test_a_share_is_the_first_batches(folder: Path, rng: np.random.Generator) -> None:
    scorer = runner(folder, 'share').train_loop.scorer
    arch, seen = scorer.backbone.space.sample(rng), []
    step = scorer.step.run
    scorer.step.run = lambda batch: (seen.append(len(batch['inputs'])), step(batch))[1]
    for share, batches in ((0.01, 1), (0.25, 1), (0.26, 2), (0.5, 2), (1.0, 4)):
        seen.clear()
        scorer.score(Job(arch, fraction=share))
        assert seen == [25] * batches


def test_an_unknown_metric_is_answered_with_the_known(folder: Path, rng: np.random.Generator) -> None:
    """At once where the metric is known without images, or else with the first score."""
    assert runner(folder, 'known').train_loop.scorer.metric == 'accuracy/top1'
    with pytest.raises(VitnasError, match='`metric` is accuracy/top5; the evaluator gives accuracy/top1'):
        runner(folder, 'metric', metric='accuracy/top5').train_loop  # noqa: B018
    other = dict(type='mmpretrain.SingleLabelMetric')
    scorer = runner(folder, 'late', metric='accuracy/top5', evaluator=other).train_loop.scorer
    with pytest.raises(VitnasError, match='`metric` is accuracy/top5; the evaluator gives single-label/precision'):
        scorer.score(Job(scorer.backbone.space.sample(rng)))


def test_racing_needs_a_mean(folder: Path) -> None:
    metric = dict(type='mmpretrain.SingleLabelMetric')
    run = runner(folder, 'mean', racing=dict(confidence=0.9), evaluator=metric)
    with pytest.raises(VitnasError, match="mean over images, mmpretrain's Accuracy alone, but got SingleLabelMetric"):
        assert run.train_loop


@METRICS.register_module()
class NothingFound(BaseMetric):
    """As COCO's metric where a detector finds nothing: no value."""

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(0)

    def compute_metrics(self, results: list) -> dict[str, float]:
        return {}


def test_an_architecture_without_a_score_does_not_end_the_search(tmp_path: Path) -> None:
    asked = dict(type='vitnas.RandomSearchLoop', num_candidates=5, evaluator=dict(type='NothingFound'))
    with pytest.raises(VitnasError, match='none of the 5 candidates has a score: is the supernet trained'):
        search(config(tmp_path / 'a', asked))
    lines = (tmp_path / 'a/history.jsonl').read_text().splitlines()[1:]
    assert len(lines) == 5 and all('"score": null' in line and '"complete": false' in line for line in lines)
    assert all(Candidate.from_dict(json.loads(line)).score == -math.inf for line in lines)
