"""Test S3's space evolution on a known truth: ``python projects/studies/space_truth.py [--seeds 20]``.

The error of the paper's first space (S3, Sec. 4.1) is made up, so the right direction of every dimension is known. For
each seed the space evolves as in Alg. 1. The test passes if the last space has the lower mean error and no dimension
moved the wrong way. Two more tables follow, whatever the options. One shows how the floor of Eq. 8 moves dimensions
with little or no effect, the other how Eq. 7 works with raw choices instead of steps.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from vitnas_core import zoo  # before mm: it repairs imports
from vitnas_core.search.space_quality import ROUNDINGS, TOP, Sample, SpaceEvolution, SpaceStep
from vitnas_core.spaces import Arch, SearchSpace, StageDimension, stage_dimensions
from vitnas_core.utils.text import table

STEPS = dict(depth=1, embed_dim=64, num_heads=2, mlp_ratio=0.5, window_size=7)
"""γ of S3, Sec. 4.1; two heads are 64 of Q-K-V."""

CENTRES = dict(depth=3, embed_dim=256, num_heads=8, mlp_ratio=3.5, window_size=10.5)
"""Centres of the first space's choices; steps to an optimum count from here."""

Pulls = tuple[tuple[float, float], ...]
"""For each stage: (optimum in steps from the centre, strength in percent of error per step at the centre)."""

TRUTH: dict[str, Pulls] = dict(
    depth=((-3, 0.6), (4, 0.5), (8, 2.0), (-3, 1.0)),
    embed_dim=((-4, 1.2), (-4, 0.5), (5, 0.8), (6, 1.6)),
    num_heads=((-4, 2.0), (-4, 0.8), (4, 0.8), (5, 2.0)),
    mlp_ratio=((-7, 1.8), (-7, 0.6), (5, 0.9), (6, 2.4)),
    window_size=((-1.5, 1.8), (-1.5, 0.6), (3, 0.9), (3, 1.8)),
)
"""Made up after the paper's findings (Sec. 3): a deep third stage; widths, MLP ratios and windows that grow. A block's
choice counts as a mean over the stage, so one block has about a third of the strength. Strength over distance stays
below τ; beyond it, Eq. 8 steps over the optimum. Written before the first run and kept since."""

LEAST, NOISE, SAMPLES, ITERATIONS = 15.0, 1.0, 1000, 3
"""Error at all optima and standard deviation of a measured error, in percent; N and T of the paper."""

FRACTION, WEAK_STAGE, FACTORS = 0.95, 1, (0.0, 0.5, 1.0, 2.0, 4.0)
"""Fraction of seeds that must improve; the stage with weak effects, and their factors."""

FIRST = zoo.load_space('s3-initial')
DIMENSIONS = stage_dimensions(FIRST)
PAIRS = [(f'stages[{s}].embed_dim', f'stages[{s}].block.num_heads') for s in range(4)]
PAIRS += [(f'stages[{s}].depth', f'stages[{s + 1}].depth') for s in range(3)]
"""Dimensions that interact."""


@dataclass(frozen=True)
class Truth:
    """A made-up error: one parabola per dimension and stage, mild interactions, and noise of a supernet.

    Args:
        pulls: Optimum and strength of each dimension in each stage.
        noise: Standard deviation of the measurement noise, in percent. Defaults to 1.0.
        interaction: Largest error, in percent, if both dimensions of a pair grow. Defaults to 0.4.
    """

    pulls: Mapping[str, Pulls]
    noise: float = NOISE
    interaction: float = 0.4

    def pull(self, dimension: StageDimension) -> tuple[float, float]:
        """Return the optimum of a dimension, below 0 if it should go down, and its strength."""
        return self.pulls[dimension.name][dimension.stage or 0]

    def error(self, arch: Arch) -> float:
        """Compute the true error, in percent."""
        total, bent = LEAST, {}
        for dimension in DIMENSIONS:
            centre, step = CENTRES[dimension.name], STEPS[dimension.name]
            steps = [(float(value) - centre) / step for value in dimension.values(arch)]
            optimum, strength = self.pull(dimension)
            total += strength / abs(optimum) / 2 * sum([(x - optimum) ** 2 for x in steps]) / len(steps)
            bent[dimension.path] = math.tanh(sum(steps) / len(steps) / 2)
        total += self.interaction * sum(bent[one] * bent[other] for one, other in PAIRS)
        return min(max(total, 0.0), 100.0)

    def measure(self, arch: Arch, seed: int) -> float:
        """Measure the error with the supernet of a seed: always the same for an architecture."""
        rng = np.random.default_rng([seed, int(arch.digest(), 16)])
        return min(max(self.error(arch) + self.noise * float(rng.standard_normal()), 0.0), 100.0)

    def draw(self, space: SearchSpace, seed: int, rng: np.random.Generator, count: int) -> tuple[Sample, ...]:
        """Draw architectures of a space with their measured errors."""
        archs = [space.sample(rng) for _ in range(count)]
        return tuple(Sample(arch, self.measure(arch, seed)) for arch in archs)

    def scaled(self, factor: float) -> Truth:
        """Multiply the weak stage's effects by a factor and drop interactions."""
        pulls = {
            name: tuple((o, strength * (factor if s == WEAK_STAGE else 1)) for s, (o, strength) in enumerate(stages))
            for name, stages in self.pulls.items()
        }
        return Truth(pulls, self.noise, interaction=0.0)


