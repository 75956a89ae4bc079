"""Measure how often the gradients of the largest and of smaller architectures oppose each other (NASViT, Table 4)."""

from __future__ import annotations

import contextlib
import copy
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_reduce, get_rank, is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from ...backbones import elastic_backbone, unwrap
from ...errors import VitnasError
from ...integration.runner import run_seed
from ...registry import HOOKS
from ...spaces import Arch
from ...utils import checks
from ...utils.fileio import atomic_write
from ...utils.randomness import seeded
from ..projection import layers_of
from ..rules import TrainingRule
from ..samplers import SandwichSampler

COLUMNS = ('iter', 'layer', 'cosine')
"""Columns of the CSV file, with one row per measurement and layer."""

_MOST_NAMED = 5


@HOOKS.register_module()
class ConflictMeterHook(Hook):
    """Measure the gradient conflict ratio: the fraction of layers in which two gradients oppose each other.

    One is the gradient of the largest architecture. The other is the sum over the smallest and two random ones, as in
    the paper. Both are taken on the next training batch with the losses of the training rule, distillation and teacher
    included, before any projection. A layer is a module with its own parameters; a layer without one of the gradients
    has no cosine. Several processes average gradients first. The hook works with every rule and family, and does not
    change the training by a bit.

    It logs the ratio as ``conflict_ratio``. ``conflicts.csv`` in the work dir holds the cosine of every layer, for
    ``tools/analysis/plot_conflicts.py``. A resumed training drops the rows of steps that it repeats.

    Args:
        interval: Number of iterations between two measurements; the first is before the first iteration. A measurement
            takes about as long as a step of ``vitnas.Sandwich``. Defaults to 100.

    Raises:
        VitnasError: ``interval`` is out of range. When the training starts: its loop has no rule.
    """

    priority = 'VERY_LOW'  # after hooks that change the batch or sort the weights
    filename = 'conflicts.csv'

    def __init__(self, interval: int = 100) -> None:
        self.interval, self.sampler = checks.whole('interval', interval), SandwichSampler()

    def before_train(self, runner: Runner) -> None:
        """Drop rows that will be measured again."""
        if not isinstance(getattr(runner.train_loop, 'rule', None), TrainingRule):
            raise VitnasError(
                'vitnas.ConflictMeterHook measures with the losses of a training rule: use '
                'train_cfg=dict(type="vitnas.SupernetTrainLoop", …)'
            )
        if is_main_process():
            path = self._path(runner)
            kept = [row for row in read_conflicts(path) if row[0] < runner.iter] if path.is_file() else []
            atomic_write(path, _text([COLUMNS, *kept]))

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Measure if it is due."""
        if runner.iter % self.interval:
            return
        cosines = self._measure(runner, data_batch)
        if cosines:
            ratio = sum(cosine < 0 for cosine in cosines.values()) / len(cosines)
            runner.message_hub.update_scalar('train/conflict_ratio', ratio)
        if is_main_process():
            with open(self._path(runner), 'a', newline='') as file:
                file.write(_text([(runner.iter, layer, f'{cosine:.6g}') for layer, cosine in cosines.items()]))

    def after_train(self, runner: Runner) -> None:
        """Log a summary of the whole training."""
        rows = read_conflicts(self._path(runner)) if is_main_process() else []
        if not rows:
            return
        seen, opposed = Counter(row[1] for row in rows), Counter(row[1] for row in rows if row[2] < 0)
        worst = sorted(opposed, key=lambda layer: -opposed[layer] / seen[layer])[:_MOST_NAMED]
        named = ', '.join(f'{layer} {opposed[layer] / seen[layer]:.0%}' for layer in worst)
        times = len({row[0] for row in rows})
        runner.logger.info(
            f'Conflicts: {opposed.total() / len(rows):.1%} of {len(seen)} layers in {times} measurements'
            + (f'; most in {named}' if named else '')
        )

    def _path(self, runner: Runner) -> Path:
        return Path(runner.work_dir) / self.filename

    def _measure(self, runner: Runner, batch: Any) -> dict[str, float]:
        """Return the cosine of each layer that has both gradients, in network order."""
        model, seed = unwrap(runner.model), run_seed(runner)
        rng, progress = np.random.default_rng([seed, runner.iter, 2]), runner.iter / runner.max_iters
        largest, *others = self.sampler.sample(elastic_backbone(model).space, rng, progress)
        layers = layers_of(model)
        parameters = [parameter for layer in layers.values() for parameter in layer]
        # The key of the step: the batch is augmented as it will be in training.
        with seeded(seed, runner.iter, get_rank(), 1), _untouched(model):
            gradient_of = _gradients(runner, model, batch, parameters)
            supernet = gradient_of(largest)
            subnets = torch.zeros_like(supernet)
            for arch in others:
                subnets += gradient_of(arch)
        for vector in (supernet, subnets):
            all_reduce(vector, 'mean')
        sizes = [sum(parameter.numel() for parameter in layer) for layer in layers.values()]
        pairs = zip(supernet.split(sizes), subnets.split(sizes))
        cosines = torch.stack([torch.dot(a, b) / (a.norm() * b.norm()) for a, b in pairs]).tolist()
        return {layer: cosine for layer, cosine in zip(layers, cosines) if np.isfinite(cosine)}


def _gradients(runner: Runner, model: Any, batch: Any, parameters: list[nn.Parameter]) -> Callable[[Arch], Tensor]:
    """Return a function from an architecture to its gradient as one vector, up to a factor.

    It leaves ``grad`` of parameters alone.
    """
    optim_wrapper = runner.optim_wrapper
    scaler = getattr(optim_wrapper, 'loss_scaler', None)
    scale = 1.0 if scaler is None else scaler.get_scale()
    with optim_wrapper.optim_context(model):
        data = model.data_preprocessor(copy.deepcopy(batch), True)  # it may write labels into the batch
    loss_of = runner.train_loop.rule.objective(model, data)

    def gradient_of(arch: Arch) -> Tensor:
        with optim_wrapper.optim_context(model):
            loss = loss_of(arch)
        found = torch.autograd.grad(loss * scale, parameters, allow_unused=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, found)])

    return gradient_of


@contextlib.contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Restore the active architecture and all buffers, e.g. running statistics, afterwards."""
    backbone, arch = elastic_backbone(model), elastic_backbone(model).arch
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        backbone.set_arch(arch)
        with torch.no_grad():
            for buffer, content in before:
                buffer.copy_(content)


def read_conflicts(path: Path) -> list[tuple[int, str, float]]:
    """Read ``conflicts.csv``: iteration, layer and cosine of each row. An incomplete last line is dropped.

    Raises:
        VitnasError: The file cannot be read or has other columns; the message names the line.
    """
    try:
        lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as err:
        raise VitnasError(f'{path} cannot be read as a table of conflicts: {err}') from None
    table = list(csv.reader(line for line in lines if line.endswith('\n')))
    if not table or tuple(table[0]) != COLUMNS:
        raise VitnasError(f'{path} should have the columns {", ".join(COLUMNS)}')
    rows = []
    for number, line in enumerate(table[1:], 2):
        try:
            step, layer, cosine = line
            rows.append((int(step), layer, float(cosine)))
        except ValueError:
            raise VitnasError(f'{path}:{number} should hold {", ".join(COLUMNS)}, but got {line}') from None
    return rows


def _text(rows: list[tuple]) -> str:
    text = io.StringIO(newline='')
    csv.writer(text, lineterminator='\n').writerows(rows)
    return text.getvalue()
