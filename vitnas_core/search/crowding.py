"""pymoo's parts of NSGA-II: survival by rank and crowding, and tournaments."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from pymoo.algorithms.moo.nsga2 import binary_tournament
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.operators.selection.tournament import TournamentSelection
from pymoo.operators.survival.rank_and_crowding import RankAndCrowding
from pymoo.util import default_random_state  # noqa: F401  (versions without it draw from numpy's global state)

from .candidate import Candidate


def survivors(candidates: Sequence[Candidate], cost: str | None, count: int, rng: np.random.Generator) -> Population:
    """Select the best by non-dominated rank; from the last rank with room, those in the least crowded places.

    Args:
        candidates: Different candidates, each with a score.
        cost: The objective besides the score, or None: the score is the only one.
        count: Number of survivors; all candidates if there are fewer.
        rng: Breaks ties.

    Returns:
        pymoo's population; :func:`members` returns its candidates.
    """
    if not candidates:
        return Population.new()
    objectives = [[-c.score] if cost is None else [-c.score, c.cost[cost]] for c in candidates]
    everyone = Population.new(F=np.array(objectives, dtype=float), candidate=list(candidates))
    # Candidates outside the limits are never evaluated, so the problem needs no limits.
    problem = Problem(n_obj=len(objectives[0]))
    return RankAndCrowding().do(problem, everyone, n_survive=count, random_state=rng)


def members(population: Population) -> list[Candidate]:
    """Return the candidates of a population."""
    return [individual.get('candidate') for individual in population]


def pairs(parents: Population, count: int, rng: np.random.Generator) -> list[tuple[Candidate, Candidate]]:
    """Run binary tournaments; return pairs of winners. A tie in dominance goes to the less crowded place.

    Args:
        parents: Result of :func:`survivors`.
        count: Number of pairs.
        rng: Decides who meets, and who wins between equals.
    """
    asked = SimpleNamespace(tournament_type='comp_by_dom_and_crowding', random_state=rng)  # as in pymoo's NSGA2
    selection = TournamentSelection(func_comp=binary_tournament)
    chosen = selection.do(None, parents, count, 2, to_pop=False, random_state=rng, algorithm=asked)
    candidates = members(parents)
    return [(candidates[one], candidates[two]) for one, two in chosen]
