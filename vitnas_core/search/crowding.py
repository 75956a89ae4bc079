"""What NSGA-II takes from pymoo: survival by rank and crowding, and tournaments."""

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
    """The best by non-dominated rank; of the last rank that has room, those in the least crowded places.

    Args:
        candidates: All different, each with a score.
        cost: The objective besides the score, or None: the score is the only one.
        count: How many; all where there are fewer.
        rng: What breaks ties.

    Returns:
        pymoo's population; :func:`members` gives its candidates.
    """
    if not candidates:
        return Population.new()
    objectives = [[-c.score] if cost is None else [-c.score, c.cost[cost]] for c in candidates]
    everyone = Population.new(F=np.array(objectives, dtype=float), candidate=list(candidates))
    # Nothing outside the limits is ever evaluated, so to pymoo there are none.
    problem = Problem(n_obj=len(objectives[0]))
    return RankAndCrowding().do(problem, everyone, n_survive=count, random_state=rng)


def members(population: Population) -> list[Candidate]:
    """The candidates of a population."""
    return [individual.get('candidate') for individual in population]


def pairs(parents: Population, count: int, rng: np.random.Generator) -> list[tuple[Candidate, Candidate]]:
    """Winners of binary tournaments, two by two: the one that dominates wins, or else the one in the emptier place.

    Args:
        parents: What :func:`survivors` gave.
        count: How many pairs.
        rng: Who meets whom, and who wins where they are equal.
    """
    asked = SimpleNamespace(tournament_type='comp_by_dom_and_crowding', random_state=rng)  # as pymoo's NSGA2 has them
    selection = TournamentSelection(func_comp=binary_tournament)
    chosen = selection.do(None, parents, count, 2, to_pop=False, random_state=rng, algorithm=asked)
    candidates = members(parents)
    return [(candidates[one], candidates[two]) for one, two in chosen]
