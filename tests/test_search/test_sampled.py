"""Search by a learned sampler: draws for the budgets, few evaluations, and the best under each budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitnas_core.checkpoints import load_file
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.search import SamplerSearchLoop, ranked
from vitnas_core.search.algorithms.policy import budget_name
from vitnas_core.spaces import Arch
from vitnas_core.training import Reinforce

from .common import SAMPLER, build, config, history, noise, sampler_of, save_supernet, search

SEARCH: dict[str, Any] = dict(
    type='vitnas.SamplerSearchLoop', sampler=dict(type='vitnas.FocusSampler', **SAMPLER), num_candidates=12
)


def test_the_best_under_each_budget_is_written(tmp_path: Path) -> None:
    loop = search(config(tmp_path / 'run', {**SEARCH, 'budgets': [2.2e6, 1.5e6, 1.9e6]}), noise)
    found = history(tmp_path / 'run', loop)
    assert len(found) == 36 == loop.max_iters
    for budget in (1.5e6, 1.9e6, 2.2e6):
        best = ranked(c for c in found if c.cost['macs'] <= budget)[0]
        path = tmp_path / 'run' / f'best_arch_{budget_name(budget)}.json'
        assert Arch.from_json(path.read_text()) == best.arch
    # Twelve were drawn for each budget, in this order, and meet it.
    for i, budget in enumerate((1.5e6, 1.9e6, 2.2e6)):
        assert all(c.cost['macs'] <= budget for c in found[12 * i : 12 * i + 12])


def test_one_budget_has_one_winner(tmp_path: Path) -> None:
    loop = search(config(tmp_path / 'run', {**SEARCH, 'budgets': 1.9e6}), noise)
    assert loop.algorithm.budgets == (1.9e6,) and len(loop.history) == 12
    assert [path.name for path in (tmp_path / 'run').glob('best_arch*')] == ['best_arch.json']


def test_what_the_sampler_has_learned_is_what_is_proposed(tmp_path: Path) -> None:
    """One that likes wide and shallow networks gets the search to evaluate these."""
    sampler = sampler_of('autoformer')
    reinforce = Reinforce(sampler, dict(type='AdamW', lr=2e-2), beta=0.0, num_archs=16, baseline=0.9)
    for i in range(60):
        reinforce.step(np.random.default_rng(i), lambda arch: float(arch.stages[0]['embed_dim'] == 72))
    saved = load_file(save_supernet(tmp_path))
    torch.save({**saved, 'arch_sampler': sampler.state_dict()}, tmp_path / 'autoformer.pth')
    loop = search(config(tmp_path / 'run', {**SEARCH, 'budgets': 2.2e6}), noise)
    assert np.mean([c.arch.stages[0]['embed_dim'] == 72 for c in loop.history]) > 0.9


def test_a_sampler_that_changed_is_another_search(tmp_path: Path) -> None:
    search(config(tmp_path / 'run', {**SEARCH, 'budgets': 1.9e6}), noise)
    saved = load_file(tmp_path / 'autoformer.pth')
    saved['arch_sampler']['policy']['heads.0.bias'] += 1e-9
    torch.save(saved, tmp_path / 'autoformer.pth')
    with pytest.raises(VitnasError, match='strategy.sampler: "[0-9a-f]+" → "[0-9a-f]+"'):
        search(config(tmp_path / 'run', {**SEARCH, 'budgets': 1.9e6}), noise)


def test_a_budget_that_its_draws_miss_gets_fewer_and_the_others_all(tmp_path: Path) -> None:
    """Hardly an architecture is as cheap as the cheapest."""
    sampler = sampler_of('autoformer')
    budgets = [sampler.low, 2.2e6]
    loop = search(config(tmp_path / 'run', {**SEARCH, 'budgets': budgets}, log_level='WARNING'), noise)
    cheap = [c for c in loop.history if c.cost['macs'] <= sampler.low]
    assert len(cheap) <= 1 and len(loop.history) == 12 + len(cheap)
    (log,) = (tmp_path / 'run').glob('*/*.log')
    assert 'fewer than the 12 that are wanted' in log.read_text()


def test_a_search_of_which_nothing_is_within_the_budget_says_so(tmp_path: Path) -> None:
    sampler = sampler_of('autoformer')
    with torch.no_grad():  # the last option of every choice, always
        for head in sampler.policy.heads:
            head.bias.copy_(torch.linspace(-50, 50, len(head.bias)))
    saved = load_file(save_supernet(tmp_path))
    torch.save({**saved, 'arch_sampler': sampler.state_dict()}, tmp_path / 'autoformer.pth')
    with pytest.raises(VitnasError, match='the sampler drew no architecture within 1.9e.06 MACs in 1200 draws each'):
        search(config(tmp_path / 'run', {**SEARCH, 'budgets': 1.9e6}), noise)


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(budgets=1e3), 'a budget of autoformer-test should be from [0-9.e+]+ to [0-9.e+]+ MACs.*but got 1000'),
        (dict(budgets=[]), '`budgets` should be a number of MACs above 0, or several, but got'),
        (dict(budgets='1.4G'), "`budgets` should be a number of MACs above 0, or several, but got '1.4G'"),
        (dict(num_candidates=0), '`num_candidates` should be a whole number of at least 1'),
        (dict(racing=dict(confidence=0.9)), '`racing` should be left out with vitnas.Policy: '),
        (dict(input_size=64), '`input_size` of vitnas.Policy is that of its `sampler`; leave it out'),
        (dict(sampler=dict(type='vitnas.UniformSampler')), '`sampler` should be a vitnas.FocusSampler, but got a Unif'),
    ],
)
def test_mistakes(tmp_path: Path, change: dict, words: str) -> None:
    cfg = config(tmp_path / 'run', {**SEARCH, 'budgets': 1.9e6, **change})
    cfg['train_dataloader']['dataset'] = dict(type='NoSuchDataset')  # refused before images are read
    with pytest.raises(VitnasError, match=words):
        build(cfg).train()


def test_a_checkpoint_without_a_fitting_sampler_is_refused(tmp_path: Path) -> None:
    saved = load_file(save_supernet(tmp_path))
    other = {**SEARCH, 'budgets': 1.9e6, 'sampler': dict(type='vitnas.FocusSampler', **{**SAMPLER, 'step': 1e5})}
    with pytest.raises(CheckpointError, match='does not fit: its step is 300000.0, not 100000.0'):
        build(config(tmp_path / 'run', other)).train()
    del saved['arch_sampler']
    torch.save(saved, tmp_path / 'autoformer.pth')
    with pytest.raises(CheckpointError, match='autoformer.pth has no architecture sampler: train the supernet with'):
        build(config(tmp_path / 'run', {**SEARCH, 'budgets': 1.9e6})).train()


@pytest.mark.parametrize(
    ('budget', 'name'), [(1.4e9, '1.4g'), (2e6, '2m'), (4.5e6, '4.5m'), (1234567, '1.23457m'), (5e3, '5k'), (7, '7')]
)
def test_names_of_budgets(budget: float, name: str) -> None:
    assert budget_name(budget) == name


def test_it_is_a_part_of_the_registry() -> None:
    from vitnas_core.registry import LOOPS

    assert LOOPS.get('vitnas.SamplerSearchLoop') is SamplerSearchLoop
