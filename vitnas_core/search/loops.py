"""``SearchLoop``: propose, evaluate, remember; what every search of a trained supernet has in common."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_gather_object, barrier, broadcast_object_list, get_dist_info
from mmengine.logging import print_log
from mmengine.runner import BaseLoop, Runner

from ..backbones import elastic_backbone, unwrap
from ..checkpoints import load_weights
from ..costs import Constraint, Cost, as_size
from ..datasets.checks import check_not_test_set
from ..errors import VitnasError
from ..evaluation import Job, Racing, Scorer, batch_norms, elastic_norms, whole
from ..latency import SPEARMAN, LatencyTable
from ..spaces import Arch
from . import outputs
from .candidate import Candidate, ranked
from .checks import digest_data, digest_weights
from .feasible import FeasibleSpace
from .journal import Journal
from .progress import SearchBar


@dataclass(frozen=True)
class Proposal:
    """An architecture to be evaluated.

    Args:
        arch: The architecture.
        parents: The ids of the candidates that it was made of.
        share: The part of the hold-out batches to score it on. Defaults to 1.
    """

    arch: Arch
    parents: tuple[int, ...] = ()
    share: float = 1.0


class SearchLoop(BaseLoop):
    """A search of a trained supernet, generation by generation, as ``train_cfg`` of an mmengine Runner.

    ``train_dataloader`` gives the hold-out part of the training set and ``load_from`` the supernet. What a
    generation proposes depends on the seed, its number and the candidates before it, so a search that was
    killed goes on from its journal as if it had never stopped, on any number of ranks; the ranks share out
    candidates, not images. A subclass says what is proposed.

    Args:
        runner: The runner.
        dataloader: Config of the hold-out images. Its sampler is replaced by ``vitnas.WholeSampler``.
        evaluator: Config of the metric (or metrics) of the score.
        input_size: Image side, or (height, width), for which architectures are priced.
        constraint: Limits as of :class:`~vitnas_core.costs.Constraint`, e.g. ``dict(macs=(None, 1.4e9))``.
            Defaults to None: none.
        num_classes: Classes of the linear head that is priced too. Defaults to 0: none.
        latency_table: Path of a latency table of this space; gives candidates a latency, which
            ``constraint`` can limit. Defaults to None.
        metric: Which value of the evaluator counts, greater is better. Defaults to None: its first.
        racing: ``dict(confidence=0.99)``: drop a candidate as soon as it cannot reach the parents any more;
            see :class:`~vitnas_core.evaluation.Racing`. Defaults to None: every candidate sees every image.
        keep_gb: Decoded hold-out batches are kept in memory up to this size. Defaults to 4.
        recalibrate: On how many hold-out batches batch norms get the statistics of a candidate before it is scored;
            for backbones with batch norms, such as NASViT. Defaults to 0: those of the supernet's training stay.

    Raises:
        VitnasError: The model is not elastic, there is no ``load_from``, or the images are the test set's.
        InfeasibleError: No architecture meets the limits.
    """

    front_cost = 'macs'
    """The cost of the Pareto front that is written and drawn."""

    def __init__(
        self,
        runner: Runner,
        dataloader: Mapping[str, Any],
        evaluator: Any,
        input_size: int | tuple[int, int],
        constraint: Mapping[str, Any] | None = None,
        num_classes: int = 0,
        latency_table: str | None = None,
        metric: str | None = None,
        racing: Mapping[str, float] | None = None,
        keep_gb: float = 4.0,
        recalibrate: int = 0,
    ) -> None:
        # Whatever can be refused is refused here, before images or weights are read.
        self.model = unwrap(runner.model)
        self.backbone = elastic_backbone(self.model)
        self.space = self.backbone.space
        self.input_size, self.num_classes = input_size, num_classes
        self.constraint = Constraint(constraint)
        self.latency_table = _read_table(latency_table, self)
        self.feasible = FeasibleSpace(self.space, self.price, self.constraint)
        self.load_from: Any = getattr(runner, '_load_from', None)
        if not self.load_from:
            raise VitnasError('a search needs a trained supernet: give its checkpoint as load_from, but got none')
        if not isinstance(dataloader, Mapping):
            raise VitnasError(f'train_dataloader of a search should be a config, but got a {type(dataloader).__name__}')
        check_not_test_set(dataloader, getattr(runner, '_test_dataloader', None), 'train_dataloader of the search')
        self.racing = None if racing is None else Racing(**racing)
        if type(recalibrate) is not int or recalibrate < 0:
            raise VitnasError(f'`recalibrate` should be a number of batches from 0, but got {recalibrate!r}')
        self.recalibrate = recalibrate
        self._check_norms()
        self.prepare()
        # A search goes on from its journal; mmengine's resume would take over the supernet's epochs.
        runner._resume = False
        self.data_digest = digest_data([dataloader.get('dataset'), dataloader.get('batch_size')])
        super().__init__(runner, whole(dataloader))
        self.metric_asked = {'evaluator': digest_data(evaluator), 'name': metric}
        self.scorer = self.build_scorer(evaluator, metric, keep_gb)
        self.seed = int(runner._randomness_cfg.get('seed') or 0)  # a run without a seed must be the same later
        self.rank, self.world = get_dist_info()
        self._epoch, self._iter = 0, 0

    # what a subclass says

    def prepare(self) -> None:
        """Get ready for the space, and refuse what can be refused before images or weights are read."""

    @property
    @abstractmethod
    def generations(self) -> int:
        """How many generations there are."""

    @property
    @abstractmethod
    def num_proposals(self) -> int:
        """How many candidates all generations have together, at most."""

    @abstractmethod
    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """What a generation evaluates; an empty list ends the search.

        Args:
            generation: Its number, from 0.
            history: The candidates of all generations before it, by id.
            rng: Where all randomness comes from; it depends on the seed and the generation.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What else decides the proposals; a journal with other settings is not continued."""

    def floor(self, history: Sequence[Candidate]) -> float | None:
        """The score that a new candidate must be able to reach, or racing drops it; None: any."""
        return None

    def remarks(self) -> dict[str, str]:
        """What else the log and the report should say about the search so far, name → text."""
        return {}

    # what mmengine's hooks ask for

    @property
    def epoch(self) -> int:
        """The current generation."""
        return self._epoch

    @property
    def max_epochs(self) -> int:
        """The number of generations."""
        return self.generations

    @property
    def iter(self) -> int:
        """How many candidates are done."""
        return self._iter

    @property
    def max_iters(self) -> int:
        """How many candidates there are, at most."""
        return self.num_proposals

    # the search

    def price(self, arch: Arch) -> Cost:
        """What an architecture costs, the latency included where a table is given."""
        cost = self.backbone.price(arch, self.input_size, self.num_classes)
        if self.latency_table is not None:
            cost = dataclasses.replace(cost, latency=self.latency_table.predict(arch))
        return cost

    def _check_norms(self) -> None:
        """Refuse to recalibrate what there is not, and say where statistics of other architectures would count."""
        if self.recalibrate and not batch_norms(self.model):
            raise VitnasError('`recalibrate` is for models with batch norms that are not frozen; this one has none')
        elastic = elastic_norms(self.model)
        if elastic and not self.recalibrate:
            print_log(
                f'Search: {elastic[0]} and other batch norms have statistics of all architectures, which fit none: '
                f'give `recalibrate`, a number of batches',
                'current',
                logging.WARNING,
            )

    def build_scorer(self, evaluator: Any, metric: str | None, keep_gb: float) -> Scorer:
        """What scores an architecture."""
        built = self.runner.build_evaluator(evaluator)
        return Scorer(self.model, self.dataloader, built, metric, self.racing, keep_gb, self.recalibrate)

    def run(self) -> torch.nn.Module:
        """Search; return the model with the winner active."""
        self.runner.call_hook('before_train')
        load_weights(self.model, self.load_from)  # strictly, so that no search runs on weights that are half random
        journal = Journal(self.runner.work_dir, self.header(), self.rank)
        known = self._open(journal)
        history: list[Candidate] = []
        bar = SearchBar(self.num_proposals, shown=self.rank == 0)
        for generation in range(self.generations):
            self._epoch = generation
            rng = np.random.default_rng([self.seed, self._epoch])
            proposals = self._new(self.propose(self._epoch, history, rng), history)
            if not proposals:
                self.runner.logger.info(
                    f'Search: no further architecture within the limits was found; it ends after {len(history)} '
                    f'candidates in {self._epoch} generations'
                )
                break
            history += self._evaluate(proposals, history, known, journal, bar)
            self._iter = len(history)
            self._report(history, bar)
        self.history = tuple(history)
        if not ranked(history):
            raise VitnasError(f'none of the {len(history)} candidates has a score: is the supernet trained?')
        best = ranked(history)[0]
        if self.scorer.metric is None:  # all candidates were in the journal: one is scored to learn of what
            self.scorer.score(Job(best.arch))
        self.scorer.activate(best.arch)
        if self.rank == 0:
            self.write_pictures()
            self.runner.logger.info(
                f'Search: the best of {len(history)} candidates is number {best.id} of generation {best.generation} '
                f'with {best.score:.4f}; see {self.runner.work_dir}'
            )
        barrier()
        self.runner.call_hook('after_train')
        return self.runner.model

    def write_results(self, history: Sequence[Candidate]) -> Candidate:
        """Write ``best_arch.json`` and ``pareto.json`` after a generation; return the best candidate.

        Args:
            history: What was evaluated; at least one that competes.
        """
        return outputs.write_results(self.runner.work_dir, history, self.front_cost)

    def write_pictures(self, baselines: Sequence[tuple[str, float, Mapping[str, float]]] = ()) -> None:
        """Write ``pareto.png`` and ``report.html`` of the search that has run.

        Args:
            baselines: (name, score, costs) of networks to show beside the candidates. Defaults to none.
        """
        outputs.write_pictures(self.runner.work_dir, self.history, baselines=baselines, **self._about())

    def header(self) -> dict[str, Any]:
        """What determines the search, for the journal; the number of generations does not: more can be added."""
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
            'strategy': {'type': type(self).__name__, **self.settings()},
            'racing': None if self.racing is None else dataclasses.asdict(self.racing),
            **({'recalibrate': self.recalibrate} if self.recalibrate else {}),  # journals of before do not name it
            'metric': self.metric_asked,
            'data': self.data_digest,
            'seed': self.seed,
        }

    def _open(self, journal: Journal) -> dict[int, Candidate]:
        """Read the journal on rank 0 and tell all ranks what it holds, or what is wrong with it."""
        message: list[Any] = [None]
        if self.rank == 0:
            try:
                message = [journal.open()]
            except VitnasError as err:
                message = [err]
        broadcast_object_list(message)
        if isinstance(message[0], VitnasError):
            raise message[0]
        return message[0]

    def _new(self, proposals: list[Proposal], history: Sequence[Candidate]) -> list[Proposal]:
        """Those within the limits that were not evaluated at this share and are not proposed twice."""
        seen = {(candidate.arch, candidate.share) for candidate in history}
        kept = []
        for proposal in proposals:
            if (proposal.arch, proposal.share) not in seen and proposal.arch in self.feasible:
                seen.add((proposal.arch, proposal.share))
                kept.append(proposal)
        return kept

    def _evaluate(
        self,
        proposals: list[Proposal],
        history: Sequence[Candidate],
        known: Mapping[int, Candidate],
        journal: Journal,
        bar: SearchBar,
    ) -> list[Candidate]:
        """The candidates of a generation: those in the journal, and the others shared out among the ranks."""
        numbered = dict(enumerate(proposals, len(history)))
        done = {number: known[number] for number in numbered if number in known}
        for number, candidate in done.items():
            if (candidate.arch, candidate.share) != (numbered[number].arch, numbered[number].share):
                raise VitnasError(
                    f'candidate {number} of {journal.path} is not what this search proposes as number {number}: the '
                    f'journal was written by another version of vitnas, numpy, scikit-learn or pymoo; give another '
                    f'--work-dir'
                )
        mine, floor = (
            [number for number in numbered if number not in done][self.rank :: self.world],
            self.floor(history),
        )
        best, fresh = ranked(history), []
        for count, number in enumerate(mine, 1):
            candidate = self._score(number, numbered[number], floor)
            journal.append(candidate)
            fresh.append(candidate)
            top = ranked([*best[:1], *fresh])
            text = f'generation {self._epoch + 1}/{self.generations}' + (f', best {top[0].score:.4g}' if top else '')
            bar.show(min(len(history) + len(done) + count * self.world, len(history) + len(numbered)), text)
        gathered = [candidate for part in all_gather_object(fresh) for candidate in part]
        if self.rank == 0:
            journal.merge(gathered)
        barrier()
        journal.drop_part()
        done.update({candidate.id: candidate for candidate in gathered})
        return [done[number] for number in sorted(done)]

    def _score(self, number: int, proposal: Proposal, floor: float | None) -> Candidate:
        start = time.perf_counter()
        score = self.scorer.score(Job(proposal.arch, proposal.share, floor))
        cost = {name: v for name, v in dataclasses.asdict(self.price(proposal.arch)).items() if v is not None}
        return Candidate(
            id=number,
            generation=self._epoch,
            arch=proposal.arch,
            cost=cost,
            score=score.value,
            parents=proposal.parents,
            seconds=round(time.perf_counter() - start, 6),
            share=proposal.share,
            complete=score.complete,
        )

    def _report(self, history: Sequence[Candidate], bar: SearchBar) -> None:
        """After a generation: the files, and one line in the log."""
        if self.rank != 0:
            return
        words = ''
        if ranked(history):
            best = self.write_results(history)
            costs = ', '.join(f'{name} {value:.4g}' for name, value in best.cost.items())
            words = f', best {best.score:.4f} ({costs})'
        words += ''.join(f', {name}: {text}' for name, text in self.remarks().items())
        bar.break_line()
        self.runner.logger.info(
            f'Search: generation {self._epoch + 1}/{self.generations}, {len(history)} candidates{words}'
        )

    # words for outputs

    def _limits(self) -> dict[str, tuple[float | None, float | None]]:
        return {
            name: (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
            for name, (low, high) in self.constraint.limits.items()
        }

    def _about(self) -> dict[str, Any]:
        called = self.space.name or self.space.family
        settings = {'search': type(self).__name__, 'space': called, 'generations': self.generations, **self.settings()}
        settings |= {'recalibrate': self.recalibrate} if self.recalibrate else {}
        settings.update(seed=self.seed, **self.remarks())
        return dict(
            title=f'Search of {called}',
            limits=self._limits(),
            metric=self.scorer.metric or 'score',
            settings={name: str(value) for name, value in settings.items()},
            cost=self.front_cost,
            training_csv=Path(self.load_from).parent / 'supernet_report.csv',
        )


def _read_table(path: str | None, search: SearchLoop) -> LatencyTable | None:
    """The table of a search, if it was measured for what is searched."""
    if path is None:
        if 'latency' in search.constraint.limits:
            raise VitnasError(
                'a limit on latency needs measured latencies: give latency_table, which '
                'tools/analysis/build_latency_table.py makes, but got none'
            )
        return None
    table = LatencyTable.from_file(path)
    measured = table.setting.get('input_size')
    asked = list(as_size('input_size', search.input_size))
    if table.family != search.space.family or (measured is not None and list(as_size(path, measured)) != asked):
        raise VitnasError(
            f'{path} was measured for {table.family} at {measured}; the search is of {search.space.family} at {asked}'
        )
    if table.validation is None or table.validation.spearman < SPEARMAN:
        print_log(
            f'Search: {path} did not rank architectures that were not measured as well as it should '
            f'({table.validation or "none were held out"})',
            'current',
            logging.WARNING,
        )
    return table
