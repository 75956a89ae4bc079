"""``SpaceSearch``: search the search space, then search in it, from one config (S3, Alg. 1)."""

from __future__ import annotations

import copy
import csv
import dataclasses
import gc
import inspect
import io
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dist import barrier, broadcast_object_list, is_main_process
from mmengine.logging import MMLogger

from .. import zoo
from ..costs import Constraint, Cost
from ..errors import InfeasibleError, VitnasError
from ..evaluation import in_percent
from ..evaluation.pricing import resolve_pricing
from ..launch import make_runner
from ..model_configs import backbone_of, space_config
from ..registry import RUNNERS
from ..spaces import Arch, SearchSpace, stage_dimensions
from ..utils import checks
from ..utils.fileio import atomic_write
from ..utils.jsondata import difference
from .candidate import Candidate, ranked
from .feasible import FeasibleSpace
from .journal import read_candidates
from .space_checks import check_config, check_evaluator, check_search
from .space_quality import Sample, SpaceEvolution, SpaceStep, Tendency

_JUDGING = ('evaluator', 'input_size', 'num_classes', 'metric', 'keep_gb', 'recalibrate')
"""Settings of the search that also hold for the architectures that judge a space."""
_ROOM, _DRAWS = 0.1, 500
"""Least fraction of a moved space within the limits, unless the space before had less; number of draws to judge it."""
_DECIDING = (
    'model', 'data_preprocessor', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr', 'custom_hooks',
    'randomness',
)  # fmt: skip
"""Other config entries that decide the moves of a space, besides the images and ``space_search`` itself."""


