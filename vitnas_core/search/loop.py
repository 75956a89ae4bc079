"""``SearchLoop``: a search of a trained supernet as ``train_cfg`` of an mmengine Runner."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import barrier, get_dist_info, is_distributed
from mmengine.runner import BaseLoop, Runner

from ..backbones import elastic_backbone, unwrap
from ..checkpoints import load_weights
from ..costs import Constraint, Cost
from ..datasets.checks import check_not_test_set
from ..errors import VitnasError
from ..evaluation import Job, Racing, Scorer, batch_norms, elastic_norms, whole
from ..evaluation.pricing import Size, resolve_pricing
from ..integration.runner import do_not_resume, given_seed, load_from, test_dataloader
from ..latency import SPEARMAN, LatencyTable
from ..registry import LOOPS, WORKERS
from ..spaces import Arch
from ..utils import checks
from ..utils.fileio import atomic_write
from . import outputs
from .algorithms import SearchAlgorithm
from .candidate import Candidate, ranked
from .checks import digest_data, digest_weights
from .driver import search
from .feasible import FeasibleSpace
from .journal import Journal
from .progress import SearchBar
from .settings import build_algorithm


@LOOPS.register_module()
class SearchLoop(BaseLoop):
    """Search a trained supernet, round by round.

    ``train_dataloader`` gives the hold-out part of the training set, and ``load_from`` the supernet. A killed search
    continues from its journal as if it had never stopped, on any number of ranks.

    Args:
        runner: The runner.
        dataloader: Config of the hold-out images. ``vitnas.WholeSampler`` replaces its sampler.
        algorithm: Config of the algorithm, e.g. ``dict(type='vitnas.Evolution', population=50)``, or the algorithm.
        evaluator: Config of the metric (or metrics) of the score.
        input_size: Image side, or (height, width), for which architectures are priced. Defaults to None: that of the
            images (:func:`~vitnas_core.evaluation.pricing.resolve_pricing`).
        constraint: Limits for :class:`~vitnas_core.costs.Constraint`, e.g. ``dict(macs=(None, 1.4e9))``. Defaults to
            None: no limits.
        num_classes: Classes of the linear head in the price; 0 for no head. Defaults to None: those of a classifier's
            head.
        latency_table: Path of a latency table of this space; gives candidates a latency, which ``constraint`` can
            limit. Defaults to None.
        metric: Name of the evaluator's value that is the score; greater is better. Defaults to None: the first value.
        racing: ``dict(confidence=0.99)``: drop a candidate as soon as it can no longer reach the parents; see
            :class:`~vitnas_core.evaluation.Racing`. Defaults to None: every candidate sees every image.
        keep_gb: Keep decoded hold-out batches in memory up to this size. Defaults to 4.
        recalibrate: Number of hold-out batches on which batch norms get the statistics of a candidate before it is
            scored; for backbones with batch norms, such as NASViT. Defaults to 0: they keep those of the supernet's
            training.
        workers: Workers that score: ``dict(type='serial')``, this process, or ``dict(type='ranks')``, all processes of
            a distributed run, which divide candidates, not images. Defaults to None: ranks if there are several.

    Raises:
        VitnasError: The model is not elastic, there is no ``load_from``, the images are from the test set, or a setting
            is out of range.
        InfeasibleError: No architecture meets the limits.
    """

    def __init__(
        self,
        runner: Runner,
        dataloader: Mapping[str, Any],
        algorithm: Mapping[str, Any] | SearchAlgorithm,
        evaluator: Any,
        input_size: Size | None = None,
        constraint: Mapping[str, Any] | None = None,
        num_classes: int | None = None,
        latency_table: str | None = None,
        metric: str | None = None,
        racing: Mapping[str, float] | None = None,
        keep_gb: float = 4.0,
        recalibrate: int = 0,
        workers: Mapping[str, Any] | None = None,
    ) -> None:
        # Refuse everything that can be refused before images or weights are read.
        self._logger = runner.logger
        self.model = unwrap(runner.model)
        self.backbone = elastic_backbone(self.model)
        self.space = self.backbone.space
        self.algorithm = build_algorithm(algorithm)
        if not isinstance(dataloader, Mapping):
            raise VitnasError(f'train_dataloader of a search should be a config, but got a {type(dataloader).__name__}')
        self.input_size, self.num_classes = self._pricing(runner, dataloader, input_size, num_classes)
        self.constraint = Constraint(constraint)
        self.latency_table = _read_table(latency_table, self)
        self.feasible = FeasibleSpace(self.space, self._price, self.constraint)
        self.load_from: Any = load_from(runner)
        if not self.load_from:
            raise VitnasError('a search needs a trained supernet: give its checkpoint as load_from, but got none')
        check_not_test_set(dataloader, test_dataloader(runner), 'train_dataloader of the search')
        self.racing = self._read_racing(racing)
        self.recalibrate = checks.whole('recalibrate', recalibrate, 0)
        self._check_norms()
        self.algorithm.say = self._say
        self.algorithm.setup(self.feasible)
        self.algorithm.load(self.load_from)
        self.workers = WORKERS.build(workers or dict(type='ranks' if is_distributed() else 'serial'))
        # A search continues from its journal; mmengine's resume would restore the supernet's epochs.
        do_not_resume(runner)
        self.data_digest = digest_data([dataloader.get('dataset'), dataloader.get('batch_size')])
        super().__init__(runner, whole(dataloader))
        self.metric_asked = {'evaluator': digest_data(evaluator), 'name': metric}
        self.scorer = Scorer(
            self.model, self.dataloader, runner.build_evaluator(evaluator), metric, self.racing, keep_gb, recalibrate
        )
        self.seed = given_seed(runner)  # a run without a seed must repeat later
        self.rank, self.world = get_dist_info()
        self.history: tuple[Candidate, ...] = ()
        self._epoch = 0

    @classmethod
    def takes(cls) -> list[Any]:
        """The settings in a config, with their defaults."""
        given = list(inspect.signature(cls.__init__).parameters.values())[3:]  # without self, runner and dataloader
        return [one for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]

    # for mmengine's hooks

    @property
    def epoch(self) -> int:
        """The current round."""
        return self._epoch

    @property
    def max_epochs(self) -> int:
        """Largest number of rounds."""
        return self.algorithm.max_rounds

    @property
    def iter(self) -> int:
        """Number of finished candidates."""
        return len(self.history)

    @property
    def max_iters(self) -> int:
        """Largest number of candidates."""
        return self.algorithm.max_candidates

    # the search

    def price(self, arch: Arch) -> Cost:
        """Costs of an architecture, including its latency if a table is given."""
        return self.feasible.price(arch)

    def run(self) -> torch.nn.Module:
        """Search; return the model with the winner active."""
        self.runner.call_hook('before_train')
        load_weights(self.model, self.load_from)  # strictly, so that no weight stays random
        journal = Journal(self.runner.work_dir, self.header(), self.rank)
        self._bar, rounds = SearchBar(self.max_iters, shown=self.rank == 0), 0
        self.workers.start(lambda: self.scorer.score)
        try:
            for candidates in search(self.algorithm, self.workers, journal, self.price, self.seed, self._show):
                self.history += tuple(candidates)
                rounds += 1
                self._report(rounds)
                self._epoch = min(rounds, self.max_epochs - 1)
        finally:
            self.workers.close()
        if rounds < self.max_epochs:
            self._say(
                f'no further architecture within the limits was found; it ends after {self.iter} candidates in '
                f'{rounds} generations'
            )
        self._finish()
        barrier()
        self.runner.call_hook('after_train')
        return self.runner.model

    def _finish(self) -> None:
        """Activate the winner, and write the results."""
        if not ranked(self.history):
            raise VitnasError(f'none of the {self.iter} candidates has a score: is the supernet trained?')
        best = ranked(self.history)[0]
        if self.scorer.metric is None:  # all candidates were in the journal, and only a score reveals its name
            self.scorer.score(Job(best.arch))
        self.scorer.activate(best.arch)
        if self.rank == 0:
            self.write_results()
            self.write_pictures()
            self._say(
                f'the best of {self.iter} candidates is number {best.id} of generation {best.generation} '
                f'with {best.score:.4f}; see {self.runner.work_dir}'
            )

    def header(self) -> dict[str, Any]:
        """Everything that determines the search, for the journal, except the number of rounds: more can be added."""
        table = self.latency_table
        return {
            'version': 1,
            'space': self.space.to_dict(),
            'checkpoint': digest_weights(self.model),
            'model': digest_data(self.runner.cfg.get('model')),
            'constraint': self._limits(),
            'cost': {
                'input_size': self.input_size,
                'num_classes': self.num_classes,
                'latency_table': None if table is None else digest_data(table.to_json()),
            },
            'strategy': {'type': self.algorithm.name(), **self.algorithm.settings()},
            'racing': None if self.racing is None else dataclasses.asdict(self.racing),
            **({'recalibrate': self.recalibrate} if self.recalibrate else {}),  # older journals do not name it
            'metric': self.metric_asked,
            'data': self.data_digest,
            'seed': self.seed,
        }

    # files and log

    def write_results(self) -> Candidate:
        """Write ``best_arch.json``, ``pareto.json`` and the algorithm's files; return the best candidate."""
        for name, text in self.algorithm.texts().items():
            atomic_write(Path(self.runner.work_dir) / name, text)
        return outputs.write_results(self.runner.work_dir, self.history, self.algorithm.front_cost)

    def write_pictures(self, baselines: Sequence[tuple[str, float, Mapping[str, float]]] = ()) -> None:
        """Write ``pareto.png``, ``report.html`` and the algorithm's pictures for a finished search.

        Args:
            baselines: (name, score, costs) of networks to show beside the candidates. Defaults to none.
        """
        outputs.write_pictures(self.runner.work_dir, self.history, baselines=baselines, **self._about())
        for name, figure in self.algorithm.figures(self.scorer.metric or 'score').items():
            outputs.save_figure(figure, Path(self.runner.work_dir) / name)

    def _say(self, text: str, warn: bool = False) -> None:
        self._logger.log(logging.WARNING if warn else logging.INFO, f'Search: {text}')

    def _show(self, candidate: Candidate) -> None:
        """Move the progress bar by one candidate per rank."""
        best = ranked([*ranked(self.history)[:1], candidate])
        text = f'generation {candidate.generation + 1}/{self.max_epochs}'
        self._bar.add(self.world, text + (f', best {best[0].score:.4g}' if best else ''))

    def _report(self, rounds: int) -> None:
        """Write the results of a round, and one line in the log."""
        if self.rank != 0:
            return
        words = ''
        if ranked(self.history):
            best = self.write_results()
            costs = ', '.join(f'{name} {value:.4g}' for name, value in best.cost.items())
            words = f', best {best.score:.4f} ({costs})'
        words += ''.join(f', {name}: {text}' for name, text in self.algorithm.remarks().items())
        self._bar.end_round(self.iter)
        self._say(f'generation {rounds}/{self.max_epochs}, {self.iter} candidates{words}')

    def _limits(self) -> dict[str, tuple[float | None, float | None]]:
        return {
            name: (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
            for name, (low, high) in self.constraint.limits.items()
        }

    def _about(self) -> dict[str, Any]:
        called, algorithm = self.space.name or self.space.family, self.algorithm
        settings = {'search': algorithm.name(), 'space': called, 'generations': self.max_epochs}
        settings |= {name: value for name, value in algorithm.settings().items() if value is not None}
        settings |= {'recalibrate': self.recalibrate} if self.recalibrate else {}
        settings.update(seed=self.seed, **algorithm.remarks())
        return dict(
            title=f'Search of {called}',
            limits=self._limits(),
            metric=self.scorer.metric or 'score',
            settings={name: str(value) for name, value in settings.items()},
            cost=algorithm.front_cost,
            training_csv=Path(self.load_from).parent / 'supernet_report.csv',
        )

    # construction

    def _pricing(
        self, runner: Runner, dataloader: Mapping[str, Any], input_size: Size | None, num_classes: int | None
    ) -> tuple[Size, int]:
        """Return the image size and the classes for which architectures are priced."""
        bound = self.algorithm.priced_for()
        for name, given in (('input_size', input_size), ('num_classes', num_classes)):
            if bound and given is not None:
                raise VitnasError(
                    f'`{name}` of vitnas.{type(self.algorithm).__name__} is that of its `sampler`; leave it out'
                )
        stated = bound or dict(input_size=input_size, num_classes=num_classes)
        return resolve_pricing(runner.cfg.get('model') or {}, dataloader, **stated)

    def _price(self, arch: Arch) -> Cost:
        cost = self.backbone.price(arch, self.input_size, self.num_classes)
        if self.latency_table is not None:
            cost = dataclasses.replace(cost, latency=self.latency_table.predict(arch))
        return cost

    def _read_racing(self, racing: Mapping[str, float] | None) -> Racing | None:
        """Refuse to race for a score that the algorithm does not name."""
        if racing is not None and type(self.algorithm).floor is SearchAlgorithm.floor:
            raise VitnasError(
                f'`racing` should be left out with vitnas.{type(self.algorithm).__name__}: it does not say which score '
                f'a candidate has to reach'
            )
        return None if racing is None else Racing(**racing)

    def _check_norms(self) -> None:
        """Refuse recalibration without batch norms; warn if batch norms would mix the statistics of architectures."""
        if self.recalibrate and not batch_norms(self.model):
            raise VitnasError('`recalibrate` is for models with batch norms that are not frozen; this one has none')
        elastic = elastic_norms(self.model)
        if elastic and not self.recalibrate:
            self._say(
                f'{elastic[0]} and other batch norms have statistics of all architectures, which fit none: '
                f'give `recalibrate`, a number of batches',
                warn=True,
            )


def _read_table(path: str | None, loop: SearchLoop) -> LatencyTable | None:
    """Read the latency table of a search; refuse one that was measured for something else."""
    if path is None:
        if 'latency' in loop.constraint.limits:
            raise VitnasError(
                'a limit on latency needs measured latencies: give latency_table, which '
                'tools/analysis/build_latency_table.py makes, but got none'
            )
        return None
    table = LatencyTable.from_file(path)
    measured = table.setting.get('input_size')
    asked = list(checks.size('input_size', loop.input_size))
    if table.family != loop.space.family or (measured is not None and list(checks.size(path, measured)) != asked):
        raise VitnasError(
            f'{path} was measured for {table.family} at {measured}; the search is of {loop.space.family} at {asked}'
        )
    if table.validation is None or table.validation.spearman < SPEARMAN:
        loop._say(
            f'{path} did not rank architectures that were not measured as well as it should '
            f'({table.validation or "none were held out"})',
            warn=True,
        )
    return table