@dataclass(frozen=True)
class Run:
    """One evolution of the first space: seed, steps, and true mean errors of the first and the last space."""

    seed: int
    steps: tuple[SpaceStep, ...]
    before: float
    after: float

    def moves(self, dimension: StageDimension) -> list[int]:
        """Return the steps that a dimension moved in each iteration."""
        return [t.steps for step in self.steps for t in step.tendencies if t.dimension.path == dimension.path]


def run(truth: Truth, rule: SpaceEvolution, seed: int, num_samples: int = SAMPLES) -> Run:
    """Evolve the first space as in Alg. 1; the mean errors are over separate draws, without noise."""
    rng, space, steps = np.random.default_rng(seed), FIRST, []
    for i in range(ITERATIONS + 1):
        samples = truth.draw(space, seed, rng, num_samples)
        found = rule.tendencies(space, samples) if i < ITERATIONS else ()
        steps.append(SpaceStep(space, samples, found, rule.top))
        space = rule.evolve(space, steps[-1].tendencies)
    ends = (steps[0].space, steps[-1].space)
    before, after = (fmean(truth.error(end.sample(rng)) for _ in range(num_samples)) for end in ends)
    return Run(seed, tuple(steps), before, after)


@dataclass(frozen=True)
class Counts:
    """Numbers of moves the right way, not at all, and the wrong way."""

    right: int
    still: int
    wrong: int

    @classmethod
    def of(cls, moves: Iterable[tuple[float, int]]) -> Counts:
        """Count pairs of right direction and steps made."""
        signs = [int(np.sign(direction) * np.sign(steps)) for direction, steps in moves]
        return cls(signs.count(1), signs.count(0), signs.count(-1))

    def __str__(self) -> str:
        return f'{self.right}/{self.still}/{self.wrong}'


@dataclass(frozen=True)
class Summary:
    """Results of several seeds on one truth."""

    truth: Truth
    runs: Sequence[Run]

    @property
    def better(self) -> int:
        """Number of runs that lowered the mean error."""
        return sum(r.after < r.before for r in self.runs)

    def total(self, dimensions: Sequence[StageDimension] = DIMENSIONS, runs: Sequence[Run] = ()) -> Counts:
        """Count moves of dimensions from the first space to the last; over all runs by default."""
        return Counts.of((self.truth.pull(d)[0], sum(r.moves(d))) for r in runs or self.runs for d in dimensions)

    def single(self, dimensions: Sequence[StageDimension] = DIMENSIONS) -> Counts:
        """Count single iterations: towards the optimum from the current place, or away from it."""
        pairs: list[tuple[float, int]] = []
        for moves, (optimum, _) in ((r.moves(d), self.truth.pull(d)) for r in self.runs for d in dimensions):
            ahead = [optimum - sum(moves[:i]) for i in range(len(moves))]
            pairs += [(left or -steps, steps) for left, steps in zip(ahead, moves)]
        return Counts.of(pairs)

    @property
    def holds(self) -> bool:
        """True if the test passes."""
        return self.better >= FRACTION * len(self.runs) and self.total().wrong == 0


def summarize(truth: Truth, rule: SpaceEvolution, seeds: Iterable[int], num_samples: int = SAMPLES) -> Summary:
    """Run several seeds."""
    return Summary(truth, [run(truth, rule, seed, num_samples) for seed in seeds])