@RUNNERS.register_module()
class SpaceSearch:
    """Evolve a search space by the errors of architectures drawn from it, then search the last one.

    It repeats ``iterations`` times: train a supernet of the space (by the config's ``train_cfg``), draw architectures
    within the limits, and move every dimension in the direction of smaller errors (:class:`SpaceEvolution`). A move
    stops before hardly anything of the space is within the limits. Then it trains a supernet of the evolved space,
    draws from it, too, and searches it. A config asks for it by ``runner_type='vitnas.SpaceSearch'`` and
    ``space_search=dict(…)``. Architectures are compared on the images of ``val_dataloader``.

    Each space has a folder ``step_0``, ``step_1``, … with ``space.json``, the run of the supernet, ``samples.csv`` and
    ``et_errors.json``; the last one also has the run of the search. ``report.html`` shows all. Finished parts are never
    repeated: the same command continues after a kill, even inside a supernet's training or a search.

    Args:
        cfg: The whole config.
        iterations: T: number of moves of the space. More can be added later.
        num_samples: N: number of architectures drawn from each space.
        evolution: Arguments of :class:`SpaceEvolution`.
        search: Config of the last search loop. Its metric also holds for the drawn architectures.
        constraint: Limits of the drawn architectures. Defaults to None: those of the search. Give others if the first
            space can hardly reach these.
        inherit: Whether a supernet starts from the overlapping weights of the last one. Defaults to False: from
            scratch, as in the paper.

    Raises:
        VitnasError: An argument is invalid, or the work dir holds another space search.
        InfeasibleError: No architecture of the first space meets the limits.
    """

    def __init__(
        self,
        cfg: Config,
        iterations: int,
        num_samples: int,
        evolution: Mapping[str, Any],
        search: Mapping[str, Any],
        constraint: Mapping[str, Any] | None = None,
        inherit: bool = False,
    ) -> None:
        checks.whole('iterations', iterations, 0)
        checks.whole('num_samples', num_samples)
        checks.flag('inherit', inherit)
        check_search(search)
        check_config(cfg)
        _check_names(SpaceEvolution, evolution, 'space_search.evolution')
        self.cfg, self.iterations, self.num_samples = cfg, iterations, num_samples
        self.evolution, self.search, self.inherit = SpaceEvolution(**evolution), dict(search), inherit
        self.folder = Path(cfg.work_dir)
        self.backbone = backbone_of(cfg.model)
        self.space = self.backbone.space
        self.evolution.check(self.space)
        stated = (self.search.get('input_size'), self.search.get('num_classes'))
        self.pricing = resolve_pricing(cfg.model, cfg.val_dataloader, *stated)
        self.constraint = self.search.get('constraint') if constraint is None else constraint
        for limits in (self.constraint, self.search.get('constraint')):
            FeasibleSpace(self.space, self.price, Constraint(limits))
        check_evaluator(self.search['evaluator'], cfg)

    @classmethod
    def from_cfg(cls, cfg: Config) -> SpaceSearch:
        """Read ``space_search`` of a config.

        Raises:
            VitnasError: It is missing, or has an unknown entry.
        """
        settings = cfg.get('space_search')
        if not isinstance(settings, Mapping):
            raise VitnasError(f'runner_type is {cls.__name__}, so the config should have `space_search`, a dict')
        _check_names(cls, {'cfg': cfg, **settings}, 'space_search')
        return cls(cfg, **settings)

    def train(self) -> SearchSpace:
        """Search the space, then search in it; return the last space."""
        self._check_folder()
        self.logger = MMLogger.get_instance(
            f'space_search_{self.folder.name}',
            log_file=str(self.folder / 'space_search.log'),
            file_mode='a',
            log_level=self.cfg.get('log_level', 'INFO'),
        )
        steps: list[SpaceStep] = []
        space, checkpoint = self.space, None
        for step in range(self.iterations + 1):
            where = f'step_{step}'
            self._say(f'{where} of {self.iterations}: a space of {Decimal(space.size()):.3g} architectures')
            self._write_space(where, space)
            checkpoint = self._train_supernet(where, checkpoint)
            samples = self._draw(where, space, checkpoint)
            tendencies = self._tendencies(space, samples) if step < self.iterations else ()
            steps.append(SpaceStep(space, samples, tendencies, self.evolution.top))
            self._write_quality(where, steps[-1])
            self._report(steps)
            if tendencies:
                moved = self.evolution.evolve(space, tendencies)
                space = dataclasses.replace(moved, name=f'{self.space.name or self.space.family}-{step + 1}')
        self._run_search(f'step_{self.iterations}/search', self.search, f'step_{self.iterations}', checkpoint)
        self._report(steps, [('The search of the last space', f'step_{self.iterations}/search/report.html')])
        self._say(f'the best architecture is {self.folder}/step_{self.iterations}/search/best_arch.json')
        return space

    # the parts of a step

    def _train_supernet(self, where: str, previous: str | None) -> str:
        """Return the checkpoint of the trained supernet; an interrupted training continues."""
        folder, note = self.folder / where / 'supernet', self.folder / where / 'supernet.json'
        if not self._exists(note):
            cfg = self._config(where, 'supernet')
            cfg.resume, cfg.load_from = self._exists(folder / 'last_checkpoint'), None
            if cfg.resume:  # by its name: the folder may have been moved since
                cfg.load_from = str(folder / _last_checkpoint(folder))
            if self.inherit and previous is not None:
                hooks = list(cfg.get('custom_hooks') or [])
                cfg.custom_hooks = [*hooks, dict(type='vitnas.InheritHook', checkpoint=previous)]
            self._run(cfg)
            name = f'supernet/{_last_checkpoint(folder)}'
            self._write(f'{where}/supernet.json', json.dumps({'checkpoint': name}) + '\n')
        return str(note.parent / json.loads(note.read_text())['checkpoint'])

    def _draw(self, where: str, space: SearchSpace, checkpoint: str) -> tuple[Sample, ...]:
        """Return architectures within the limits and their errors (Alg. 1, line 4)."""
        table, history = self.folder / where / 'samples.csv', self.folder / where / 'samples/history.jsonl'
        if not self._exists(table):
            judging = {name: self.search[name] for name in _JUDGING if name in self.search}
            limits = dict(constraint=self.constraint, num_candidates=self.num_samples)
            loop = dict(type='vitnas.RandomSearchLoop', **limits, **judging)
            metric = self._run_search(f'{where}/samples', loop, where, checkpoint)
            self._write(f'{where}/samples.csv', samples_table(space, read_candidates(history), metric))
        with table.open(newline='', encoding='utf-8') as file:
            errors = {int(row['id']): float(row['error']) for row in csv.DictReader(file)}
        return tuple(Sample(c.arch, errors[c.id]) for c in read_candidates(history) if c.id in errors)

    def _run_search(self, name: str, loop: Mapping[str, Any], where: str, checkpoint: str | None) -> str:
        """Run a search; return the name of its score."""
        cfg = self._config(where, Path(name).name)
        cfg.train_cfg = copy.deepcopy(dict(loop))
        cfg.train_dataloader, cfg.load_from = cfg.val_dataloader, checkpoint
        cfg.custom_hooks, cfg.resume = [], False
        return self._run(cfg)

    def _config(self, where: str, name: str) -> Config:
        """Make the config of a run inside a step."""
        cfg = copy.deepcopy(self.cfg)
        for own in ('runner_type', 'space_search'):
            cfg.pop(own, None)
        # The data, not the file name: a moved folder can be resumed, too.
        space = zoo.load_space(self.folder / where / 'space.json')
        cfg.model = space_config(cfg.model, space.to_dict())
        cfg.work_dir = str(self.folder / where / name)
        cfg.experiment_name = f'{self.folder.name}_{where}_{name}'
        return cfg

    def _run(self, cfg: Config) -> str:
        """Run a part to its end, and free its memory; return the name of its score, if it has one."""
        self._say(f'running {cfg.work_dir}')
        runner = make_runner(cfg)
        runner.train()
        metric = getattr(getattr(runner.train_loop, 'scorer', None), 'metric', None)
        del runner
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        barrier()
        return metric or ''

    # limits

    def price(self, arch: Arch) -> Cost:
        """Return the cost of an architecture of any space."""
        return self.backbone.price(arch, *self.pricing)

    def _tendencies(self, space: SearchSpace, samples: Sequence[Sample]) -> tuple[Tendency, ...]:
        """Compute tendencies so that architectures of the moved space can be drawn now and searched in the end."""
        found = self.evolution.tendencies(space, samples)
        limits = [(Constraint(self.constraint), _ROOM), (Constraint(self.search.get('constraint')), 0.0)]
        needed = [(limit, min(room, self._room(space, limit)[0])) for limit, room in limits]

        def beyond(moved: SearchSpace) -> int:
            for limit, least in needed:
                room, side = self._room(moved, limit)
                if room < least or (room == 0.0 and not _has_any(moved, self.price, limit)):
                    return side
            return 0

        return self.evolution.restrain(space, found, beyond)

    def _room(self, space: SearchSpace, limit: Constraint) -> tuple[float, int]:
        """Estimate the fraction of a space's architectures within limits, and the side on which most others are."""
        rng = np.random.default_rng(0)
        costs = [self.price(space.sample(rng)) for _ in range(_DRAWS)]
        above = sum(getattr(cost, name) > high for cost in costs for name, (_, high) in limit.limits.items())
        below = sum(getattr(cost, name) < low for cost in costs for name, (low, _) in limit.limits.items())
        return sum(map(limit.met, costs)) / len(costs), 1 if above >= below else -1

    # files

    def _check_folder(self) -> None:
        """Store everything that decides this space search, or compare it with the stored data."""
        cfg = {name: self.cfg.get(name) for name in _DECIDING}
        images = [self.cfg[f'{part}_dataloader'] for part in ('train', 'val')]
        own = dict(
            num_samples=self.num_samples,
            evolution=dataclasses.asdict(self.evolution),
            constraint=self.constraint,
            inherit=self.inherit,
        )
        judging = {k: v for k, v in self.search.items() if k in _JUDGING}
        judging.update(zip(('input_size', 'num_classes'), self.pricing))
        deciding = {
            **cfg,
            'images': [{name: loader.get(name) for name in ('dataset', 'batch_size')} for loader in images],
            'space': self.space.to_dict(),
            'space_search': {**own, 'judging': judging},
        }
        header = json.loads(json.dumps(Config(deciding).to_dict(), default=str))
        path = self.folder / 'space_search.json'
        if self._exists(path):
            found = list(difference(_read_json(path), header))
            if found:
                raise VitnasError(
                    f'{path} is of another space search: {"; ".join(found[:8])} (then → now). Give another --work-dir '
                    f'or undo the change; nothing was changed'
                )
        elif self._exists(self.folder / 'step_0/space.json'):
            raise VitnasError(f'{self.folder} has steps of a space search, but no space_search.json that says of which')
        self._write('space_search.json', json.dumps(header, indent=1) + '\n')

    def _write_space(self, where: str, space: SearchSpace) -> None:
        """Write ``space.json``; refuse to replace the space of a trained supernet.

        Raises:
            VitnasError: The step has a supernet of another space.
        """
        path, text = self.folder / where / 'space.json', space.to_json() + '\n'
        if self._exists(path) and path.read_text() != text and self._exists(path.with_name('supernet.json')):
            raise VitnasError(
                f'{path} is another space than the steps before lead to now: {where} is of another space search, or '
                f'files were changed; give another --work-dir, or remove {path.parent} and the steps after it'
            )
        self._write(f'{where}/space.json', text)

    def _write_quality(self, where: str, step: SpaceStep) -> None:
        quality = step.quality
        data = {
            'expected': quality.expected,
            'top': quality.top,
            'et_error': quality.et_error,
            'count': quality.count,
            'dimensions': [tendency.to_dict() for tendency in step.tendencies],
        }
        self._write(f'{where}/et_errors.json', json.dumps(data, indent=1) + '\n')
        self._say(f'{where}: E-T error {quality.et_error:.2f} % of {quality.count} architectures')
        for tendency in step.tendencies:
            old, new = (', '.join(map(str, v)) for v in (tendency.dimension.options, tendency.moved))
            held = f' ({tendency.wanted} steps were wanted)' if tendency.wanted != tendency.steps else ''
            if tendency.steps or held:
                words = f'moves from {old} to {new}' if tendency.steps else f'stays at {old}'
                self._say(f'{where}: {tendency.dimension.path} {words}{held}')

    def _report(self, steps: Sequence[SpaceStep], links: Sequence[tuple[str, str]] = ()) -> None:
        """Write ``report.html`` and its pictures."""
        if is_main_process():
            from ..visualization import draw_error_distribution, draw_space_steps, save_png, write_space_report

            called = self.space.name or self.space.family
            settings = dict(
                iterations=str(self.iterations), num_samples=str(self.num_samples), inherit=str(self.inherit),
                search=str(self.search), **{name: str(v) for name, v in dataclasses.asdict(self.evolution).items()},
            )  # fmt: skip
            write_space_report(
                self.folder / 'report.html',
                title=f'Search of the search space {called}',
                steps=steps,
                settings={**settings, 'seed': str(self.cfg.get('randomness', {}).get('seed'))},
                constraint=self.constraint,
                links=links,
            )
            save_png(draw_space_steps(steps), self.folder / 'space_steps.png')
            save_png(draw_error_distribution(steps), self.folder / 'error_distribution.png')
        barrier()

    def _exists(self, path: Path) -> bool:
        """Return whether a file exists, as rank 0 sees it, so that all ranks take the same branch."""
        found = [path.is_file()]
        broadcast_object_list(found)
        return found[0]

    def _write(self, name: str, text: str) -> None:
        if is_main_process():
            atomic_write(self.folder / name, text)
        barrier()

    def _say(self, text: str) -> None:
        self.logger.info(f'Space search: {text}')


