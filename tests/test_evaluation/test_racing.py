"""Racing: the bound holds, and the winner is the one without racing."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from tests.test_search.common import build, config, history, noise, without_seconds
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import AnyStep, Racing
from vitnas_core.search import SearchLoop, ranked

EVOLUTION = dict(
    type='vitnas.EvolutionSearchLoop', population=20, parents=4, generations=5, mutations=10, crossovers=10
)


@pytest.mark.parametrize('confidence', [0.5, 0.9, 0.99])
def test_the_bound_holds_as_often_as_it_says(confidence: float, rng: np.random.Generator) -> None:
    racing, total, batch, broken = Racing(confidence), 200, 20, 0
    looks, trials = total // batch - 1, 400
    for _ in range(trials):
        values = (rng.random(total) < rng.random()).astype(float)
        seen = range(batch, total, batch)
        broken += any(racing.upper(values[:n].mean(), n, total, 1.0, looks) < values.mean() - 1e-12 for n in seen)
    assert broken / trials <= 1 - confidence


def test_certainty_never_errs_and_still_drops() -> None:
    racing = Racing(1.0)
    assert racing.upper(0.0, 60, 100, 1.0, 3) == pytest.approx(0.4)
    assert racing.upper(1.0, 60, 100, 1.0, 3) == 1.0
    assert Racing(0.9).upper(0.0, 60, 100, 1.0, 3) < 0.4


@pytest.mark.parametrize('confidence', [0, 1.1, -1, True])
def test_confidence_is_checked(confidence: Any) -> None:
    with pytest.raises(VitnasError, match='`racing.confidence` should be above 0 and at most 1'):
        Racing(confidence)


class KnownImages:
    """Stands in for the network: which image an architecture gets right is a known table."""

    def __init__(self, loop: SearchLoop) -> None:
        self.loop, self.images = loop, 0

    def __call__(self, batch: dict[str, Any]) -> list[Any]:
        arch = self.loop.backbone.arch
        chance = noise(arch) / 100
        for image, sample in zip(batch['inputs'], batch['data_samples']):
            self.images += 1
            key = [int(image.sum()), int(arch.digest(), 16) % 2**32]
            right, label = np.random.default_rng(key).random() < chance, int(sample.gt_label)
            sample.set_pred_score(torch.eye(10)[label if right else (label + 1) % 10])
        return batch['data_samples']


def run(work_dir: Path, racing: dict | None) -> tuple[SearchLoop, int]:
    runner = build(config(work_dir, {**EVOLUTION, 'racing': racing}))
    loop = runner.train_loop
    known = KnownImages(loop)
    loop.scorer.step = AnyStep(loop.model, loop.scorer.evaluator)
    loop.model.val_step = known
    with patch('vitnas_core.search.outputs.write_pictures'):
        runner.train()
    return loop, known.images


@pytest.mark.parametrize('confidence', [0.95, 1.0])
def test_the_winner_and_the_way_to_it_are_those_without_racing(tmp_path: Path, confidence: float) -> None:
    plain, all_images = run(tmp_path / 'plain', None)
    raced, fewer_images = run(tmp_path / 'raced', dict(confidence=confidence))
    a, b = history(tmp_path / 'plain', plain), history(tmp_path / 'raced', raced)
    assert ranked(a)[0].arch == ranked(b)[0].arch and ranked(a)[0].score == ranked(b)[0].score
    assert [c.arch for c in a] == [c.arch for c in b]  # the same parents in every generation
    dropped = [c for c in b if not c.complete]
    assert len(dropped) > 5
    assert fewer_images < all_images - 20 * len(dropped)
    kept = {c.id for c in b if c.complete}
    assert without_seconds([c for c in a if c.id in kept]) == without_seconds([c for c in b if c.complete])
