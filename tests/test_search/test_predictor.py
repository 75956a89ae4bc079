"""The random forest as a predictor, the layers of a front, and the picture of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.families import SPACES
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.search import Candidate, ForestPredictor, PredictorValidation
from vitnas_core.search.pareto import best_layers, non_dominated, spread
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.spaces.space import ABSENT
from vitnas_core.visualization import draw_predictor, save_png

from .common import noise

SPACE = SPACES['autoformer-test']


def smooth(space: SearchSpace) -> Callable[[Arch], float]:
    """A score from 0 to 100 that rises with every choice, ever less."""
    top = np.array([max(1, len(dim.options) - 1) for dim in space.dimensions])

    def score(arch: Arch) -> float:
        return float(100 * np.mean(np.maximum(space.encode(arch), 0) / top) ** 0.5)

    return score


def scored(space: SearchSpace, score: Callable[[Arch], float], count: int = 300) -> list[Candidate]:
    rng = np.random.default_rng(0)
    archs = dict.fromkeys(space.sample(rng) for _ in range(count))
    return [Candidate(i, 0, arch, {'macs': 1.0}, score(arch)) for i, arch in enumerate(archs)]


@pytest.mark.parametrize('name', ['autoformer-test', 's3-test', 'vit_res-test', 'vitas-deit-tiny'])
def test_a_known_function_is_learned_and_noise_is_not(name: str) -> None:
    space = SPACES[name]
    known, chance = (ForestPredictor(space).fit(scored(space, of)) for of in (smooth(space), noise))
    assert known.r2 > 0.75 and known.kendall > 0.7
    assert chance.r2 < 0.1 and abs(chance.kendall) < 0.15
    assert abs(known.num_train - known.num_validation) <= 1
    assert known.num_train + known.num_validation == len(scored(space, noise))


def test_absent_blocks_can_be_learned_from() -> None:
    """A score of nothing but whether the last block is there."""
    whole = scored(SPACE, lambda arch: float(SPACE.encode(arch)[-1] == ABSENT))
    assert ForestPredictor(SPACE, trees=20).fit(whole).r2 > 0.99


def test_the_validation_half_is_never_trained_on() -> None:
    """Whatever the held-out ones score, the same forest comes out, and other figures."""
    whole, probe = scored(SPACE, smooth(SPACE)), [SPACE.smallest(), SPACE.largest()]
    predictor = ForestPredictor(SPACE, trees=20, seed=3)
    figures, before = predictor.fit(whole), predictor.predict(probe)
    held_out = {candidate.id for candidate in predictor.held_out}
    assert len(held_out) == len(predictor.held_out) == len(whole) // 2 == figures.num_validation
    changed = [replace(c, score=-1e3 * c.id) if c.id in held_out else c for c in whole]
    other = predictor.fit(changed)
    assert {candidate.id for candidate in predictor.held_out} == held_out
    np.testing.assert_array_equal(predictor.predict(probe), before)
    assert other.r2 < 0 < figures.r2
    trained = next(candidate for candidate in whole if candidate.id not in held_out)  # whereas this one counts
    predictor.fit([replace(c, score=1e3) if c.id == trained.id else c for c in whole])
    assert predictor.predict([trained.arch]) > 100


def test_the_figures_are_those_of_their_definitions() -> None:
    predictor = ForestPredictor(SPACE, trees=5)
    figures = predictor.fit(scored(SPACE, smooth(SPACE), 60))
    measured = np.array([candidate.score for candidate in predictor.held_out])
    predicted = predictor.predict([candidate.arch for candidate in predictor.held_out])
    r2 = 1 - ((measured - predicted) ** 2).sum() / ((measured - measured.mean()) ** 2).sum()
    pairs = [(i, j) for i in range(len(measured)) for j in range(i)]
    signs = np.array([[np.sign(v[i] - v[j]) for i, j in pairs] for v in (measured, predicted)])
    tau = (signs[0] * signs[1]).sum() / np.sqrt((signs[0] != 0).sum() * (signs[1] != 0).sum())
    assert (figures.r2, figures.kendall) == pytest.approx((r2, tau))
    assert str(figures) == f'R² {r2:.3f}, Kendall τ {tau:.3f} on {len(measured)} held-out candidates'


@pytest.mark.parametrize('predicted', [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
def test_equal_scores_have_no_order(predicted: list[float]) -> None:
    assert PredictorValidation.of(predicted, [2.0, 2.0, 2.0], 3).kendall == 0.0
    assert PredictorValidation.of([1.0, 1.0], [1.0, 2.0], 3).kendall == 0.0


def test_equal_seeds_and_candidates_in_any_order_give_equal_predictors() -> None:
    whole, probe = scored(SPACE, noise), [c.arch for c in scored(SPACE, noise, 50)]
    found = []
    for seed, candidates in ((0, whole), (0, whole[::-1]), (1, whole)):
        np.random.seed(len(found))  # must not count
        predictor = ForestPredictor(SPACE, trees=10, seed=seed)
        found.append((predictor.fit(candidates), predictor.held_out, predictor.predict(probe).tolist()))
    assert found[0] == found[1] != found[2]
    assert found[0][1] != found[2][1]


def test_only_candidates_that_compete_are_used() -> None:
    whole = scored(SPACE, smooth(SPACE), 40)
    worse = [replace(c, id=100 + c.id, score=-1e9, fraction=0.5) for c in whole]
    worse += [replace(c, id=200 + c.id, score=-1e9, complete=False) for c in whole]
    a, b = ForestPredictor(SPACE), ForestPredictor(SPACE)
    assert a.fit(whole) == b.fit(whole + worse)


def test_too_few_candidates() -> None:
    whole = scored(SPACE, noise, 4)
    assert ForestPredictor(SPACE, trees=2).fit(whole).num_validation == 2
    with pytest.raises(VitnasError, match='needs at least 4 candidates with a score on all images, .* but got 3; eval'):
        ForestPredictor(SPACE).fit(whole[:3] + [replace(whole[3], complete=False)])


def test_mistakes() -> None:
    for trees in (0, 2.5, True, '3'):
        with pytest.raises(VitnasError, match='`trees` should be a whole number of at least 1, but got'):
            ForestPredictor(SPACE, trees=trees)
    predictor = ForestPredictor(SPACE, trees=2)
    with pytest.raises(VitnasError, match='should be fitted to candidates before it predicts'):
        predictor.predict([SPACE.smallest()])
    predictor.fit(scored(SPACE, noise, 20))
    assert predictor.predict([]).shape == (0,)
    with pytest.raises(ArchError, match='family is nasvit'):
        predictor.predict([SPACES['nasvit'].smallest()])


def test_it_is_of_use_by_itself() -> None:
    """It needs a space and candidates, wherever they are from."""
    space = SPACES['vitas-twins-small-free']
    predictor = ForestPredictor(space)
    predictor.fit(scored(space, smooth(space)))
    assert predictor.predict([space.largest()]) > predictor.predict([space.smallest()]) + 5


# layers of a front

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40)


def dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """In (score, cost)."""
    return a[0] >= b[0] and a[1] <= b[1] and a != b


@given(points, st.integers(0, 45))
def test_layers_are_peeled_one_after_another(rows: list[tuple[int, int]], count: int) -> None:
    scores, costs = np.array(rows, dtype=float).reshape(-1, 2).T
    chosen = best_layers(scores, costs, count).tolist()
    assert len(chosen) == len(set(chosen)) == min(count, len(rows))
    left, rest = list(range(len(rows))), list(chosen)
    while rest:
        layer = {i for i in left if not any(dominates(rows[j], rows[i]) for j in left)}
        # Of equals only the first is on a layer; the next is on the one after it.
        layer = {i for i in layer if not any(rows[i] == rows[j] for j in layer if j < i)}
        taken = set(rest[: len(layer)])
        assert taken <= layer and (taken == layer or len(rest) < len(layer))
        left, rest = [i for i in left if i not in layer], rest[len(layer) :]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50), st.integers(1, 60))
def test_a_spread_has_both_ends_and_the_right_number(values: list[float], count: int) -> None:
    costs = np.sort(values)
    chosen = spread(costs, count)
    assert len(chosen) == min(count, len(costs)) and (np.diff(chosen) > 0).all()
    assert chosen[0] == 0 or costs[chosen[0]] == costs[0]
    assert count < 2 or costs[chosen[-1]] == costs[-1]


def test_a_spread_is_even_over_the_cost_not_over_the_number() -> None:
    costs = np.concatenate([np.linspace(0, 1, 91), np.arange(2, 11)])
    assert costs[spread(costs, 11)].tolist() == pytest.approx(list(range(11)))


def test_the_non_dominated() -> None:
    scores, costs = np.array([3.0, 1, 2, 3, 2]), np.array([5.0, 1, 1, 5, 4])
    assert non_dominated(scores, costs).tolist() == [2, 0]
    assert non_dominated(np.empty(0), np.empty(0)).tolist() == []


# the picture


def test_the_picture(tmp_path: Path) -> None:
    held_out, final = [(1.0, 1.5), (3.0, 2.5), (2.0, float('nan'))], [(4.0, 3.0)]
    figure = draw_predictor(held_out, final, 'R² 0.9', metric='accuracy/top1')
    axes = figure.axes[0]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ['exact', 'held out (2)', 'predicted front (1)']
    found = {a.get_label(): a for a in (*axes.collections, *axes.lines)}
    np.testing.assert_array_equal(found['held out (2)'].get_offsets(), held_out[:2])
    np.testing.assert_array_equal(found['predicted front (1)'].get_offsets(), final)
    np.testing.assert_array_equal(found['exact'].get_xdata(), found['exact'].get_ydata())
    assert axes.get_xlim() == axes.get_ylim() == pytest.approx((0.85, 4.15))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('measured accuracy/top1 (%)', 'predicted accuracy/top1 (%)')
    assert axes.get_title(loc='left') == 'R² 0.9'
    save_png(figure, tmp_path / 'a.png')
    save_png(draw_predictor(held_out, final, 'R² 0.9', metric='accuracy/top1'), tmp_path / 'b.png')
    assert (tmp_path / 'a.png').read_bytes() == (tmp_path / 'b.png').read_bytes()


@pytest.mark.parametrize('pairs', [[], [(5.0, 5.0)], [(0.0, 0.0)], [(-np.inf, 1.0)], [(1e-9, 1e9)]])
def test_odd_pictures_are_drawn(pairs: list[tuple[float, float]]) -> None:
    figure = draw_predictor(pairs, [], 'a $ in a title')
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    assert low < high
