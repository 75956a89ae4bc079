"""Truth to compare supernets with: architectures of a space, each trained alone by one recipe."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from vitnas_core.costs import Cost
from vitnas_core.errors import VitnasError
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.fileio import atomic_write

from .plan import StudyError

_POOL = 200
"""Number of architectures drawn per chosen one."""


@dataclass(frozen=True)
class TrueArch:
    """An architecture and its scores when trained alone.

    Args:
        arch: The architecture.
        macs: Its multiply-accumulates.
        params: Its parameters.
        scores: Seed of the training → score.
    """

    arch: Arch
    macs: int
    params: int
    scores: Mapping[int, float]

    @property
    def score(self) -> float:
        """Mean over the seeds."""
        return mean(self.scores.values())


@dataclass(frozen=True)
class Truth:
    """Architectures trained alone.

    Args:
        recipe: Digest of the training config without the architecture.
        measure: Name of the measure, e.g. ``'accuracy/top1'``.
        archs: The architectures, cheapest first.
    """

    recipe: str
    measure: str
    archs: tuple[TrueArch, ...]

    @property
    def scores(self) -> list[float]:
        """The score of each architecture."""
        return [entry.score for entry in self.archs]

    def save(self, path: Path) -> None:
        """Write the file."""
        archs = [
            {
                'arch': e.arch.to_dict(),
                'macs': e.macs,
                'params': e.params,
                'scores': {str(k): v for k, v in e.scores.items()},
            }
            for e in self.archs
        ]
        lines = ',\n  '.join(json.dumps(entry) for entry in archs)
        head = json.dumps({'recipe': self.recipe, 'measure': self.measure})[1:-1]
        atomic_write(path, f'{{{head}, "archs": [\n  {lines}\n]}}\n')

    @classmethod
    def from_file(cls, path: Path) -> Truth:
        """Read the file.

        Raises:
            StudyError: The file is missing or malformed.
        """
        try:
            data = json.loads(path.read_text())
            archs = tuple(
                TrueArch(Arch.from_dict(e['arch']), int(e['macs']), int(e['params']), _read_scores(e['scores']))
                for e in data['archs']
            )
            return cls(str(data['recipe']), str(data['measure']), archs)
        except FileNotFoundError:
            raise StudyError(f'there is no truth file {path}') from None
        except (KeyError, TypeError, AttributeError, ValueError) as err:  # VitnasError is a ValueError
            what = str(err) if isinstance(err, VitnasError) else f'{type(err).__name__}: {err}'
            raise StudyError(f'{path} is not a truth file that projects/studies/truth.py wrote ({what})') from None


def _read_scores(data: Mapping[str, Any]) -> dict[int, float]:
    scores = {int(seed): float(score) for seed, score in data.items()}
    if not scores or not all(math.isfinite(score) for score in scores.values()):
        raise StudyError(f'scores should be finite numbers by seed, but got {dict(data)}')
    return scores


def choose_archs(space: SearchSpace, price: Callable[[Arch], Cost], num: int, rng: np.random.Generator) -> list[Arch]:
    """Choose architectures spread over the range of costs, including the smallest and the largest.

    The logarithms of their MACs are spread evenly, as far as drawn architectures allow. Uniform draws alone would have
    nearly one size.

    Args:
        space: The search space.
        price: Function that prices an architecture.
        num: Number of architectures.
        rng: Generator of the draws.

    Returns:
        Different architectures, cheapest first.

    Raises:
        StudyError: ``num`` is below two, or exceeds the size of the space.
    """
    if not 2 <= num <= space.size():
        raise StudyError(f'num should be from 2 to {space.size()}, the size of the space, but got {num}')
    ends = [space.smallest(), space.largest()]
    few = space.size() <= _POOL * num
    drawn = space.iterate() if few else (space.sample(rng) for _ in range(_POOL * num))
    pool = {arch: math.log(price(arch).macs) for arch in drawn if arch not in ends}
    chosen = []
    low, high = (math.log(price(arch).macs) for arch in ends)
    for target in np.linspace(low, high, num)[1:-1]:
        nearest = min(pool, key=lambda arch: abs(pool[arch] - target))
        chosen.append(nearest)
        del pool[nearest]
    return sorted([*ends, *chosen], key=lambda arch: price(arch).macs)
