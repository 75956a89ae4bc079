"""``Candidate``: one evaluated architecture, a line of ``history.jsonl``; and how candidates are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import VitnasError
from ..spaces import Arch


@dataclass(frozen=True)
class Candidate:
    """An architecture, what it costs and how it scored.

    Args:
        id: Its number in the search; the same however often the search was stopped.
        generation: In which generation it was proposed.
        arch: The architecture.
        cost: ``macs``, ``params`` and, where a table gives it, ``latency`` in seconds.
        score: The metric on the hold-out images, greater is better; minus infinity (null in the file) if there is none.
        parents: The ids of the candidates that it was made of.
        seconds: How long its evaluation took.
        fraction: Fraction of the hold-out batches to score it on; ``share`` in a journal. Defaults to 1.
        complete: False where racing dropped it (its score is then that of the images it saw) or it has no score.
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
        """The JSON form."""
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
            VitnasError: Something is missing or of the wrong kind.
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
    """Those that compete, best first: complete, on all hold-out images; ties to the cheaper, then the older."""
    whole = [candidate for candidate in candidates if candidate.complete and candidate.fraction == 1.0]
    return sorted(whole, key=lambda candidate: (-candidate.score, candidate.cost['macs'], candidate.id))
