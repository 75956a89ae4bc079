"""A made-up search: candidates with plausible scores, for the tests of pictures and report."""

from __future__ import annotations

import numpy as np

from tests.families import FAMILIES
from vitnas_core.search import Candidate, pareto_front, ranked

METRIC = 'accuracy/top1'


def candidates(count: int = 60, generations: int = 4) -> list[Candidate]:
    """Scores rise with MACs and generations; every tenth candidate was dropped by racing."""
    rng, space = np.random.default_rng(0), FAMILIES['autoformer'].space
    made = []
    for i in range(count):
        generation, macs = i * generations // count, float(rng.uniform(2e6, 5e6))
        score = 80 + macs / 1e6 + generation + float(rng.normal())
        made.append(
            Candidate(
                id=i,
                generation=generation,
                arch=space.sample(rng),
                cost={'macs': macs, 'params': macs / 20, 'latency': macs / 1e9},
                score=score,
                seconds=0.5,
                complete=i % 10 != 9,
            )
        )
    return made


def search(count: int = 60, generations: int = 4) -> dict:
    """What draw_pareto and write_report take: candidates, front and best."""
    found = candidates(count, generations)
    return dict(candidates=found, front=pareto_front(found), best=ranked(found)[0])


def report_csv(metrics: tuple[str, ...] = ('accuracy/top1', 'loss')) -> str:
    """A supernet report of three epochs, with two random architectures."""
    lines = ['epoch,iter,name,metric,value,macs,params']
    for epoch in (5, 10, 15):
        for name, off in (('largest', 3), ('smallest', -3), ('random_0', 0), ('random_1', 1)):
            lines += [f'{epoch},{epoch * 100},{name},{metric},{70 + epoch + off},1000,100' for metric in metrics]
    return '\n'.join(lines) + '\n'
