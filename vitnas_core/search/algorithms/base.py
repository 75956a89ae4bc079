"""``SearchAlgorithm``: base class of searches, which propose architectures and learn their scores round by round."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import VitnasError
from ...spaces import Arch
from ..candidate import Candidate
from ..feasible import FeasibleSpace


@dataclass(frozen=True)
class Proposal:
    """An architecture to score.

    Args:
        arch: The architecture.
        parents: Ids of the candidates that it was made from.
        fraction: Fraction of the hold-out batches to score it on. Defaults to 1.
    """

    arch: Arch
    parents: tuple[int, ...] = ()
    fraction: float = 1.0


def _ignore(text: str, warn: bool = False) -> None:
    pass


class SearchAlgorithm(ABC):
    """A search of a space, round by round. A subclass is a dataclass whose fields are its settings.

    A round depends only on the seed, its number and what the algorithm was told before. So a killed search is replayed
    from the scores in its journal, and no algorithm saves anything. Subclasses check their settings in
    ``__post_init__``, and those that depend on the space in :meth:`setup`. A round is filtered: architectures outside
    the limits are dropped, and so are those already scored on as many images.

    Attributes:
        space (FeasibleSpace): The space and its limits.
        history (list[Candidate]): All candidates that the algorithm was told about, by id.
        round (int): Number of the next round, from 0.
        say: Writes a sentence to the log of the run; ``say(text, warn=True)`` warns.
    """

    extendable: ClassVar[tuple[str, ...]] = ()
    """Fields that only set the length of the search; a finished search continues with larger ones."""

    journal_name: ClassVar[str] = ''
    """Name in journals, if it is not that of the class."""

    say: Callable[..., None] = staticmethod(_ignore)
    space: FeasibleSpace
    history: list[Candidate]
    round: int

    def setup(self, space: FeasibleSpace) -> None:
        """Start a search of a space, with an empty history.

        Raises:
            VitnasError: A setting does not fit the space.
        """
        self.space, self.history, self.round = space, [], 0

    @property
    @abstractmethod
    def max_rounds(self) -> int:
        """Largest number of rounds."""

    @property
    @abstractmethod
    def max_candidates(self) -> int:
        """Largest number of candidates of all rounds together."""

    @abstractmethod
    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Propose a round; an empty one ends the search.

        Args:
            rng: Source of all randomness; it depends on the seed and the round.
        """

    def tell(self, candidates: Sequence[Candidate]) -> None:
        """Take note of the scores of a whole round, in the order of ids."""
        self.history += candidates
        self.round += 1

    def floor(self) -> float | None:
        """Score that a candidate of the next round must be able to reach; None for any. Racing needs it."""
        return None

    # for the journal, the log and the report

    @classmethod
    def name(cls) -> str:
        """Name in journals."""
        return cls.journal_name or cls.__name__

    def settings(self) -> dict[str, Any]:
        """Everything that decides the proposals; a journal with other settings is not continued."""
        names = [field.name for field in self.fields()]
        return {name: getattr(self, name) for name in names if name not in self.extendable}

    @classmethod
    def fields(cls) -> tuple[dataclasses.Field, ...]:
        """Settings of the algorithm, as fields of its dataclass.

        Raises:
            VitnasError: The class is not a dataclass.
        """
        if not dataclasses.is_dataclass(cls):
            raise VitnasError(f'{cls.__name__} should be a dataclass whose fields are its settings: add @dataclass')
        return dataclasses.fields(cls)

    def remarks(self) -> dict[str, str]:
        """Further lines of the log and the report, name → text."""
        return {}

    @property
    def front_cost(self) -> str:
        """Cost of the Pareto front that is written and drawn."""
        return 'macs'

    def texts(self) -> dict[str, str]:
        """Further files of the results so far, name → content."""
        return {}

    def figures(self, metric: str) -> dict[str, Any]:
        """Further pictures of a finished search, name → matplotlib figure.

        Args:
            metric: Name of the score.
        """
        return {}

    # for algorithms that learned with the supernet

    def priced_for(self) -> dict[str, Any]:
        """``input_size`` and ``num_classes`` stated by the algorithm, None for those of the config; empty for any."""
        return {}

    def load(self, checkpoint: str | os.PathLike) -> None:  # noqa: B027  (most have nothing to load)
        """Load the algorithm's part of the supernet's checkpoint.

        Raises:
            CheckpointError: The checkpoint holds something else.
        """
