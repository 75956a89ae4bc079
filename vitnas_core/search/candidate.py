"""``Candidate``: one evaluated architecture, a line of ``history.jsonl``; and the ranking of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import VitnasError
from ..spaces import Arch


@dataclass(frozen=True)
class Candidate:
    """An architecture, its cost and its score.

    Args:
        id: Number in the search; the same however often the search was stopped.
        generation: Generation in which it was proposed.
        arch: The architecture.
        cost: ``macs``, ``params`` and, with a latency table, ``latency`` in seconds.
        score: The metric on the hold-out images, greater is better; minus infinity (null in the file) if there is none.
        parents: Ids of the candidates that it was made from.
        seconds: Time of its evaluation.
        fraction: Fraction of the hold-out batches to score it on; ``share`` in a journal. Defaults to 1.
        complete: False if racing dropped it (its score is then that of the images it saw) or it has no score.
    """

    id: int
    generation: int
    arch: Arch
    cost: dict[str, float]
    score: float
    parents: tuple[int, ...] = ()
    seconds: float = 0.0
    fraction: float = 1.0
    complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Convert to the JSON form."""
        return {
            'id': self.id,
            'generation': self.generation,
            'arch': self.arch.to_dict(),
            'cost': self.cost,
            'score': self.score if math.isfinite(self.score) else None,
            'parents': list(self.parents),
            'seconds': self.seconds,
            'share': self.fraction,
            'complete': self.complete,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Candidate:
        """Read the JSON form.

        Raises:
            VitnasError: An entry is missing or of the wrong kind.
        """
        try:
            return cls(
                id=int(data['id']),
                generation=int(data['generation']),
                arch=Arch.from_dict(data['arch']),
                cost=dict(data['cost']),
                score=-math.inf if data['score'] is None else float(data['score']),
                parents=tuple(int(parent) for parent in data['parents']),
                seconds=float(data['seconds']),
                fraction=float(data['share']),
                complete=bool(data['complete']),
            )
        except (KeyError, TypeError, ValueError) as err:
            what = f'has no {err}' if isinstance(err, KeyError) else str(err)
            raise VitnasError(f'a candidate is malformed: {what}') from None


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the complete candidates on all hold-out images, best first; ties go to the cheaper, then the older."""
    whole = [candidate for candidate in candidates if candidate.complete and candidate.fraction == 1.0]
    return sorted(whole, key=lambda candidate: (-candidate.score, candidate.cost['macs'], candidate.id))
