"""Every search loop on a table with a known optimum; its errors and its output files."""

from __future__ import annotations

import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.families import BACKBONES, FAMILIES
from vitnas_core.errors import CheckpointError, InfeasibleError, VitnasError
from vitnas_core.search import Candidate, pareto_front, ranked
from vitnas_core.spaces import Arch

from .common import SAMPLER, SETTINGS, build, config, history, holdout, noise, save_supernet, search, without_seconds

LOOPS: dict[str, dict[str, Any]] = {
    'evolution': dict(
        type='vitnas.EvolutionSearchLoop', population=20, parents=5, generations=6, mutations=10, crossovers=10
    ),
    'random': dict(type='vitnas.RandomSearchLoop', num_candidates=120),
    'halving': dict(type='vitnas.SuccessiveHalvingLoop', num_candidates=81, factor=3),
    'sampler': dict(
        type='vitnas.SamplerSearchLoop',
        sampler=dict(type='vitnas.FocusSampler', **SAMPLER),
        budgets=[2.2e6, 2.6e6],
        num_candidates=25,
    ),
    'predictor': dict(
        type='vitnas.PredictorSearchLoop',
        num_samples=40, num_final=10, trees=10, parents=8, mutations=8, crossovers=8, rounds=4,
    ),
    'nsga2': dict(type='vitnas.NSGA2SearchLoop', population=20, parents=8, generations=6),
}  # fmt: skip
LOOPS['screened'] = dict(LOOPS['evolution'], predictor=dict(trees=10, oversample=2))
LIMIT = dict(macs=(1.2e6, 2.0e6))
each_loop = pytest.mark.parametrize('name', LOOPS)
each_family = pytest.mark.parametrize('family', BACKBONES)


