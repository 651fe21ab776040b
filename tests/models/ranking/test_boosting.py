"""Boosted trees: a split by hand, a slow twin of the kernel, planted truths, borders."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from coattail.errors import ModelError
from coattail.kernels import boosted_trees as kernel
from coattail.models.ranking import boosting
from coattail.models.ranking.boosting import Boosted, boost


def grown(bins, gradient, hessian, depth, n_bins=4, ridge=1e-9, least=0.0):
    bins = np.array(bins, np.uint8)
    fact, cut = np.zeros(2**depth - 1, np.int64), np.zeros(2**depth - 1, np.int64)
    value, leaf = np.zeros(2**depth), np.zeros(len(bins), np.int64)
    arrays = np.array(gradient, np.float64), np.array(hessian, np.float64)
    kernel.grow(bins, n_bins, *arrays, depth, ridge, least, fact, cut, value, leaf)
    return fact, cut, value, leaf


def test_one_split_by_hand():
    # The second fact tells gradients of -1 and 2 apart; each leaf steps against its mean gradient.
    bins = [[0, 1], [1, 1], [0, 2], [1, 2]]
    fact, cut, value, leaf = grown(bins, [-1, -1, 2, 2], [1, 1, 1, 1], 1)
    assert (fact.tolist(), cut.tolist()) == ([1], [1])
    np.testing.assert_allclose(value, [1, -2])
    assert leaf.tolist() == [0, 0, 1, 1]
    # Ridge 2: -(-2)/(2 + 2) and -4/(2 + 2).
    np.testing.assert_allclose(
        grown(bins, [-1, -1, 2, 2], [1, 1, 1, 1], 1, ridge=2.0)[2], [0.5, -1]
    )


def test_without_a_gain_everybody_goes_left():
    for gradient, least in (([1, 1, 1], 0.0), ([-1, 1, 2], 2.0)):  # all alike; sides too small
        _, cut, value, leaf = grown([[0], [1], [2]], gradient, [1, 1, 1], 2, least=least)
        assert (cut == 4).all()
        assert leaf.tolist() == [0, 0, 0]
        assert value[0] == pytest.approx(-sum(gradient) / 3)


def test_every_split_is_the_best_of_a_slow_search():
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 5, (200, 3))
    g, h = rng.normal(size=200), rng.uniform(0.1, 1, 200)
    fact, cut, value, leaf = grown(bins, g, h, 3, n_bins=5, ridge=1.0, least=2.0)
    where = np.zeros(200, int)
    for node in range(7):
        own = where == node

        def gain(side, own=own):
            sides = (own & side, own & ~side)
            if min(h[s].sum() for s in sides) < 2.0:
                return -1.0
            return sum(g[s].sum() ** 2 / (h[s].sum() + 1) for s in sides)

        gains = {(j, b): gain(bins[:, j] <= b) for j in range(3) for b in range(4)}
        if max(gains.values()) > g[own].sum() ** 2 / (h[own].sum() + 1) + 1e-6:
            assert gains[fact[node], cut[node]] == pytest.approx(max(gains.values()))
        right = own & (bins[:, fact[node]] > cut[node])
        where[own], where[right] = 2 * node + 1, 2 * node + 2
    np.testing.assert_array_equal(where - 7, leaf)
    for number in range(8):
        own = leaf == number
        assert value[number] == pytest.approx(-g[own].sum() / (h[own].sum() + 1))


def planted(n=20_000, seed=0):
    """Neither fact tells anything alone: what counts is whether both are on the same side."""
    rng = np.random.default_rng(seed)
    facts = rng.normal(size=(n, 3))
    p = expit(3 * np.sign(facts[:, 0] * facts[:, 1] + 0.2) - 1)
    return facts, (rng.random(n) < p).astype(np.float64), p


def test_a_planted_probability_that_no_sum_of_lines_has_is_found():
    facts, truth, _ = planted()
    new, _, p = planted(seed=1)
    assert np.abs(expit(boost(facts, truth)(new)) - p).mean() < 0.04
    assert np.abs(truth.mean() - p).mean() > 0.3


def test_json_and_back_gives_the_same_bits_and_the_same_facts_the_same_trees():
    facts, truth, _ = planted(2_000)
    trees = boost(facts, truth)
    text = json.dumps(trees.to_json(), allow_nan=False)
    assert json.dumps(boost(facts.copy(), truth.copy()).to_json()) == text
    back = Boosted.from_json(json.loads(text))
    assert back(facts).tobytes() == trees(facts).tobytes()


def test_many_alike_constant_and_few_values_are_binned_without_harm(monkeypatch):
    monkeypatch.setattr(boosting, "TREES", 20)
    rng = np.random.default_rng(0)
    switch = (rng.random(5_000) < 0.1).astype(np.float64)
    facts = np.stack(
        [np.ones(5_000), switch, np.where(rng.random(5_000) < 0.9, 0, rng.random(5_000))]
    )
    trees = boost(facts.T, switch)  # a fact that nearly all share must not lose the few others
    assert (trees(facts.T)[switch == 1].min()) > trees(facts.T)[switch == 0].max()


def test_one_row_and_no_row_are_answered():
    facts, truth, _ = planted(500)
    trees = boost(facts, truth)
    assert trees(facts[3:4])[0] == trees(facts)[3]
    assert trees(facts[:0]).shape == (0,)


def test_what_is_no_trees_is_refused():
    with pytest.raises(ModelError, match="no boosted trees"):
        Boosted.from_json({"start": 1.0})


def test_new_rows_are_told_as_well_as_by_scikit_learn():
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import log_loss
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(5)
    facts = rng.normal(size=(4000, 6))
    eta = expit(3 * facts[:, 0] * facts[:, 1] + 2 * np.abs(facts[:, 2]) - 2)
    truth = (rng.random(4000) < eta).astype(np.float64)
    old, new = slice(0, 2000), slice(2000, 4000)
    peer = HistGradientBoostingClassifier(
        max_iter=boosting.TREES, max_depth=boosting.DEPTH, learning_rate=boosting.RATE,
        l2_regularization=boosting.RIDGE, max_bins=boosting.BINS, early_stopping=False,
    )  # fmt: skip
    with threadpool_limits(1):
        peer.fit(facts[old], truth[old])
    ours = log_loss(truth[new], expit(boost(facts[old], truth[old])(facts[new])))
    theirs = log_loss(truth[new], peer.predict_proba(facts[new])[:, 1])
    assert ours < 1.01 * theirs
    assert ours < 0.9 * log_loss(truth[new], np.full(2000, truth[old].mean()))
