"""The lists that learning judges are the lists that a reranker gives, to the last tie."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.arrays import TopK, best_first
from coattail.evaluation import metrics
from coattail.models.ranking.calibration import true_places
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams, Validation
from coattail.models.ranking.walk import Lists, mixed, with_first

LABELS = 30


def lists(seed, n=12, width=9, values=3, k=5, masked=()):
    """Lists of few different scores, so that many are equal."""
    rng = np.random.default_rng(seed)
    ids = np.array([rng.permutation(LABELS)[:width] for _ in range(n)]).reshape(n, width)
    ids = np.where(rng.random((n, width)) < 0.1, -1, ids)
    top = best_first(ids, rng.integers(1, values + 1, (n, width)) / values, width)
    Y = sp.csr_matrix((rng.random((n, LABELS)) < 0.2).astype(np.float32))
    q = rng.integers(1, 4, LABELS).astype(np.float64)
    seen = ~np.isin(np.arange(LABELS), masked)
    return Lists.of(metrics.judge(top, Y, q), true_places(top, Y), seen, k), top, Y, q


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(1, 8), st.sampled_from([0, 0.25, 1]))
def test_the_best_places_equal_a_slow_sort_that_leaves_equals_as_they_came(seed, width, k, t):
    those, top, _, q = lists(seed, width=width, k=k, masked=(3, 4))
    eta, weights = np.where(top.labels >= 0, top.scores, 0).astype(np.float64), mixed(q, t)
    places = those.order(eta, weights)
    assert places.shape == (top.n, min(max(k, 5) + 1, width))
    for row, labels, p in zip(places, top.labels, eta, strict=True):
        able = [i for i, label in enumerate(labels) if label >= 0 and label not in (3, 4)]
        best = sorted(able, key=lambda i: -(p[i] * weights[labels[i]]))  # stable
        assert row[: len(best)].tolist() == best[: len(row)]


def test_the_first_of_one_order_stands_before_the_rest_of_another():
    order = np.array([[4, 2, 7], [4, 2, 7], [4, 2, 7]])
    first = np.array([4, 7, 9])
    assert with_first(first, order).tolist() == [[4, 2, 7], [7, 4, 2], [9, 4, 2]]


@pytest.mark.parametrize("kind", ["probability", "margin"])
def test_with_integer_scores_learning_judges_the_very_lists_that_are_given(kind):
    n, rng = 200, np.random.default_rng(5)
    ids = np.tile(np.arange(LABELS), (n, 1))
    scores = rng.integers(0, 3, ids.shape)
    top = best_first(ids, scores / 2 if kind == "probability" else scores - 1, 12, kind)
    Y = sp.csr_matrix((rng.random((n, LABELS)) < 0.1 + 0.2 * scores).astype(np.float32))
    q, train = rng.integers(1, 3, LABELS).astype(float), np.full(LABELS, 7)
    counts = train + np.asarray(Y.sum(axis=0), np.int64).ravel()
    params = RerankParams(base="b", strategy="learned", calibration="plain", steps=4)
    model = Reranker(params).fit(top, Y, counts, q, None, q)
    judged = metrics.judge(top, Y, q)
    for point in [*model.learned_.front, *model.learned_.powers]:
        model.weights_ = np.stack([mixed(q, t, point.power) for t in (point.first, point.rest)])
        judged = metrics.judge(model.predict(top, 5), Y, q)
        for name, k in (("p", 1), ("p", 3), ("p", 5), ("ndcg", 5)):
            assert getattr(point, f"{name}_at_{k}") == pytest.approx(judged.ratio(name, k).percent)
        assert point.psp_at_1 == pytest.approx(judged.ratio("psp", 1).percent)
        assert point.psp_at_k == pytest.approx(judged.ratio("psp", 5).percent)


def test_hits_on_labels_that_are_dropped_do_not_count():
    Y = sp.csr_matrix(np.array([[1, 1, 0, 0]], np.float32))
    top = TopK(np.array([[1, 0]], np.int32), np.array([[0.9, 0.1]], np.float32))
    wanted = RerankParams(base="b", strategy="learned")
    counts = np.array([2, 1, 3, 3])  # label 1 is in validation only
    learned = Validation(top, Y, counts, np.ones(4), wanted).learn()
    assert learned.base.p_at_5 == pytest.approx(40)
    assert learned.powers[0].p_at_5 == pytest.approx(20)