def weak_moves(truth: Truth, seeds: Sequence[int], num_samples: int = SAMPLES) -> tuple[list[float], dict[str, Counts]]:
    """Move the weak stage's dimensions that should go down, or would if they had an effect, for one iteration.

    Returns:
        Slopes in units of their standard deviation over seeds, and the moves for each rounding.
    """
    drawn = [truth.draw(FIRST, seed, np.random.default_rng(seed), num_samples) for seed in seeds]
    downs = [i for i, d in enumerate(DIMENSIONS) if d.stage == WEAK_STAGE and truth.pull(d)[0] < 0]
    moves = {}
    for rounding in ROUNDINGS:
        found = [SpaceEvolution(STEPS, rounding=rounding).tendencies(FIRST, samples) for samples in drawn]
        moves[rounding] = Counts.of((-1, tendencies[i].steps) for tendencies in found for i in downs)
    slopes = [[tendencies[i].slope for tendencies in found] for i in downs]
    return [fmean(own) / stdev(own) for own in slopes], moves


def report(summary: Summary) -> None:
    """Print seeds, dimensions and the result of the test."""
    rows = []
    for r in summary.runs:
        errors = ' '.join(f'{step.quality.et_error:.2f}' for step in r.steps)
        rows.append([str(r.seed), f'{r.before:.2f}', f'{r.after:.2f}', errors, str(summary.total(runs=[r]))])
    print(table(['seed', 'mean error, first', 'last', 'E-T errors', 'dimensions right/still/wrong'], rows), end='\n\n')
    rows = []
    for i, d in enumerate(DIMENSIONS):
        slopes, (optimum, strength) = [r.steps[0].tendencies[i].slope for r in summary.runs], summary.truth.pull(d)
        pull = [f'{optimum:+g}', f'{strength:g}', f'{fmean(slopes):+.2f} ± {stdev(slopes):.2f}']
        rows.append([d.path, *pull, str(summary.total([d])), str(summary.single([d]))])
    print(table(['dimension', 'optimum', 'strength', 'first slope', 'seeds r/s/w', 'single steps r/s/w'], rows))
    print(f'\nThe last space is better in {summary.better} of {len(summary.runs)} seeds.')
    print(f'Dimensions from the first space to the last: {summary.total()} right/still/wrong')
    print(f'Dimensions in single steps: {summary.single()} towards the optimum/still/away')
    print(f'The test {"passes" if summary.holds else "fails"}.')


def report_weak(truth: Truth, seeds: Sequence[int]) -> None:
    """Print how dimensions with no or little effect move."""
    rows = []
    for factor in FACTORS:
        ratios, moves = weak_moves(truth.scaled(factor), seeds)
        rows.append([f'{factor:g}', f'{min(ratios):.1f} to {max(ratios):.1f}', *map(str, moves.values())])
    print(f'\nDimensions of stage {WEAK_STAGE + 1} that should go down, one iteration: down/still/up')
    print(table(['strength times (0: flat)', 'slope / its deviation', *ROUNDINGS], rows))


def report_choice(truth: Truth, seeds: Sequence[int]) -> None:
    """Print the moves if the line of Eq. 7 is fitted over raw choices."""
    summary = summarize(truth, SpaceEvolution(STEPS, unit='choice'), seeds)
    print(f"\nunit='choice': better in {summary.better} of {len(seeds)} seeds, {summary.total()} right/still/wrong")
    for name in STEPS:
        downs = [d for d in DIMENSIONS if d.name == name and truth.pull(d)[0] < 0]
        ever = sum(min(r.moves(d)) < 0 for r in summary.runs for d in downs)
        print(f'{name}: {ever} of {len(downs) * len(seeds)} that should go down do in a step, {summary.total(downs)}')


def main(args: list[str] | None = None) -> bool:
    """Run and print.

    Returns:
        Whether the test passes.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=20, help='number of seeds; defaults to 20')
    parser.add_argument('--rounding', choices=list(ROUNDINGS), default='floor')
    parser.add_argument('--unit', choices=['step', 'choice'], default='step')
    parser.add_argument('--samples', type=int, default=SAMPLES, help='N: architectures drawn from each space')
    parser.add_argument('--top', type=float, default=TOP, help='top tier of SpaceEvolution: a number or a fraction')
    parser.add_argument('--noise', type=float, default=NOISE, help='noise of a measured error, in percent')
    options = parser.parse_args(args)
    if options.seeds < 2:
        parser.error(f'`--seeds` should be at least 2, for a deviation over seeds, but got {options.seeds}')
    start, truth, seeds = time.perf_counter(), Truth(TRUTH, options.noise), range(options.seeds)
    rule = SpaceEvolution(STEPS, rounding=options.rounding, unit=options.unit, top=options.top)
    summary = summarize(truth, rule, seeds, num_samples=options.samples)
    report(summary)
    report_weak(truth, seeds)
    report_choice(truth, seeds)
    print(f'\n{time.perf_counter() - start:.0f} s')
    return summary.holds


if __name__ == '__main__':
    sys.exit(not main())
