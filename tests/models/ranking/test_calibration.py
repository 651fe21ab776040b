"""Scores to probabilities: fixed maps by hand, fitted maps against planted truths."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.isotonic import IsotonicRegression

from coattail.arrays import TopK, unit_rows
from coattail.errors import DataError, ModelError
from coattail.models.linear.linear_params import NearestParams
from coattail.models.linear.nearest import Nearest
from coattail.models.ranking.calibration import (
    Calibration,
    probabilities,
    rising_probability,
    true_places,
)


def test_hinge_map_equals_the_formula_up_to_its_slope():
    for s in (-2.0, -1.0, 0.0, 0.5, 1.0, 3.0):
        expected = math.exp(-(max(0.0, 1 - s) ** 2))
        assert rising_probability(np.array(s)) == pytest.approx(expected, abs=1.1e-3)


def test_hinge_map_never_loses_the_order_of_margins_in_float32():
    margins = np.linspace(-1, 3, 401)
    mapped = rising_probability(margins).astype(np.float32)
    assert (np.diff(mapped) > 0).all()
    assert mapped.min() >= 0
    assert mapped.max() < 1


def test_probabilities_pass_and_padding_is_zero():
    top = TopK(np.array([[3, 1, -1]], np.int32), np.array([[0.9, 0.2, -np.inf]], np.float32))
    np.testing.assert_allclose(probabilities(top), [[0.9, 0.2, 0.0]], rtol=1e-6)


def test_true_places_equal_a_slow_loop():
    rng = np.random.default_rng(0)
    Y = sp.csr_matrix((rng.random((30, 12)) < 0.2).astype(np.float32))
    labels = np.array([rng.permutation(12)[:5] for _ in range(30)], np.int32)
    labels[rng.random(labels.shape) < 0.2] = -1
    slow = [[label >= 0 and Y[i, label] == 1 for label in row] for i, row in enumerate(labels)]
    np.testing.assert_array_equal(true_places(TopK(labels, labels * 0.0), Y), slow)


def test_true_places_of_texts_without_labels_are_none():
    top = TopK(np.array([[0, 1]], np.int32), np.zeros((1, 2), np.float32))
    assert not true_places(top, sp.csr_matrix((1, 2), dtype=np.float32)).any()


def test_another_number_of_texts_is_a_clear_error():
    top = TopK(np.zeros((2, 1), np.int32), np.zeros((2, 1), np.float32))
    with pytest.raises(DataError, match="2 texts but Y has 3"):
        true_places(top, sp.csr_matrix((3, 1), dtype=np.float32))


def planted(probability_of, n=4000, k=10, labels=50, seed=0):
    """Lists with margins, and hits drawn with a known probability."""
    rng = np.random.default_rng(seed)
    ids = np.array([rng.permutation(labels)[:k] for _ in range(n)], np.int32)
    margins = -np.sort(-rng.normal(-0.5, 0.8, (n, k)), axis=1)
    frequency = np.arange(1, labels + 1, dtype=np.float64) ** 2
    eta = probability_of(margins, frequency[ids])
    top = TopK(ids, margins.astype(np.float32), "margin")
    return top, rng.random((n, k)) < eta, frequency, eta


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("platt", lambda s, n: sigmoid(1.5 * s + 0.5)),
        ("isotonic", lambda s, n: np.clip(0.1 + 0.6 * (s > 0), 0, 1)),
        ("context", lambda s, n: sigmoid(2 * s + 0.4 * np.log1p(n) - 2)),
    ],
)
def test_fitted_map_recovers_the_planted_probabilities(name, truth):
    top, hits, frequency, eta = planted(truth)
    fitted = Calibration(name).fit(top, hits, frequency)(top, frequency)
    assert np.abs(fitted - eta).mean() < 0.02
    # A map that ignores what was planted would be far off.
    assert np.abs(probabilities(top) - eta).mean() > 0.05


def test_only_context_sees_that_frequency_matters():
    top, hits, frequency, eta = planted(lambda s, n: sigmoid(2 * s + np.log1p(n) - 4))
    errors = {
        name: np.abs(Calibration(name).fit(top, hits, frequency)(top, frequency) - eta).mean()
        for name in ("platt", "isotonic", "context")
    }
    assert errors["context"] < 0.5 * min(errors["platt"], errors["isotonic"])


@pytest.mark.parametrize("name", ["platt", "isotonic"])
def test_maps_of_the_score_alone_keep_the_order(name):
    top, hits, frequency, _ = planted(lambda s, n: sigmoid(3 * s))
    out = Calibration(name).fit(top, hits, frequency)(top, frequency)
    assert (np.diff(out, axis=1) <= 0).all()
    assert 0 <= out.min()
    assert out.max() < 1


@pytest.mark.parametrize("name", ["plain", "platt", "isotonic", "context"])
def test_maps_survive_json(name):
    top, hits, frequency, _ = planted(lambda s, n: sigmoid(3 * s), n=200)
    fitted = Calibration(name).fit(top, hits, frequency)
    back = Calibration.from_json(fitted.to_json())
    np.testing.assert_array_equal(fitted(top, frequency), back(top, frequency))


def test_a_map_with_missing_parts_is_refused():
    with pytest.raises(ModelError, match="train it again"):
        Calibration.from_json({"name": "platt", "slopes": [1.0]})


@pytest.mark.parametrize("name", ["platt", "isotonic", "context"])
def test_without_hits_the_map_stays_plain(name):
    top, hits, frequency, _ = planted(lambda s, n: sigmoid(s), n=20)
    fitted = Calibration(name).fit(top, np.zeros_like(hits), frequency)
    np.testing.assert_array_equal(fitted(top, frequency), probabilities(top))


def test_probabilities_of_zero_and_one_can_be_calibrated():
    labels = np.tile(np.array([0, 1, 2, -1], np.int32), (50, 1))
    scores = np.tile(np.array([1.0, 0.5, 0.0, -np.inf], np.float32), (50, 1))
    hits = np.zeros((50, 4), bool)
    hits[:, 0] = True
    hits[::2, 1] = True
    top, frequency = TopK(labels, scores), np.array([5.0, 3.0, 1.0])
    for name in ("platt", "isotonic", "context"):
        out = Calibration(name).fit(top, hits, frequency)(top, frequency)
        assert np.isfinite(out).all()
        assert (out[:, 0] > out[:, 1]).all()
        assert (out[:, 1] > out[:, 2]).all()
        assert (out[:, 3] == 0).all()


def integers(kind, seed=0, n=400, k=12, labels=60):
    """Lists of few different scores, and hits that have to do with them."""
    rng = np.random.default_rng(seed)
    ids = np.array([rng.permutation(labels)[:k] for _ in range(n)], np.int32)
    whole = -np.sort(-rng.integers(0, 4, (n, k)), axis=1)
    hits = rng.random((n, k)) < 0.05 + 0.2 * whole
    scores = whole - 1 if kind == "margin" else whole / 4
    frequency = rng.integers(0, 30, labels).astype(float)
    return TopK(ids, scores.astype(np.float32), kind), hits, frequency, rng.random((n, k, 7))


@pytest.mark.parametrize("kind", ["margin", "probability"])
@pytest.mark.parametrize("name", ["platt", "isotonic", "context", "names", "boosted"])
def test_probabilities_of_the_texts_of_a_fit_sum_to_their_hits_with_equal_scores_too(name, kind):
    top, hits, frequency, evidence = integers(kind)
    eta = Calibration(name).fit(top, hits, frequency, evidence)(top, frequency, evidence)
    fitted = frequency[top.labels] > 0
    assert eta[fitted].sum() == pytest.approx(hits[fitted].sum(), rel=1e-5)


def test_isotonic_equals_scikit_learn_on_scores_of_which_many_are_equal():
    top, hits, frequency, _ = integers("margin")
    frequency += 1
    mine = Calibration("isotonic").fit(top, hits, frequency)(top, frequency)
    reference = IsotonicRegression().fit(top.scores.ravel(), hits.ravel().astype(float))
    expected = reference.predict(top.scores.ravel()).reshape(mine.shape)
    np.testing.assert_allclose(mine, expected, atol=1e-6)


@pytest.mark.parametrize("neighbours", [1, 5])
def test_isotonic_on_votes_of_nearest_texts_keeps_the_mass_and_equals_scikit_learn(neighbours):
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 8, 500)
    X = sp.csr_matrix(rng.random((500, 40)) < 0.05 + 0.5 * (np.arange(40) // 5 == topic[:, None]))
    Y = sp.csr_matrix((rng.random((500, 8)) < 0.1 + 0.5 * np.eye(8)[topic]).astype(np.float32))
    X = unit_rows(sp.csr_matrix(X, dtype=np.float32))
    model = Nearest(NearestParams(neighbours=neighbours)).fit(X[:300], Y[:300])
    top = model.predict(X[300:], 8)
    hits, listed = true_places(top, Y[300:]), top.labels >= 0
    scores = probabilities(top)[listed]
    assert len(np.unique(scores)) < len(scores)
    eta = Calibration("isotonic").fit(top, hits, np.ones(8))(top, np.ones(8))[listed]
    z = np.log(np.clip(scores, 1e-6, 1 - 1e-6) / (1 - np.clip(scores, 1e-6, 1 - 1e-6)))
    expected = IsotonicRegression().fit(z, hits[listed].astype(float)).predict(z)
    np.testing.assert_allclose(eta, np.clip(expected, 1e-9, 1 - 1e-6), atol=1e-6)
    assert eta.sum() == pytest.approx(hits.sum(), rel=1e-5)
