"""Intervals that hold together: against loops, under the null, and where nothing varies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coattail.evaluation import bootstrap, simultaneous
from coattail.evaluation.metrics import Ratio

EQUALS, TEXTS, DRAWS, WORLDS = 10, 500, 200, 300
NEVER = np.array([5.0])


def world(seed: int, better: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Precision of ten candidates that agree on most texts, and its paired draws; all are equally
    good but the last, which is right on a share ``better`` of the texts more."""
    rng = np.random.default_rng(seed)
    agreed = rng.random(TEXTS) < 0.6
    own = rng.random((EQUALS, TEXTS)) < 0.3
    right = np.where(own, rng.random((EQUALS, TEXTS)) < 0.6, agreed).astype(float)
    right[-1] = np.maximum(right[-1], rng.random(TEXTS) < better)
    ratios = {str(i): Ratio(one, np.ones(TEXTS)) for i, one in enumerate(right)}
    draws = bootstrap.resample(ratios, DRAWS, seed)
    return 100 * right.mean(axis=1), np.array(list(draws.values()))


@pytest.fixture(scope="module")
def worlds() -> list[tuple[np.ndarray, np.ndarray]]:
    return [world(seed) for seed in range(WORLDS)]


def share(found: list[bool]) -> float:
    return float(np.mean(found))


def test_of_ten_equal_candidates_one_is_called_worse_than_the_best_in_few_worlds(worlds) -> None:
    def called_worse(values: np.ndarray, draws: np.ndarray) -> bool:
        found = simultaneous.from_best(values, draws, int(values.argmax()), 0.95)
        return bool(found.real.any())

    assert share([called_worse(*one) for one in worlds]) <= 0.07


def test_intervals_of_their_own_call_one_of_ten_equals_worse_in_half_of_the_worlds(worlds) -> None:
    def called_worse(values: np.ndarray, draws: np.ndarray) -> bool:
        leader = draws[values.argmax()]
        return any(bootstrap.interval(one - leader, 0.95)[1] < 0 for one in draws)

    assert share([called_worse(*one) for one in worlds]) > 0.5


def test_of_ten_equal_candidates_one_gets_a_mark_against_the_base_in_few_worlds(worlds) -> None:
    found = [simultaneous.from_one(*one, 0, 0.95).real.any() for one in worlds]
    assert share(found) <= 0.07
    alone = [
        any(
            low > 0 or high < 0
            for low, high in (bootstrap.interval(d - draws[0], 0.95) for d in draws)
        )
        for _, draws in worlds
    ]
    assert share(alone) > 0.2, "with an interval each, chance sets a mark far more often"


def test_candidate_that_is_really_better_is_still_found() -> None:
    found = [world(seed, better=0.4) for seed in range(30)]
    base = [simultaneous.from_one(*one, 0, 0.95).real for one in found]
    assert np.mean([real[-1] for real in base]) > 0.9
    best = [simultaneous.from_best(*one, int(one[0].argmax()), 0.95) for one in found]
    assert np.mean([one.real[:-1].all() for one in best]) > 0.5


def test_intervals_are_those_of_loops_over_comparisons_and_draws() -> None:
    values, draws = world(7)
    errors = draws - values[:, None]

    def half(pairs: list[tuple[int, int]], mine: tuple[int, int]) -> float:
        spread = {
            p: np.std([errors[p[0], r] - errors[p[1], r] for r in range(DRAWS)]) for p in pairs
        }
        largest = [
            max(abs(errors[a, r] - errors[b, r]) / spread[a, b] for a, b in pairs)
            for r in range(DRAWS)
        ]
        return float(np.quantile(largest, 0.9) * spread[mine])

    from_base = [(i, 3) for i in range(EQUALS) if i != 3]
    found = simultaneous.from_one(values, draws, 3, 0.9)
    assert found.difference[5] == values[5] - values[3]
    assert found.high[5] - found.difference[5] == pytest.approx(half(from_base, (5, 3)))
    every = [(i, j) for i in range(EQUALS) for j in range(i)]
    found = simultaneous.from_best(values, draws, 3, 0.9)
    assert found.difference[5] - found.low[5] == pytest.approx(half(every, (5, 3)))