@lru_cache
def window(family: str) -> tuple[float, float]:
    """Limits on MACs that leave the middle half of the architectures."""
    backbone = FAMILIES[family].elastic()
    macs = sorted(backbone.price(arch, **SETTINGS).macs for arch in backbone.space.iterate())
    return macs[len(macs) // 4], macs[3 * len(macs) // 4]


@lru_cache
def optimum(family: str) -> tuple[Arch, list[Arch]]:
    """The best architecture of the table within the window, and all within it."""
    backbone, (low, high) = FAMILIES[family].elastic(), window(family)
    inside = [arch for arch in backbone.space.iterate() if low <= backbone.price(arch, **SETTINGS).macs <= high]
    return max(inside, key=noise), inside


def check_rules(found: list[Candidate], family: str) -> None:
    low, high = window(family)
    assert [c.id for c in found] == list(range(len(found)))
    assert len({(c.arch, c.fraction) for c in found}) == len(found)
    backbone = FAMILIES[family].elastic()
    for candidate in found:
        cost = backbone.price(candidate.arch, **SETTINGS)
        assert candidate.arch in backbone.space
        assert candidate.cost == {'macs': cost.macs, 'params': cost.params} and low <= cost.macs <= high
        assert all(found[parent].generation < candidate.generation for parent in candidate.parents)


@each_family
@each_loop
def test_no_repeats_within_the_limits_and_the_right_winner(tmp_path: Path, name: str, family: str) -> None:
    low, high = window(family)
    budgets = dict(budgets=[0.2 * low + 0.8 * high, high]) if name == 'sampler' else {}
    cfg = config(tmp_path / 'run', {**LOOPS[name], **budgets, 'constraint': dict(macs=(low, high))}, family)
    loop = search(cfg, noise)
    found = history(tmp_path / 'run', loop)
    check_rules(found, family)
    assert len(found) == len(loop.scorer.asked) and loop.epoch == loop.max_epochs - 1
    if name == 'predictor':  # how many its front has is not known before
        assert 40 < len(found) <= loop.max_iters == 50
    else:
        assert len(found) == loop.max_iters
    best = max((c for c in found if c.fraction == 1.0), key=lambda c: c.score)
    assert Arch.from_json((tmp_path / 'run' / 'best_arch.json').read_text()) == best.arch == loop.backbone.arch
    if name == 'halving':  # the same table at every share: the best of the first round must win
        assert best.score == max(c.score for c in found)
        assert sorted({c.fraction for c in found}) == pytest.approx([1 / 9, 1 / 3, 1.0])


@each_family
@pytest.mark.parametrize('name', ['evolution', 'random', 'nsga2'])
def test_enough_candidates_find_the_optimum_and_the_search_ends_by_itself(
    tmp_path: Path, name: str, family: str
) -> None:
    best, inside = optimum(family)
    more = dict(num_candidates=10**6) if name == 'random' else dict(population=50, generations=10**6)
    loop = search(
        config(tmp_path / 'run', {**LOOPS[name], **more, 'constraint': dict(macs=window(family))}, family), noise
    )
    found = history(tmp_path / 'run', loop)
    check_rules(found, family)
    assert {c.arch for c in found} == set(inside)
    assert ranked(found)[0].arch == best


@each_loop
def test_outputs(tmp_path: Path, name: str) -> None:
    loop = search(config(tmp_path / 'run', LOOPS[name]), noise, pictures=True)
    found, run = history(tmp_path / 'run', loop), tmp_path / 'run'
    front = json.loads((run / 'pareto.json').read_text())
    assert [row['id'] for row in front] == [c.id for c in pareto_front(found)]
    assert set(front[0]) == {'id', 'score', 'cost', 'arch'}
    assert (run / 'pareto.png').read_bytes().startswith(b'\x89PNG')
    assert '<html' in (run / 'report.html').read_text()
    assert not list(run.glob('*.pth')) and not list(run.glob('history.rank*'))


@each_loop
def test_a_finished_search_only_writes_its_outputs_again(tmp_path: Path, name: str) -> None:
    cfg = config(tmp_path / 'run', LOOPS[name])
    search(cfg, noise, pictures=True)
    before = (tmp_path / 'run' / 'history.jsonl').read_bytes()
    best = (tmp_path / 'run' / 'best_arch.json').read_bytes()
    for file in ('best_arch.json', 'pareto.json', 'pareto.png', 'report.html'):
        (tmp_path / 'run' / file).unlink()
    loop = search(cfg, noise, pictures=True)
    assert loop.scorer.asked == []
    assert (tmp_path / 'run' / 'history.jsonl').read_bytes() == before
    assert (tmp_path / 'run' / 'best_arch.json').read_bytes() == best
    assert (tmp_path / 'run' / 'report.html').exists() and (tmp_path / 'run' / 'pareto.png').exists()


@each_loop
def test_a_journal_cut_after_any_line_is_continued_to_the_same_history(tmp_path: Path, name: str) -> None:
    cfg = config(tmp_path / 'run', LOOPS[name])
    whole = history(tmp_path / 'run', search(cfg, noise))
    path = tmp_path / 'run' / 'history.jsonl'
    lines = path.read_bytes().splitlines(keepends=True)
    for count in (0, 1, 7, len(lines) - 30):
        path.write_bytes(b''.join(lines[:count]) + lines[count][:20])
        loop = search(cfg, noise)
        assert len(loop.scorer.asked) == len(whole) - max(count - 1, 0)
        assert without_seconds(history(tmp_path / 'run', loop)) == without_seconds(whole)


def test_more_can_be_added_to_a_finished_search(tmp_path: Path) -> None:
    for name, less, more in (
        ('evolution', dict(generations=2), dict(generations=4)),
        ('random', dict(num_candidates=70), dict(num_candidates=120)),
        ('nsga2', dict(generations=2), dict(generations=4)),
    ):
        search(config(tmp_path / name, {**LOOPS[name], **less}), noise)
        added = search(config(tmp_path / name, {**LOOPS[name], **more}), noise)
        at_once = search(config(tmp_path / f'{name}-2', {**LOOPS[name], **more}), noise)
        found = without_seconds(history(tmp_path / name, added))
        assert found == without_seconds(history(tmp_path / f'{name}-2', at_once))
        assert len(added.scorer.asked) < len(at_once.scorer.asked) == len(found)


def test_seeds_differ_and_are_repeatable(tmp_path: Path) -> None:
    found = []
    for i, seed in enumerate((0, 1, 0)):
        cfg = config(tmp_path / str(i), LOOPS['evolution'], randomness=dict(seed=seed))
        found.append(without_seconds(history(tmp_path / str(i), search(cfg, noise))))
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ('change', 'shown'),
    [
        (dict(constraint=dict(macs=(None, 1.9e6))), 'constraint.macs: .* → '),
        (dict(population=19), 'strategy.population: 20 → 19'),
        (dict(predictor=dict(trees=10)), 'strategy.predictor: '),
        (dict(metric='accuracy/top1'), 'metric.name: null → "accuracy/top1"'),
        (dict(racing=dict(confidence=0.9)), 'racing: null → '),
    ],
)
def test_a_changed_search_is_refused_with_the_difference(tmp_path: Path, change: dict, shown: str) -> None:
    small = {**LOOPS['evolution'], 'generations': 1, 'constraint': LIMIT}
    search(config(tmp_path / 'run', small), noise)
    before = (tmp_path / 'run' / 'history.jsonl').read_bytes()
    with pytest.raises(VitnasError, match=shown):
        search(config(tmp_path / 'run', {**small, **change}), noise)
    assert (tmp_path / 'run' / 'history.jsonl').read_bytes() == before


