"""Fits of a probability: scikit-learn as the reference, and sums that equal the truth's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from coattail.models.ranking import fits


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([1, 3, 8, 10**9]))
def test_isotonic_equals_scikit_learn_with_equal_scores_and_without(seed, n, different):
    rng = np.random.default_rng(seed)
    z = rng.integers(0, different, n).astype(np.float64)
    truth = (rng.random(n) < 0.4).astype(np.float64)
    reference = IsotonicRegression(out_of_bounds="clip").fit(z, truth)
    asked = np.concatenate([z, z - 0.5, z + 0.25])
    np.testing.assert_allclose(
        np.interp(asked, *fits.isotonic(z, truth)), reference.predict(asked), atol=1e-9
    )


def test_isotonic_of_equal_scores_is_their_mean_whatever_the_order_of_the_rows():
    z = np.full(6, 2.0)
    for truth in ([1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 1]):
        scores, values = fits.isotonic(z, np.array(truth, float))
        assert (scores.tolist(), values.tolist()) == ([2.0], [0.5])


def random_rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 3))
    return features, (rng.random(n) < expit(features @ [1.0, -2.0, 0.0] - 1)).astype(float)


def test_logistic_finds_what_was_planted_and_its_probabilities_sum_to_the_truth():
    features, truth = random_rows(20_000)
    w = fits.logistic(features, truth)
    np.testing.assert_allclose(w, [-1, 1, -2, 0], atol=0.1)
    assert expit(w[0] + features @ w[1:]).sum() == pytest.approx(truth.sum(), rel=1e-6)


@pytest.mark.parametrize("start", [[0, 0, 0, 0], [-1, 1, -2, 0], [3, -3, 3, -3]])
def test_where_the_fit_starts_changes_nothing_but_the_way(start):
    features, truth = random_rows()
    one = fits.logistic(features, truth, np.array(start, float))
    np.testing.assert_allclose(one, fits.logistic(features, truth), atol=1e-5)


def test_a_quarter_of_many_rows_to_begin_with_changes_nothing_but_the_way(monkeypatch):
    features, truth = random_rows(2000)
    whole = fits.logistic(features, truth)
    monkeypatch.setattr(fits, "MANY_ROWS", 100)
    np.testing.assert_allclose(fits.logistic(features, truth), whole, atol=1e-5)


def test_a_shift_gives_the_sum_that_was_asked_for():
    logit = np.random.default_rng(1).normal(size=500) * 3
    for total in (1.0, 250.0, 499.0):
        assert expit(logit + fits.shift_to(logit, total)).sum() == pytest.approx(total)
