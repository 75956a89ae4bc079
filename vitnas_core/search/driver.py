"""The driver of every search: ask the algorithm, have the round scored, write the journal, tell the algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from ..costs import Cost
from ..errors import VitnasError
from ..evaluation import Job, Result
from ..spaces import Arch
from ..workers import Failure, Workers
from .algorithms import Proposal, SearchAlgorithm
from .candidate import Candidate
from .journal import Journal


def search(
    algorithm: SearchAlgorithm,
    workers: Workers,
    journal: Journal,
    price: Callable[[Arch], Cost],
    seed: int,
    scored: Callable[[Candidate], None] = lambda candidate: None,
) -> Iterator[list[Candidate]]:
    """Search round by round. The result depends only on the algorithm and the seed, whoever scores.

    A killed search is replayed: candidates in the journal are not scored again.

    Args:
        algorithm: Proposes candidates; set up for its space.
        workers: Score candidates; started with a function from :class:`Job` to :class:`Result`.
        journal: Takes each candidate at once.
        price: Gives the cost of an architecture.
        seed: Seed of the search.
        scored: Called with each candidate that this process scored. Defaults to nothing.

    Yields:
        The candidates of a round, by id, after the algorithm was told.

    Raises:
        VitnasError: The journal is of another search, or a candidate cannot be scored.
    """
    known, seen, first = journal.open(), set[tuple[Arch, float]](), 0
    for generation in range(algorithm.max_rounds):
        proposals = dict(enumerate(_fresh(algorithm, np.random.default_rng([seed, generation]), seen), first))
        if not proposals:
            return
        found = {number: _checked(known[number], one, journal) for number, one in proposals.items() if number in known}
        missing, floor = [number for number in proposals if number not in found], algorithm.floor()
        fresh: dict[int, Candidate] = {}
        jobs = [Job(proposals[number].arch, proposals[number].fraction, floor) for number in missing]
        for index, result in workers.map_unordered(jobs):
            number = missing[index]
            fresh[number] = _candidate(number, generation, proposals[number], result, price)
            journal.append(fresh[number])
            scored(fresh[number])
        found |= workers.gather(fresh)
        candidates = [found[number] for number in proposals]
        journal.end_round(candidates)
        algorithm.tell(candidates)
        first += len(candidates)
        yield candidates


def _fresh(algorithm: SearchAlgorithm, rng: np.random.Generator, seen: set[tuple[Arch, float]]) -> Iterator[Proposal]:
    """Yield the next round without architectures outside the limits, or already seen on as many images."""
    for proposal in algorithm.ask(rng):
        key = (proposal.arch, proposal.fraction)
        if key not in seen and proposal.arch in algorithm.space:
            seen.add(key)
            yield proposal


def _checked(candidate: Candidate, proposal: Proposal, journal: Journal) -> Candidate:
    """Return a candidate of the journal if it is what the algorithm proposes; refuse it otherwise."""
    if (candidate.arch, candidate.fraction) != (proposal.arch, proposal.fraction):
        raise VitnasError(
            f'candidate {candidate.id} of {journal.path} is not what this search proposes as number {candidate.id}: '
            f'the journal was written by another version of vitnas, numpy, scikit-learn or pymoo; give another '
            f'--work-dir'
        )
    return candidate


def _candidate(
    number: int, generation: int, proposal: Proposal, result: Result | Failure, price: Callable[[Arch], Cost]
) -> Candidate:
    """Make the journal's candidate from a result."""
    if isinstance(result, Failure):
        raise VitnasError(f'candidate {number} cannot be scored: {result.reason}: {proposal.arch.to_json()}')
    cost = {name: value for name, value in dataclasses.asdict(price(proposal.arch)).items() if value is not None}
    return Candidate(
        number, generation, proposal.arch, cost, result.value, proposal.parents, result.seconds, proposal.fraction,
        result.complete,
    )  # fmt: skip