def test_a_changed_checkpoint_space_or_dataset_is_refused(tmp_path: Path) -> None:
    import torch

    small = {**LOOPS['evolution'], 'generations': 1}
    cfg = config(tmp_path / 'run', small)
    search(cfg, noise)
    other = config(tmp_path / 'run', small)
    other['train_dataloader']['dataset'] = holdout(per_class=11)
    with pytest.raises(VitnasError, match='data: "[0-9a-f]+" → "[0-9a-f]+"'):
        search(other, noise)
    other = config(tmp_path / 'run', small)
    other['model']['backbone']['space']['stages'][0]['embed_dim'] = [48, 72]
    with pytest.raises(VitnasError, match=r'space.stages\[0\].embed_dim: \[48, 60, 72\] → \[48, 72\]'):
        search(other, noise)
    weights = torch.load(cfg['load_from'], weights_only=True)['state_dict']
    weights['head.fc.bias'] += 1e-6
    torch.save({'state_dict': weights}, cfg['load_from'])
    with pytest.raises(VitnasError, match='checkpoint: "[0-9a-f]+" → "[0-9a-f]+"'):
        search(cfg, noise)


def test_infeasible_limits_are_answered_before_anything_is_read(tmp_path: Path) -> None:
    cfg = config(tmp_path / 'run', {**LOOPS['random'], 'constraint': dict(macs=(None, 1e3))})
    cfg['train_dataloader']['dataset'] = dict(type='NoSuchDataset')
    runner = build(cfg)
    start = time.perf_counter()
    with pytest.raises(InfeasibleError, match='of autoformer-test has macs <= 1000; the reachable range'):
        runner.train()
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize('wrapped', [False, True])
def test_the_test_set_is_refused(tmp_path: Path, wrapped: bool) -> None:
    def of(pipeline: str) -> dict[str, Any]:
        return dict(type='Digits', split='test', pipeline=[dict(type=pipeline), dict(type='PackInputs')])

    cfg = config(tmp_path / 'run', LOOPS['random'])
    used = {**of('a'), 'type': 'vitnas.Digits', 'indices': 20}
    cfg['train_dataloader']['dataset'] = dict(type='RepeatDataset', times=2, dataset=used) if wrapped else used
    cfg.update(
        test_dataloader=dict(batch_size=9, num_workers=0, dataset=of('b'), sampler=dict(type='DefaultSampler')),
        test_cfg=dict(),
        test_evaluator=dict(type='mmpretrain.Accuracy'),
    )
    with pytest.raises(VitnasError, match='reads vitnas.Digits, the dataset of test_dataloader; the test set must'):
        build(cfg).train()
    cfg['train_dataloader']['dataset'] = holdout()  # another part of the same class is not the test set
    assert build(cfg).train_loop


def test_a_search_needs_trained_weights_that_fit(tmp_path: Path) -> None:
    import torch

    with pytest.raises(VitnasError, match='a search needs a trained supernet: give its checkpoint as load_from'):
        build(config(tmp_path / 'run', LOOPS['random'], load_from=None)).train()
    cfg = config(tmp_path / 'run', LOOPS['random'])
    path = save_supernet(tmp_path)
    weights = torch.load(path, weights_only=True)['state_dict']
    del weights['backbone.cls_token']
    torch.save({'state_dict': weights}, path)
    with pytest.raises(CheckpointError, match=r'has no backbone\.cls_token'):
        search(cfg, noise)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(VitnasError, match='a limit on latency needs measured latencies: give latency_table'):
        build(config(tmp_path / 'a', {**LOOPS['random'], 'constraint': dict(latency=(None, 1))})).train()
    cfg = config(tmp_path / 'b', LOOPS['random'])
    cfg['model']['backbone'] = dict(type='mmpretrain.LeNet5')
    with pytest.raises(VitnasError, match='should hold one elastic backbone'):
        build(cfg).train()
    with pytest.raises(VitnasError, match='`racing` should be left out with vitnas.Halving'):
        build(config(tmp_path / 'c', {**LOOPS['halving'], 'racing': dict(confidence=0.9)})).train()
    for name, change in (
        ('evolution', dict(population=0)),
        ('evolution', dict(mutation_prob=dict(depths=0.1))),
        ('random', dict(num_candidates=0)),
        ('halving', dict(factor=1)),
        ('halving', dict(least_share=0)),
        ('evolution', dict(predictor=dict(tree=10))),
        ('evolution', dict(predictor=dict(oversample=1))),
        ('evolution', dict(predictor=dict(trees=0))),
    ):
        with pytest.raises(VitnasError, match='should (be|have)'):
            build(config(tmp_path / 'd', {**LOOPS[name], **change})).train()


def test_resume_does_not_take_over_the_supernets_epochs(tmp_path: Path) -> None:
    cfg = config(tmp_path / 'run', LOOPS['random'])
    search(cfg, noise)
    loop = search({**cfg, 'resume': True}, noise)
    assert loop.scorer.asked == [] and loop.iter == 120
