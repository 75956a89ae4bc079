"""``SpaceSearch``: search the search space, then search in it, from one config (S3, Alg. 1)."""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dist import barrier, broadcast_object_list, is_main_process
from mmengine.logging import MMLogger

from .. import zoo
from ..backbones import ElasticBackbone
from ..costs import Constraint, Cost
from ..errors import VitnasError
from ..fileio import atomic_write
from ..launch import make_runner
from ..models import backbone_of, space_config
from ..registry import LOOPS, RUNNERS
from ..scoring import in_percent
from ..spaces import Arch, SearchSpace, stage_dimensions
from .candidate import Candidate, ranked
from .feasible import FeasibleSpace
from .journal import difference, read_candidates
from .loops import SearchLoop
from .space_quality import Sample, SpaceEvolution, SpaceStep, Tendency

_JUDGING = ('evaluator', 'input_size', 'num_classes', 'metric', 'keep_gb')
"""Settings of the search that also hold for the architectures by which a space is judged."""
_ROOM, _DRAWS = 0.1, 500
"""Which share of a moved space should be within the limits, unless the space before had less; judged by how many."""
_DECIDING = ('model', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'custom_hooks', 'randomness')
"""What else in a config decides where a space moves, besides the images and ``space_search`` itself."""


@RUNNERS.register_module()
class SpaceSearch:
    """Evolve a search space by the errors of architectures drawn from it, then search the last one.

    ``iterations`` times: train a supernet of the space (as the config's ``train_cfg`` says), draw architectures within
    the limits, and move every dimension where their errors tend (:class:`SpaceEvolution`), but not so far that next to
    nothing of the space would be within the limits. Then train a supernet of
    the evolved space, draw from it too, and search it. A config asks for it by ``runner_type='vitnas.SpaceSearch'``
    and ``space_search=dict(…)``; the images that architectures are compared on are those of ``val_dataloader``.

    Each space has a folder ``step_0``, ``step_1``, … with ``space.json``, the run of the supernet, ``samples.csv`` and
    ``et_errors.json``; the last one also has the run of the search. ``report.html`` shows all. What is finished is
    never repeated: the same command goes on after a kill, inside a supernet's training or a search too.

    Args:
        cfg: The whole config.
        iterations: T: how often the space moves. More can be added later.
        num_samples: N: how many architectures are drawn from each space.
        evolution: Arguments of :class:`SpaceEvolution`.
        search: Config of the last search loop. Its metric holds for the drawn architectures too.
        constraint: Limits of the drawn architectures. Defaults to None: those of the search. The first space may hardly
            reach what the last one is searched for.
        inherit: Begin a supernet with the last one's weights where they overlap. Defaults to False: from scratch, as in
            the paper.

    Raises:
        VitnasError: An argument is none of the above, or the work dir holds another space search.
        InfeasibleError: No architecture of a space meets the limits; before its supernet is trained.
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
        for name, value, least in (('iterations', iterations, 0), ('num_samples', num_samples, 1)):
            if type(value) is not int or value < least:
                raise VitnasError(f'`{name}` should be a whole number of at least {least}, but got {value!r}')
        self.cfg, self.iterations, self.num_samples = cfg, iterations, num_samples
        self.evolution, self.search, self.inherit = SpaceEvolution(**evolution), dict(search), inherit
        self.folder = Path(cfg.work_dir)
        self.space = backbone_of(cfg.model).space
        self.evolution.check(self.space)
        _check_search(self.search)
        _check_config(cfg)
        self.constraint = self.search.get('constraint') if constraint is None else constraint
        self._check_feasible(self.space, self.constraint)
        self.logger = MMLogger.get_instance(f'space_search_{self.folder.name}', log_level=cfg.get('log_level', 'INFO'))

    @classmethod
    def from_cfg(cls, cfg: Config) -> SpaceSearch:
        """Read ``space_search`` of a config.

        Raises:
            VitnasError: It is missing, or has what there is not.
        """
        settings = cfg.get('space_search')
        if not isinstance(settings, Mapping):
            raise VitnasError(f'runner_type is {cls.__name__}, so the config should have `space_search`, a dict')
        try:
            return cls(cfg, **settings)
        except TypeError as err:
            raise VitnasError(f'`space_search`: {err}') from None

    def train(self) -> SearchSpace:
        """Search the space, and then in it; return the last space."""
        self._check_folder()
        steps: list[SpaceStep] = []
        space, checkpoint = self.space, None
        for step in range(self.iterations + 1):
            where = f'step_{step}'
            self._say(f'{where} of {self.iterations}: a space of {Decimal(space.size()):.3g} architectures')
            self._write(f'{where}/space.json', space.to_json() + '\n')
            self._check_feasible(space, self.constraint)
            if step == self.iterations:
                self._check_feasible(space, self.search.get('constraint'))
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
        """The checkpoint of the trained supernet; an interrupted training goes on."""
        folder, note = self.folder / where / 'supernet', self.folder / where / 'supernet.json'
        if not self._exists(note):
            cfg = self._config(where, 'supernet')
            cfg.resume, cfg.load_from = self._exists(folder / 'last_checkpoint'), None
            if self.inherit and previous is not None:
                hooks = list(cfg.get('custom_hooks') or [])
                cfg.custom_hooks = [*hooks, dict(type='vitnas.InheritHook', checkpoint=previous)]
            self._run(cfg)
            if not self._exists(folder / 'last_checkpoint'):
                raise VitnasError(f'the supernet of {folder} left no checkpoint: is there default_hooks.checkpoint?')
            name = Path((folder / 'last_checkpoint').read_text().strip()).name
            self._write(f'{where}/supernet.json', json.dumps({'checkpoint': f'supernet/{name}'}) + '\n')
        return str(note.parent / json.loads(note.read_text())['checkpoint'])

    def _draw(self, where: str, space: SearchSpace, checkpoint: str) -> tuple[Sample, ...]:
        """Architectures within the limits and their errors (Alg. 1, line 4)."""
        table, history = self.folder / where / 'samples.csv', self.folder / where / 'samples/history.jsonl'
        if not self._exists(table):
            judging = {name: self.search[name] for name in _JUDGING if name in self.search}
            limits = dict(constraint=self.constraint, num_candidates=self.num_samples)
            loop = dict(type='vitnas.RandomSearchLoop', **limits, **judging)
            runner = self._run_search(f'{where}/samples', loop, where, checkpoint)
            text = samples_table(space, read_candidates(history), runner.train_loop.evaluator.metric)
            self._write(f'{where}/samples.csv', text)
        with table.open(newline='', encoding='utf-8') as file:
            errors = {int(row['id']): float(row['error']) for row in csv.DictReader(file)}
        return tuple(Sample(c.arch, errors[c.id]) for c in read_candidates(history) if c.id in errors)

    def _run_search(self, name: str, loop: Mapping[str, Any], where: str, checkpoint: str | None) -> Any:
        cfg = self._config(where, Path(name).name)
        cfg.train_cfg = copy.deepcopy(dict(loop))
        cfg.train_dataloader, cfg.load_from = cfg.val_dataloader, checkpoint
        # A search trains nothing and validates by itself.
        cfg.param_scheduler = cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
        cfg.custom_hooks, cfg.resume = [], False
        return self._run(cfg)

    def _config(self, where: str, name: str) -> Config:
        """The config of a run inside a step."""
        cfg = copy.deepcopy(self.cfg)
        for own in ('runner_type', 'space_search'):
            cfg.pop(own)
        # The data, not the file: a folder that was moved goes on, too.
        space = zoo.load_space(self.folder / where / 'space.json')
        cfg.model = space_config(cfg.model, space.to_dict())
        cfg.work_dir = str(self.folder / where / name)
        cfg.experiment_name = f'{self.folder.name}_{where}_{name}'
        return cfg

    def _run(self, cfg: Config) -> Any:
        self._say(f'running {cfg.work_dir}')
        runner = make_runner(cfg)
        runner.train()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        barrier()
        return runner

    def _tendencies(self, space: SearchSpace, samples: Sequence[Sample]) -> tuple[Tendency, ...]:
        """Where the dimensions move, so that what the space becomes still has room within the limits."""
        found = self.evolution.tendencies(space, samples)
        needed = min(_ROOM, self._room(space))
        return self.evolution.restrain(space, found, lambda moved: self._room(moved) >= needed)

    def _room(self, space: SearchSpace) -> float:
        """The share of a space's architectures that is within the limits of the drawn ones."""
        backbone, limits = self._backbone(space), Constraint(self.constraint)
        rng = np.random.default_rng(0)
        met = [limits.met(self._price(backbone, space.sample(rng))) for _ in range(_DRAWS)]
        return sum(met) / len(met)

    def _backbone(self, space: SearchSpace) -> ElasticBackbone:
        return backbone_of(space_config(self.cfg.model, space.to_dict()))

    def _price(self, backbone: ElasticBackbone, arch: Arch) -> Cost:
        return backbone.price(arch, self.search['input_size'], self.search.get('num_classes', 0))

    def _check_feasible(self, space: SearchSpace, limits: Mapping[str, Any] | None) -> None:
        """Refuse a space that cannot be searched before a supernet of it is trained."""
        backbone = self._backbone(space)
        FeasibleSpace(space, lambda arch: self._price(backbone, arch), Constraint(limits))

    # files

    def _check_folder(self) -> None:
        """Note what decides this space search, or compare with what the folder was begun with."""
        cfg = {name: self.cfg.get(name) for name in _DECIDING}
        images = [self.cfg[f'{part}_dataloader'] for part in ('train', 'val')]
        space_search = {k: v for k, v in self.cfg.space_search.items() if k not in ('iterations', 'search')}
        deciding = {
            **cfg,
            'images': [{name: loader.get(name) for name in ('dataset', 'batch_size')} for loader in images],
            'space': self.space.to_dict(),
            'space_search': {**space_search, 'judging': {k: v for k, v in self.search.items() if k in _JUDGING}},
        }
        header = json.loads(json.dumps(Config(deciding).to_dict(), default=str))
        path = self.folder / 'space_search.json'
        if self._exists(path):
            found = list(difference(json.loads(path.read_text()), header))
            if found:
                raise VitnasError(
                    f'{path} is of another space search: {"; ".join(found[:8])} (then → now). Give another --work-dir '
                    f'or undo the change; nothing was changed'
                )
        self._write('space_search.json', json.dumps(header, indent=1) + '\n')

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
            settings = {name: str(value) for name, value in self.cfg.space_search.items()}
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
        """Whether a file is there, as rank 0 sees it: all ranks go the same way."""
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
    """The CSV of drawn architectures: error in percent, costs, and the choices of every dimension.

    The choices of a stage's blocks stand in one field, separated by spaces.

    Args:
        space: What they were drawn from.
        candidates: The architectures; those without a score are left out.
        metric: What the score is; from 0 to 1 unless its name says that it is in percent.

    Raises:
        VitnasError: None has a score.
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


def _check_search(search: Mapping[str, Any]) -> None:
    """Refuse what would only fail after the last supernet is trained."""
    loop = LOOPS.get(search.get('type') or '')
    if not isinstance(loop, type) or not issubclass(loop, SearchLoop):
        raise VitnasError(
            f'`search` should be the config of a search loop, e.g. type="vitnas.EvolutionSearchLoop", but its type is '
            f'{search.get("type")!r}'
        )
    for name in ('evaluator', 'input_size'):
        if name not in search:
            raise VitnasError(f'`search` should have `{name}`, by which drawn architectures are judged too')
    if 'latency_table' in search:
        raise VitnasError('`search` has a latency_table, which is of one space; limit macs or params instead')


def _check_config(cfg: Config) -> None:
    """Refuse a config that could not run the parts of a step."""
    for name in ('train_cfg', 'train_dataloader', 'val_dataloader', 'optim_wrapper'):
        if not cfg.get(name):
            raise VitnasError(f'a space search trains supernets and compares architectures: the config lacks `{name}`')
    if cfg.get('load_from'):
        raise VitnasError(
            f'load_from is {cfg.load_from}, but every supernet of a space search is trained here; for weights from '
            f'one to the next give space_search.inherit=True'
        )
