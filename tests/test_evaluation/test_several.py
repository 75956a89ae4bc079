"""Several architectures, scored with one pass over the data, have the scores that each has alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_search.common import SETTINGS, build, config
from vitnas_core.evaluation import Job, calibrate, score_all
from vitnas_core.spaces import Arch


class Passes:
    """Data that count how often they are read."""

    def __init__(self, data: Iterable[Any]) -> None:
        self.data, self.count = data, 0

    def __iter__(self) -> Iterator[Any]:
        self.count += 1
        return iter(self.data)


@pytest.mark.parametrize(('family', 'batches'), [('autoformer', 0), ('nasvit', 2)])
def test_scores_are_those_of_each_alone(tmp_path: Path, family: str, batches: int) -> None:
    run = build(config(tmp_path, dict(type='vitnas.RandomSearchLoop', num_candidates=1, recalibrate=batches), family))
    run.load_or_resume()
    scorer, backbone = run.train_loop.scorer, run.model.backbone
    archs = {'largest': backbone.space.largest(), 'smallest': backbone.space.smallest()}

    def recalibrate(arch: Arch) -> None:
        calibrate(run.model, arch, scorer.calibration.first(batches), run=scorer.step.forward)

    data = Passes(run.train_loop.dataloader)
    found = score_all(run.model, data, scorer.num_samples, scorer.evaluator, archs, recalibrate if batches else None)
    assert data.count == (len(archs) if batches else 1) and not run.model.training
    for name, (metrics, cost) in found.items():
        assert metrics['accuracy/top1'] == pytest.approx(scorer.score(Job(archs[name])).value)
        assert cost == backbone.price(archs[name], *SETTINGS.values())
