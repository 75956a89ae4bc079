"""``ForestPredictor``: predicts scores of architectures from those already evaluated (NASViT, App. C.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..spaces import Arch, SearchSpace
from ..utils import checks
from .candidate import Candidate, ranked

LEAST = 4
"""Least number of candidates to fit a predictor: two per half, or there is nothing to rank."""


@dataclass(frozen=True)
class PredictorValidation:
    """Quality of a predictor on candidates that it was not trained on.

    Args:
        r2: Coefficient of determination R² of the predictions: 1 if they are exact, 0 if the mean would do as well,
            negative if the mean would do better.
        kendall: Kendall's τ of predicted and measured scores: 1 for the same order, -1 for the reverse order, 0 also if
            all predicted or all measured scores are equal.
        num_train: Number of training candidates.
        num_validation: Number of other candidates.
    """

    r2: float
    kendall: float
    num_train: int
    num_validation: int

    @classmethod
    def of(cls, predicted: Sequence[float], measured: Sequence[float], num_train: int) -> PredictorValidation:
        """Compare predictions with measured scores."""
        from scipy.stats import kendalltau
        from sklearn.metrics import r2_score

        constant = len(set(predicted)) == 1 or len(set(measured)) == 1
        tau = 0.0 if constant else float(kendalltau(predicted, measured).statistic)
        return cls(float(r2_score(measured, predicted)), tau, num_train, len(measured))

    def __str__(self) -> str:
        return f'R² {self.r2:.3f}, Kendall τ {self.kendall:.3f} on {self.num_validation:,} held-out candidates'


class ForestPredictor:
    """A random forest from the encoding of an architecture to its score.

    The input is the encoding of :meth:`~vitnas_core.spaces.SearchSpace.encode`, with -1 for the choices of absent
    blocks. Equal candidates and seeds give equal predictions, bit for bit.

    Args:
        space: The space of the architectures.
        trees: Trees of the forest. Defaults to 100.
        seed: Seed of the halves and of the forest. Defaults to 0.

    Raises:
        VitnasError: ``trees`` is not a whole number of at least 1.
    """

    def __init__(self, space: SearchSpace, trees: int = 100, seed: int = 0) -> None:
        checks.whole('trees', trees)
        self.space, self.trees, self.seed = space, trees, seed
        self.held_out: tuple[Candidate, ...] = ()
        self._forest: Any = None

    def fit(self, candidates: Iterable[Candidate]) -> PredictorValidation:
        """Train on one half of the candidates and validate on the other (NASViT, Alg. 2, step 3).

        Only complete candidates on all hold-out images are used (:func:`ranked`). As in the paper, the forest is not
        fitted again to all of them, so that the validation is that of the forest that predicts. The other half is kept
        as ``held_out``.

        Args:
            candidates: Any candidates; their order does not matter.

        Raises:
            VitnasError: Fewer than four candidates can be used.
        """
        from sklearn.ensemble import RandomForestRegressor

        whole = sorted(ranked(candidates), key=lambda candidate: candidate.id)
        if len(whole) < LEAST:
            raise VitnasError(
                f'a predictor needs at least {LEAST} candidates with a score on all images, half to learn from and '
                f'half to be judged by, but got {len(whole)}; evaluate more, or widen the limits'
            )
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(whole))
        train = [whole[i] for i in order[: -(-len(whole) // 2)]]
        self.held_out = tuple(whole[i] for i in order[len(train) :])
        forest = RandomForestRegressor(self.trees, random_state=int(rng.integers(2**32)), n_jobs=1)
        self._forest = forest.fit(self._encode([c.arch for c in train]), [c.score for c in train])
        predicted = self.predict([c.arch for c in self.held_out])
        return PredictorValidation.of(predicted.tolist(), [c.score for c in self.held_out], len(train))

    def predict(self, archs: Sequence[Arch]) -> np.ndarray:
        """Predict scores.

        Returns:
            float64 of shape (len(archs),).

        Raises:
            VitnasError: The predictor is not fitted yet.
            ArchError: An architecture is not in the space.
        """
        if self._forest is None:
            raise VitnasError('a predictor should be fitted to candidates before it predicts')
        return self._forest.predict(self._encode(archs)) if len(archs) else np.empty(0)

    def _encode(self, archs: Sequence[Arch]) -> np.ndarray:
        return np.stack([self.space.encode(arch) for arch in archs])


@dataclass(frozen=True)
class Screening:
    """Use of a predictor between the generations of a search: make more children than wanted, and keep the best.

    Args:
        trees: Trees of the forest. Defaults to 100.
        oversample: Factor of the number of children. Defaults to 4.

    Raises:
        VitnasError: A number is out of range.
    """

    trees: int = 100
    oversample: int = 4

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Screening:
        """Read a config.

        Raises:
            VitnasError: The config has another key, or a number is out of range.
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(settings, Mapping) or set(settings) - set(known):
            raise VitnasError(f'`predictor` of the search should be a dict of {", ".join(known)}, but got {settings!r}')
        return cls(**settings)

    def __post_init__(self) -> None:
        checks.whole('trees', self.trees)
        checks.whole('oversample', self.oversample, 2)