def test_two_candidates_have_the_usual_interval() -> None:
    values, draws = world(1)
    found = simultaneous.from_one(values[:2], draws[:2], 0, 0.95)
    error = (draws[1] - draws[0]).std()
    assert found.difference[1] - found.low[1] == pytest.approx(1.96 * error, rel=0.1)
    assert found.high[1] - found.difference[1] == pytest.approx(1.96 * error, rel=0.1)
    again = simultaneous.from_best(values[:2], draws[:2], 0, 0.95)
    assert again.low[1] == pytest.approx(found.low[1])


def test_pair_that_hardly_differs_keeps_a_narrow_interval_beside_noisy_ones() -> None:
    values, draws = world(2)
    twin = draws[0] + np.random.default_rng(0).normal(0.2, 0.01, DRAWS)
    values, draws = np.append(values, values[0] + 0.2), np.vstack([draws, twin])
    found = simultaneous.from_best(values, draws, 0, 0.95)
    assert found.real[-1], "0.2 points are twenty times the spread of this pair"
    assert found.high[-1] - found.low[-1] < 0.1
    assert found.high[1] - found.low[1] > 1


def test_equal_candidates_differ_by_exactly_nothing() -> None:
    values, draws = world(3)
    rounding = 1e-13 * np.arange(DRAWS)
    values = np.array([values[0], values[0], values[0] + 1e-13, values[1]])
    draws = np.array([draws[0], draws[0], draws[0] + rounding, draws[1]])
    for found in (
        simultaneous.from_one(values, draws, 0, 0.95),
        simultaneous.from_best(values, draws, 0, 0.95),
    ):
        for position in (0, 1, 2):
            assert [float(part[position]) for part in found] == [0.0, 0.0, 0.0]
        assert not found.real[:3].any()
        assert found.low[3] < found.difference[3] < found.high[3]


def test_difference_that_never_varies_is_real() -> None:
    values, draws = world(4)
    values, draws = np.array([values[0], values[0] + 1]), np.array([draws[0], draws[0] + 1])
    found = simultaneous.from_one(values, draws, 0, 0.95)
    assert found.low[1] == found.high[1] == pytest.approx(1)
    assert found.real.tolist() == [False, True]


def test_candidate_without_a_figure_has_no_interval_and_disturbs_nobody() -> None:
    values, draws = world(5)
    gone = np.append(values, math.nan), np.vstack([draws, np.full(DRAWS, math.nan)])
    for question in (simultaneous.from_one, simultaneous.from_best):
        found, alone = question(*gone, 0, 0.95), question(values, draws, 0, 0.95)
        assert np.array_equal(found.low[:-1], alone.low)
        assert math.isnan(found.low[-1])
        assert not found.real[-1]
        everybody = question(np.full(3, math.nan), np.full((3, 20), math.nan), 1, 0.95)
        assert np.isnan(everybody.low).all()
        assert not everybody.real.any()


def test_draws_without_a_figure_do_not_vote() -> None:
    values, draws = world(6)
    some = draws.copy()
    some[:, ::4] = math.nan
    found = simultaneous.from_one(values, some, 0, 0.95)
    voted = simultaneous.from_one(values, draws[:, np.arange(DRAWS) % 4 > 0], 0, 0.95)
    assert np.allclose(found.low, voted.low)


def test_one_candidate_alone_is_level_with_itself() -> None:
    draws = np.random.default_rng(0).normal(5, 1, (1, 50))
    for question in (simultaneous.from_one, simultaneous.from_best):
        assert [part.tolist() for part in question(NEVER, draws, 0, 0.95)] == [[0], [0], [0]]