def samples_table(space: SearchSpace, candidates: Sequence[Candidate], metric: str) -> str:
    """Make the CSV of drawn architectures: error in percent, costs, and the choices of every dimension.

    The choices of a stage's blocks are in one field, separated by spaces.

    Args:
        space: Space of the architectures.
        candidates: The architectures; those without a score are left out.
        metric: Name of the score; its values go from 0 to 1 unless the name means percent.

    Raises:
        VitnasError: No candidate has a score.
    """
    scored = sorted(ranked(candidates), key=lambda candidate: candidate.id)
    scored = [candidate for candidate in scored if candidate.score > -float('inf')]
    if not scored:
        raise VitnasError(f'none of the {len(candidates)} architectures drawn has a score: is the supernet trained?')
    dimensions, scale = stage_dimensions(space), 1.0 if in_percent(metric) else 100.0
    text = io.StringIO()
    table = csv.writer(text, lineterminator='\n')
    table.writerow(['id', 'error', 'macs', 'params', *(dimension.path for dimension in dimensions)])
    for c in scored:
        choices = [' '.join(map(str, dimension.values(c.arch))) for dimension in dimensions]
        table.writerow([c.id, 100.0 - c.score * scale, c.cost['macs'], c.cost['params'], *choices])
    return text.getvalue()


def _check_names(kind: Callable[..., Any], settings: Any, where: str) -> None:
    """Refuse settings that a class does not take, without calling it."""
    try:
        inspect.signature(kind).bind(**settings)
    except TypeError as err:
        raise VitnasError(f'`{where}`: {err}') from None


def _has_any(space: SearchSpace, price: Callable[[Arch], Cost], limit: Constraint) -> bool:
    try:
        limit.find(space, price)
    except InfeasibleError:
        return False
    return True


def _last_checkpoint(folder: Path) -> str:
    return Path((folder / 'last_checkpoint').read_text().strip()).name


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError:
        raise VitnasError(f'{path} is not JSON; restore the file, or give another --work-dir') from None
