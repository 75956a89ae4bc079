"""REINFORCE on an architecture sampler, with rewards from a supernet (FocusFormer, Eq. 6 to 8 and Alg. 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_reduce
from mmengine.registry import OPTIMIZERS
from mmengine.runner import Runner
from torch import Tensor

from ..backbones import unwrap
from ..datasets.checks import check_not_test_set
from ..errors import VitnasError
from ..evaluation import BatchScorer, elastic_norms
from ..integration.runner import run_seed, test_dataloader
from ..spaces import Arch
from ..utils import checks
from .dataloading import SeededLoader
from .samplers import ArchSampler, FocusSampler

_KEY = 2
"""Last word of the random key of an iteration; steps of the supernet have 1, samples 0."""


class Reinforce:
    """Ascend E[R ∇ log π(α)], the gradient of the expected reward (Eq. 8).

    The reward of an architecture α drawn for a budget B is R = accuracy − β |B / C(α) − 1| (Eq. 7).

    Args:
        sampler: The sampler to train, bound to its space.
        optimizer: Config of the optimizer.
        beta: Weight β of the missed budget. Defaults to 0.07, as in the paper.
        num_archs: Number of architectures per iteration, each with its own budget. Defaults to 1, as in the paper.
        baseline: Decay of a moving average of rewards, one per budget of the grid. It is subtracted from a reward: the
            same expected gradient with less noise. Defaults to None: no baseline, as in the paper.
        entropy: Weight of the entropy of π in the objective. Defaults to 0, as in the paper.

    Raises:
        VitnasError: A number is out of range.
    """

    def __init__(
        self,
        sampler: FocusSampler,
        optimizer: Mapping[str, Any],
        beta: float = 0.07,
        num_archs: int = 1,
        baseline: float | None = None,
        entropy: float = 0.0,
    ) -> None:
        checks.least('beta', beta)
        checks.least('entropy', entropy)
        checks.whole('num_archs', num_archs)
        if baseline is not None and not 0 <= baseline < 1:
            raise VitnasError(f'`baseline` should be a decay from 0 to less than 1, or None, but got {baseline!r}')
        self.sampler, self.beta, self.num_archs = sampler, beta, num_archs
        self.decay, self.entropy = baseline, entropy
        self.optimizer = OPTIMIZERS.build({**optimizer, 'params': list(sampler.policy.parameters())})
        self.averages = torch.zeros(len(sampler.grid), dtype=torch.float64)
        self.drawn = torch.zeros(len(sampler.grid), dtype=torch.bool)

    def step(self, rng: np.random.Generator, accuracy: Callable[[Arch], float]) -> dict[str, float]:
        """Run one iteration: draw budgets and architectures, reward them, update θ.

        Args:
            rng: Random generator.
            accuracy: Gives the accuracy of an architecture, from 0 to 1.

        Returns:
            Means over the architectures: ``reward``, ``accuracy``, ``miss`` (|B / C − 1|) and ``entropy``.
        """
        budgets = self.sampler.draw_budgets(self.num_archs, rng)
        drawn = self.sampler.draw(budgets, rng)
        misses = [abs(b / self.sampler.price(arch).macs - 1) for b, arch in zip(budgets, drawn.archs)]
        accuracies = [accuracy(arch) for arch in drawn.archs]
        rewards = torch.tensor([a - self.beta * miss for a, miss in zip(accuracies, misses)], dtype=torch.float64)
        # The entropy of the path to an architecture counts, too, under the same baseline.
        advantages = self._advantages(budgets, rewards + self.entropy * drawn.entropies.detach())
        loss = self.loss(advantages, drawn.log_probs, drawn.entropies)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {
            'reward': rewards.mean().item(),
            'accuracy': float(np.mean(accuracies)),
            'miss': float(np.mean(misses)),
            'entropy': drawn.entropies.mean().item(),
        }

    def loss(self, advantages: Tensor, log_probs: Tensor, entropies: Tensor) -> Tensor:
        """Return the loss; its gradient is −E[R ∇ log π] of the draws minus that of the entropy bonus."""
        return -(advantages * log_probs + self.entropy * entropies).mean()

    def _advantages(self, budgets: list[float], rewards: Tensor) -> Tensor:
        """Return rewards minus the previous averages of their budgets, then update the averages."""
        if self.decay is None:
            return rewards
        places = torch.tensor([self.sampler.grid_index(budget) for budget in budgets])
        before = torch.where(self.drawn[places], self.averages[places], rewards)
        for place, reward in zip(places.tolist(), rewards):
            decay = self.decay if self.drawn[place] else 0.0
            self.averages[place] = decay * self.averages[place] + (1 - decay) * reward
            self.drawn[place] = True
        return rewards - before

    def state_dict(self) -> dict[str, Any]:
        """Return the state of optimizer and averages; θ belongs to the sampler."""
        averages = {'averages': self.averages.clone(), 'drawn': self.drawn.clone()}
        return {'optimizer': self.optimizer.state_dict(), **averages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        self.optimizer.load_state_dict(state['optimizer'])
        self.averages, self.drawn = state['averages'].to(self.averages), state['drawn'].to(self.drawn)


class SamplerTraining:
    """Algorithm 2 on a supernet: rewards use the accuracy of inherited weights on a mini-batch.

    The mini-batch of an iteration, its budgets and its architectures depend only on the seed and the iteration. Ranks
    split the images of a mini-batch and draw the same architectures.

    Args:
        runner: The runner.
        sampler: The sampler to train.
        dataloader: Config of the images for rewards, the hold-out part of the training set.
        evaluator: Config of the metric.
        metric: Name of the value that counts, greater is better. Defaults to None: the first.
        scale: Factor that maps the metric to 0 to 1. Defaults to 0.01: mm's accuracies are percentages.
        **settings: Arguments of :class:`Reinforce`.

    Attributes:
        iterations (int): Number of finished iterations.
        last (int): Epoch or iteration of the supernet before which the sampler was last trained; -1 for none.

    Raises:
        VitnasError: The sampler cannot be trained, the images are the test set, or a setting is out of range.
    """

    def __init__(
        self,
        runner: Runner,
        sampler: ArchSampler | None,
        dataloader: Mapping[str, Any],
        evaluator: Any,
        metric: str | None = None,
        scale: float = 0.01,
        **settings: Any,
    ) -> None:
        if not isinstance(sampler, FocusSampler):
            raise VitnasError(
                f'only a sampler that learns can be trained, but the loop has {type(sampler).__name__}; give it '
                f'sampler=dict(type="vitnas.FocusSampler", …)'
            )
        if sampler.training is not None:
            raise VitnasError('the sampler is trained twice: take vitnas.SamplerTrainHook out of custom_hooks')
        check_not_test_set(dataloader, test_dataloader(runner), "the sampler's training")
        self.runner, self.reinforce = runner, Reinforce(sampler, **settings)
        self.scale = checks.number('scale', scale)
        self.iterations, self.last = 0, -1
        sampler.training = self
        self._model = unwrap(runner.model)
        # Shuffled, whatever the config says: a hold-out set is often sorted by class. Workers end with a training.
        data = {name: value for name, value in dataloader.items() if name not in ('sampler', 'batch_sampler')}
        data.update(sampler=dict(type='DefaultSampler', shuffle=True), persistent_workers=False, drop_last=True)
        built = Runner.build_dataloader(data, seed=run_seed(runner))
        if not len(built):  # fewer images than a batch
            built = Runner.build_dataloader({**data, 'drop_last': False}, seed=run_seed(runner))
        self.dataloader = SeededLoader(built)
        self._scorer = BatchScorer(self._model, runner.build_evaluator(evaluator), built.dataset, metric)
        self._recalibrates = bool(elastic_norms(self._model))  # each architecture is scored with its own statistics

    def check(self) -> None:
        """Score the active architecture once: a wrong metric should not show up after many epochs."""
        self.accuracy(self._scorer.backbone.arch, self._scorer.keep(next(self._read())))

    @torch.no_grad()
    def accuracy(self, arch: Arch, batch: Any) -> float:
        """Return the metric of an architecture on one mini-batch, from 0 to 1, averaged over ranks."""
        training = self._model.training
        value = self._scorer.score_batch(arch, batch, self._recalibrates)
        self._model.train(training)
        found = torch.tensor(value * self.scale if math.isfinite(value) else 0.0, dtype=torch.float64)
        all_reduce(found, 'mean')
        return found.item()

    def run(self, iterations: int) -> Iterator[dict[str, float]]:
        """Train for a number of iterations; yield the measurements of each."""
        for loaded in islice(self._read(), iterations):
            rng = np.random.default_rng([run_seed(self.runner), self.iterations, 0, _KEY])
            measured = self.reinforce.step(rng, partial(self.accuracy, batch=self._scorer.keep(loaded)))
            self.iterations += 1
            yield measured

    def _read(self) -> Iterator[Any]:
        """Yield mini-batches from the next iteration on, in endless passes over the images."""
        number, length = self.iterations, len(self.dataloader)
        while True:
            self.dataloader.batches.start(run_seed(self.runner), number // length, number % length)
            for batch in self.dataloader:
                number += 1
                yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state of optimizer, averages and progress."""
        return {**self.reinforce.state_dict(), 'iterations': self.iterations, 'last': self.last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        self.reinforce.load_state_dict(state)
        self.iterations, self.last = int(state['iterations']), int(state['last'])
