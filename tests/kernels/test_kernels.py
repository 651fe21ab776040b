"""Kernels beside slow, obvious references: ties, empty rows, k larger than what there is."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from coattail.arrays import parts
from coattail.kernels import beam, best_labels, cluster, instance_trees, sparse
from coattail.kernels.lanes import LANES
from coattail.kernels.runtime import pool
from coattail.kernels.solvers import active_set, logistic
from coattail.kernels.solvers.problems import Labels, Rows
from coattail.models.linear import problem_groups
from coattail.models.linear.problem_groups import solver_blocks


def random_csr(n, d, density, seed):
    rng = np.random.default_rng(seed)
    M = sp.random(n, d, density, "csr", np.float32, random_state=rng)
    M.data[:] = rng.normal(size=M.nnz)
    keep = (np.arange(n) != n // 2).astype(np.float32)  # an empty row
    M = sp.csr_matrix(M.multiply(keep[:, None]))
    M.eliminate_zeros()
    return M


@njit
def call_dot(indptr, indices, values, w, out):
    for i in range(out.shape[0]):
        out[i] = sparse.dot(indices, values, indptr[i], indptr[i + 1], w)


@njit
def call_dot_pair(indptr, indices, values, W, out):
    for i in range(out.shape[0]):
        row = sparse.dot_pair(indices, values, indptr[i], indptr[i + 1], W)
        out[i, 0], out[i, 1] = row


@njit
def call_axpy(indptr, indices, values, scale, w):
    for i in range(indptr.shape[0] - 1):
        sparse.axpy(indices, values, indptr[i], indptr[i + 1], scale, w)


@pytest.mark.parametrize("d", [1, 3, 4, 5, 7, 50])
def test_dot_and_axpy_equal_dense_algebra(d):
    X = random_csr(20, d, 0.6, d)
    rng = np.random.default_rng(1)
    w, out = rng.normal(size=d).astype(np.float32), np.empty(20, np.float32)
    call_dot(*parts(X), w, out)
    np.testing.assert_allclose(out, X @ w, rtol=1e-4, atol=1e-6)
    target = w + 0.5 * np.asarray(X.sum(axis=0)).ravel()
    call_axpy(*parts(X), np.float32(0.5), w)
    np.testing.assert_allclose(w, target, rtol=1e-4, atol=1e-5)


def test_squares_count_the_bias_and_empty_rows():
    X = sp.csr_matrix(np.array([[3, 4], [0, 0], [0.5, 0]], np.float32))
    np.testing.assert_array_equal(problem_groups.squares_of(X), np.array([26, 1, 1.25], np.float32))


def test_heap_keeps_the_best_and_breaks_ties_by_label():
    rng = np.random.default_rng(6)
    for k, n in ((5, 40), (40, 5), (1, 7), (8, 8)):
        scores = rng.integers(0, 6, n).astype(np.float32)
        labels = rng.permutation(100)[:n].astype(np.int32)
        heap, heap_scores, size = np.empty(k, np.int32), np.empty(k, np.float32), 0
        for label, score in zip(labels, scores, strict=True):
            size = best_labels.push(heap, heap_scores, size, label, score)
        best_labels.finish(heap, heap_scores, size)
        order = np.lexsort((labels, -scores))[:k]
        assert heap[: len(order)].tolist() == labels[order].tolist()
        assert heap_scores[: len(order)].tolist() == scores[order].tolist()
        assert np.all(heap[len(order) :] == -1)
        assert np.all(np.isneginf(heap_scores[len(order) :]))


@njit
def call_random(seed, key, limit, out):
    state = sparse.mix(seed, key)
    for i in range(out.shape[0]):
        state = sparse.step(state)
        out[i] = sparse.below(state, limit)


def test_random_numbers_stay_below_their_limit_and_fill_it():
    first, other = np.empty(2000, np.int64), np.empty(2000, np.int64)
    call_random(1, 2, 7, first)
    call_random(2, 1, 7, other)
    assert np.bincount(first, minlength=7).min() > 200
    assert first.min() == 0
    assert first.max() == 6
    assert not np.array_equal(first, other)


def slow_descent(X, y, c, epochs):
    """Dual coordinate descent over all rows, in order, without any trick."""
    Xb = np.hstack([X, np.ones((len(X), 1))])
    sign, alpha = np.where(y, 1.0, -1.0), np.zeros(len(X))
    w = np.zeros(Xb.shape[1])
    for _ in range(epochs):
        for i in range(len(X)):
            gradient = sign[i] * (Xb[i] @ w) - 1 + alpha[i] / (2 * c[i])
            new = max(0.0, alpha[i] - gradient / (Xb[i] @ Xb[i] + 1 / (2 * c[i])))
            w += (new - alpha[i]) * sign[i] * Xb[i]
            alpha[i] = new
    return w


@pytest.mark.parametrize("n_sample", [20, 200])
def test_active_sets_find_the_optimum_of_descent_over_all_rows(n_sample):
    rng = np.random.default_rng(7)
    X = random_csr(200, 30, 0.3, 8)
    y = (X @ rng.normal(size=30) + rng.normal(size=200)) > 1.0
    positives = np.flatnonzero(y).astype(np.int32)
    c_pos, c_neg = np.float32(2.5), np.float32(0.7)
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel().astype(np.float32) + 1
    sample = np.sort(rng.choice(200, n_sample, replace=False)).astype(np.int32)
    blocks = solver_blocks(30)
    rows = Rows(*sparse.constant(*parts(X), squares))
    first, one = np.array([0, len(positives)]), np.float32(1)
    c = (np.array([c_pos]), np.array([c_neg]), np.array([one]))
    labels = Labels(*sparse.constant(np.array([5]), first, positives, *c))
    limits = active_set.ActiveSetLimits(np.float32(1e-5), 1e-8, 5000, 20, np.float32(0.0))
    found = active_set.train(rows, labels, *sparse.constant(sample), limits, *blocks)
    w, own = np.zeros(31), slice(found.start[0], found.stop[0])
    w[found.words[own]] = found.weights[own]
    w[30] = found.bias[0]
    slow = slow_descent(X.toarray(), y, np.where(y, c_pos, c_neg), 400)
    np.testing.assert_allclose(w, slow, atol=2e-4)
    assert found.stats[0, 3] <= 1e-8


def test_sigmoid_is_exact_to_float_precision():
    s = np.linspace(-90, 90, 32 * 300).astype(np.float32).reshape(-1, 32)
    out, bits = np.empty(32, np.float32), np.empty(32, np.int32)
    for row in s:
        logistic.sigmoid(row, bits, out)
        exact = 1 / (1 + np.exp(-np.clip(row.astype(np.float64), -87, 87)))
        np.testing.assert_allclose(out, exact, rtol=6e-6)


def test_dot_pair_is_two_products():
    X = random_csr(30, 40, 0.4, 5)
    W = np.random.default_rng(6).normal(size=(40, 2)).astype(np.float32)
    out = np.empty((30, 2), np.float32)
    call_dot_pair(*parts(X), W, out)
    np.testing.assert_allclose(out, X @ W, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("half", [1, 4, 6, 7])
def test_sides_take_the_smallest_ties_to_the_earlier_place(half):
    difference = np.array([0.5, -1.0, 0.5, 0.5, -1.0, 2.0, 0.5], np.float32)
    side = np.empty(7, np.int8)
    cluster._sides(difference, half, side)
    first = np.argsort(difference, kind="stable")[:half]
    assert np.flatnonzero(side == 0).tolist() == sorted(first)


def test_halving_leaves_its_scratch_clear_and_halves_in_order():
    V = random_csr(41, 12, 0.6, 9)
    for members in (np.arange(41, dtype=np.int32), np.array([3, 8], np.int32)):  # many, few words
        sums = np.zeros((12, 2), np.float32)
        cluster.halve(*parts(V), sums, members, 3, 0, 1e-4, 100)
        half = (len(members) + 1) // 2
        assert not sums.any()
        assert (np.diff(members[:half]) > 0).all()
        assert (np.diff(members[half:]) > 0).all()


def test_halves_are_at_a_fixed_point_of_balanced_two_means():
    V = random_csr(41, 12, 0.6, 9)
    V = sp.csr_matrix(V / np.maximum(np.linalg.norm(V.toarray(), axis=1, keepdims=True), 1e-9))
    V.sort_indices()
    members = np.arange(41, dtype=np.int32)
    cluster.halve(
        *parts(V.astype(np.float32)), np.zeros((12, 2), np.float32), members, 3, 0, 0.0, 100
    )
    left, right = members[:21], members[21:]
    assert sorted(members.tolist()) == list(range(41))
    dense = V.toarray()
    centres = [dense[part].sum(axis=0) for part in (left, right)]
    gain = [dense @ (c / np.linalg.norm(c)) for c in centres]
    difference = gain[0] - gain[1]
    assert difference[left].min() >= difference[right].max() - 1e-5


def test_nearest_centre_is_the_one_of_the_largest_cosine():
    V = random_csr(50, 20, 0.4, 10)
    rng = np.random.default_rng(11)
    W = rng.normal(size=(2, 20, LANES)).astype(np.float32)
    allowed = rng.random(2 * LANES) < 0.7
    assigned, cosine = np.empty(50, np.int32), np.empty(50, np.float32)
    members = np.arange(50, dtype=np.int32)
    cluster.nearest(*parts(V), members, W, allowed, assigned, cosine)
    scores = np.hstack([V @ W[0], V @ W[1]])
    scores[:, ~allowed] = -np.inf
    np.testing.assert_allclose(cosine, scores.max(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scores[np.arange(50), assigned], scores.max(axis=1), atol=1e-5)


def test_log_scores_are_logs_of_probabilities():
    for s in (-3.0, 0.0, 0.5, 1.0, 4.0):
        hinge = np.exp(-(max(0.0, 1 - s) ** 2))
        assert np.exp(beam.log_score(s, beam.HINGE)) == pytest.approx(hinge)
        assert np.exp(beam.log_score(s, beam.SIGMOID)) == pytest.approx(1 / (1 + np.exp(-s)))
    assert beam.log_score(-800.0, beam.SIGMOID) == -800  # no overflow


def test_separator_equals_scikit_learn_l1_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    X = random_csr(150, 20, 0.3, 12)
    rng = np.random.default_rng(13)
    side = np.where(X @ rng.normal(size=20) + 0.5 * rng.normal(size=150) > 0, 1.0, -1.0)
    c = np.where(side > 0, 0.8, 1.7)
    columns = instance_trees._columns(*parts(X), 20)
    w, margins = instance_trees.separate(*columns, side.astype(np.float32), c, 200)
    Xb = np.hstack([X.toarray(), np.ones((150, 1))])
    np.testing.assert_allclose(margins, Xb @ w, atol=1e-5)
    peer = LogisticRegression(
        l1_ratio=1, solver="liblinear", C=1.0, fit_intercept=False, tol=1e-9, max_iter=9999
    ).fit(Xb, side, c)

    def value(v):
        return np.abs(v).sum() + np.sum(c * np.logaddexp(0, -side * (Xb @ v)))

    assert value(w) <= value(peer.coef_.ravel()) * (1 + 2e-3)


def test_sides_group_texts_with_the_same_labels():
    # Two kinds of texts with disjoint labels: no ranking serves both, so they part.
    labels = np.tile([0, 1, 2, 3], 40).astype(np.int32)  # text i has labels 0, 1 or 2, 3
    indptr = np.arange(0, 161, 2).astype(np.int64)
    norm = np.full(80, 1 / (1 + 1 / np.log2(3)))
    side, value = instance_trees.sides_by_ndcg(
        indptr, labels, np.ones(160, np.float32), norm, 4, sparse.mix(1, 1)
    )
    assert len(set(side[::2])) == len(set(side[1::2])) == 1
    assert side[0] != side[1]
    assert value == pytest.approx(1.0)


def test_pool_keeps_order_and_passes_errors_on(monkeypatch):
    monkeypatch.setenv("COATTAIL_THREADS", "3")
    assert list(pool.each(lambda i: i * i, range(20))) == [i * i for i in range(20)]
    with pytest.raises(ZeroDivisionError):
        list(pool.each(lambda i: 1 // (i - 5), range(20)))
    assert pool.chunks(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert pool.chunks(0, 3) == []


def test_number_of_threads_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "5")
    monkeypatch.setenv("COATTAIL_THREADS", "3")
    assert pool.threads() == 3
    monkeypatch.delenv("COATTAIL_THREADS")
    assert pool.threads() == 5
    monkeypatch.setenv("NUMBA_NUM_THREADS", "all")
    assert pool.threads() >= 1


def test_constant_views_forbid_writing_and_copy_nothing():
    array = np.arange(4)
    (view,) = sparse.constant(array)
    assert np.shares_memory(view, array)
    assert not view.flags.writeable
    assert array.flags.writeable


def test_weights_turned_word_by_word_are_the_transpose():
    rng = np.random.default_rng(12)
    dense = np.where(rng.random((7, 40)) < 0.3, rng.normal(size=(7, 40)), 0).astype(np.float32)
    dense[3] = 0
    W = sp.csr_matrix(dense)
    shuffled = rng.permutation(W.nnz)  # words of an output come in any order
    for j in range(7):
        part = slice(W.indptr[j], W.indptr[j + 1])
        shuffled[part] = W.indptr[j] + rng.permutation(W.indptr[j + 1] - W.indptr[j])
    place = np.full(40, -1, np.int32)
    arrays = (W.indptr[:-1].astype(np.int64), W.indptr[1:].astype(np.int64))
    child, weight = np.empty(W.nnz, np.int32), np.empty(W.nnz, np.float32)
    used, length = beam.by_word(
        *sparse.constant(*arrays, W.indices[shuffled], W.data[shuffled]), place, child, weight
    )
    turned = W.tocsc()
    assert used.tolist() == np.flatnonzero(np.diff(turned.indptr)).tolist()
    assert length.tolist() == np.diff(turned.indptr)[used].tolist()
    np.testing.assert_array_equal(child, turned.indices)
    np.testing.assert_array_equal(weight, turned.data)
    assert (place == -1).all()
