"""Searches of one supernet with a memory: each architecture runs once, whatever searches and seeds ask for it."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from mmengine.config import Config

from vitnas_core.costs import Constraint
from vitnas_core.evaluation import Job, Racing, Result, Scorer
from vitnas_core.evaluation.racing import span_of_mean
from vitnas_core.search import Journal, SearchAlgorithm, ranked
from vitnas_core.search.checks import digest_weights
from vitnas_core.search.driver import search
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.search.progress import SearchBar
from vitnas_core.spaces import Arch
from vitnas_core.workers import SerialWorkers

from .runs import Run
from .scoring import Supernet

_SLACK = 1e-4
"""Scores are float32 percentages: rounding must not drop a candidate that ties with the floor."""


class Memory:
    """Scores of architectures after each hold-out batch.

    Args:
        scorer: Runs an architecture that is not in the memory, once on all batches.

    Attributes:
        scores: Architecture → score of the first batch, of the first two, and so on.
        ends: Number of images in the first batch, in the first two, and so on.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.scores = scorer, dict[Arch, list[float]]()
        size = scorer.batches.dataloader.batch_size or 1
        self.ends = [min(scorer.num_samples, size * (i + 1)) for i in range(scorer.num_batches)]

    @torch.no_grad()
    def recall(self, arch: Arch) -> list[float]:
        """Return the scores of an architecture; run it if they are not known."""
        if arch not in self.scores:
            step = self.scorer.step
            self.scorer.activate(arch)
            step.start()
            found = []
            for batch in self.scorer.batches.first(len(self.ends)):
                step.run(batch)
                found.append(step.value())
            self.scores[arch] = found
        return self.scores[arch]

    def num_batches(self, fraction: float) -> int:
        """Number of batches in a fraction, as :class:`~vitnas_core.evaluation.Scorer` rounds it."""
        return max(1, math.ceil(fraction * len(self.ends) - 1e-9))


class Replay:
    """Score jobs from a memory, with the results of a :class:`~vitnas_core.evaluation.Scorer`.

    Args:
        memory: The memory.
        racing: Drops candidates early. Defaults to None: every candidate sees all images of its job.

    Attributes:
        images: Number of images that a scorer would have run so far.
    """

    def __init__(self, memory: Memory, racing: Racing | None = None) -> None:
        self.memory, self.racing, self.images = memory, racing, 0
        self.span = 0.0 if racing is None else span_of_mean(memory.scorer.evaluator)

    def score(self, job: Job) -> Result:
        """Score an architecture and count its images."""
        scores, last = self.memory.recall(job.arch), self.memory.num_batches(job.fraction) - 1
        seen = last
        if job.floor is not None and job.fraction == 1.0:
            seen = next((i for i in range(last) if self._is_lost(scores[i], i, job.floor)), last)
        self.images += self.memory.ends[seen]
        return Result(scores[seen], complete=seen == last and math.isfinite(scores[seen]))

    def _is_lost(self, score: float, i: int, floor: float) -> bool:
        """Return whether racing drops a candidate with this score after batch ``i``."""
        ends = self.memory.ends
        if self.racing is None:
            return False
        return self.racing.upper(score, ends[i], ends[-1], self.span, len(ends) - 1) < floor - _SLACK


class Bench:
    """A supernet to search again and again.

    Args:
        config: A search config.
        checkpoint: The supernet's weights.
    """

    def __init__(self, config: Config, checkpoint: Path) -> None:
        self.supernet = Supernet(config, checkpoint)
        self.digest = digest_weights(self.supernet.model)
        self.memory = Memory(self.supernet.scorer(config.train_dataloader))
        self.tests = Memory(self.supernet.scorer(config.test_dataloader))
        limits = Constraint(config.train_cfg.get('constraint'))
        self.space = FeasibleSpace(self.supernet.space, self.supernet.price, limits)

    def run(self, name: str, algorithm: SearchAlgorithm, racing: Racing | None, seed: int) -> Run:
        """Search once, as :class:`~vitnas_core.search.SearchLoop` does, and test the best architecture."""
        algorithm.setup(self.space)
        replay, workers = Replay(self.memory, racing), SerialWorkers()
        workers.start(lambda: replay.score)
        bar = SearchBar(algorithm.max_candidates, shown=True)
        with TemporaryDirectory() as folder:
            rounds = search(
                algorithm, workers, Journal(folder, {}), self.space.price, seed, scored=lambda _: bar.add(1, name)
            )
            for _ in rounds:
                bar.end_round(len(algorithm.history))
        best, different = ranked(algorithm.history)[0], {candidate.arch for candidate in algorithm.history}
        test = self.tests.recall(best.arch)[-1]
        return Run(self.digest, name, seed, best.score, test, replay.images, len(different), best.arch.digest())
