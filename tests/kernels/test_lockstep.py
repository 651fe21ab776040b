"""Descent for many labels side by side, beside slow descent for one of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import parts
from coattail.kernels import compact_rows, sparse
from coattail.kernels.lanes import LANES
from coattail.kernels.solvers import lockstep
from coattail.kernels.solvers.problems import Labels
from coattail.models.linear.node_weights import NodeWeights
from tests.kernels.test_kernels import random_csr, slow_descent


def solved_together(X, Y, c_pos, c_neg, eps, max_epochs, labels, prune=0.0):
    """The labels' weights word by word, as `NodeWeights`, and row visits."""
    positives = sp.csc_matrix(Y[:, labels])
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel().astype(np.float32) + 1
    n, n_words = X.shape
    indptr, middle, own = np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.float32)
    indices, values = np.empty(X.nnz, np.int32), np.empty(X.nnz, np.float32)
    words, order = np.empty(n_words, np.int32), np.empty(n_words, np.int32)
    table, all_rows = np.zeros((n_words // 64 + 1, 4), np.uint64), np.arange(n, dtype=np.int32)
    d, n_shared = compact_rows.set_apart(
        *parts(X), all_rows, table, indptr, middle, indices, values, own, words, order
    )
    words, order = words[:d], order[:d][::-1].copy()
    rows = lockstep.SplitRows(*sparse.constant(indptr, middle, indices, values, squares, own))
    of_labels = (positives.indptr.astype(np.int64), positives.indices.astype(np.int32))
    weights = (c_pos[labels], c_neg[labels], np.ones(len(labels), np.float32))
    problems = Labels(*sparse.constant(labels, *of_labels, *weights))
    limits = lockstep.LockstepLimits(3, np.float32(eps), max_epochs, np.float32(prune))
    W, counts = np.zeros(n_shared * LANES, np.float32), np.zeros(len(words), np.int32)
    w, alpha = np.empty(len(words) + 1, np.float32), np.empty(n * LANES, np.float32)
    room = (np.empty(1, np.int32), np.empty(1, np.uint16), np.empty(1, np.float32))
    store, bias, stats = lockstep.train(
        rows,
        problems,
        limits,
        lockstep.LockstepMemory(w, W, alpha),
        counts,
        lockstep.WeightStore(0, *room),
    )
    assert not W.any()  # left as it was found
    assert counts.sum() == store.used
    kept = np.count_nonzero(counts)
    words_used, entries = np.full(kept, -1, np.int32), np.full(kept, -1, np.int32)
    child, weight = np.full(store.used, 9999, np.uint16), np.full(store.used, np.nan, np.float32)
    lockstep.by_word(counts, store, order, words + 100, 7, words_used, entries, child, weight)
    return NodeWeights(words_used, entries, child, weight, bias, stats[:, 4] > 0), stats[:, 1]


def train_together(X, Y, c_pos, c_neg, eps, max_epochs, labels):
    """Weights (labels, words + 1), biases last, and row visits."""
    turned, visits = solved_together(X, Y, c_pos, c_neg, eps, max_epochs, labels)
    W = np.zeros((len(labels), X.shape[1] + 1), np.float32)
    W[turned.child - 7, np.repeat(turned.words, turned.entries) - 100] = turned.weight
    W[:, -1] = turned.bias
    return W, visits


def side_by_side(n_labels=40):
    rng = np.random.default_rng(7)
    X = random_csr(120, 30, 0.3, 8)
    scores = X @ rng.normal(size=(30, n_labels)) + rng.normal(size=(120, n_labels))
    Y = scores > np.linspace(-1, 3, n_labels)
    Y[:, 4], Y[:, 5] = False, True  # a label of no text, one of all
    c_pos = np.linspace(0.5, 3, n_labels).astype(np.float32)
    return X, sp.csr_matrix(Y), c_pos, np.full(n_labels, 0.7, np.float32)


@pytest.mark.parametrize(("scale", "alone"), [(0.003, False), (1.0, True)])
def test_descent_side_by_side_finds_the_optimum_of_every_label(scale, alone):
    X, Y, c_pos, c_neg = side_by_side()
    c_pos, c_neg = np.float32(scale) * c_pos, np.float32(scale) * c_neg
    W, visits = train_together(X, Y, c_pos, c_neg, 1e-5, 5000, np.arange(40))
    assert np.any(visits > lockstep.TOGETHER * 120) == alone  # some labels went on alone
    for label in (0, 4, 5, 17, 31, 32, 39):  # of both blocks of lanes
        y = Y[:, label].toarray().ravel()
        slow = slow_descent(X.toarray(), y, np.where(y, c_pos[label], c_neg[label]), 400)
        np.testing.assert_allclose(W[label], slow, atol=2e-4)


@pytest.mark.parametrize(("scale", "alone"), [(0.003, False), (1.0, True)])
def test_words_of_a_single_row_have_the_weights_of_the_optimum(scale, alone):
    X, Y, c_pos, c_neg = side_by_side()
    rng = np.random.default_rng(3)
    extra = sp.csr_matrix(
        (rng.normal(size=50).astype("f4"), (rng.integers(0, 120, 50), np.arange(50))), (120, 50)
    )
    X = sp.csr_matrix(sp.hstack([X, extra], format="csr"))
    c_pos, c_neg = np.float32(scale) * c_pos, np.float32(scale) * c_neg
    W, visits = train_together(X, Y, c_pos, c_neg, 1e-5, 5000, np.arange(40))
    assert np.any(visits > lockstep.TOGETHER * 120) == alone
    assert np.count_nonzero(W[:, 30:-1]) > 100
    for label in (0, 4, 5, 17, 31, 32, 39):
        y = Y[:, label].toarray().ravel()
        slow = slow_descent(X.toarray(), y, np.where(y, c_pos[label], c_neg[label]), 400)
        np.testing.assert_allclose(W[label], slow, atol=2e-4)


@pytest.mark.parametrize("n_some", [4, 8, 9, 32, 36])  # 8 lanes, 32, and both
def test_descent_side_by_side_ignores_who_and_how_many_are_beside(n_some):
    X, Y, c_pos, c_neg = side_by_side()
    all_labels, _ = train_together(X, Y, c_pos, c_neg, 0.05, 50, np.arange(40))
    some = np.random.default_rng(n_some).permutation(40)[:n_some]
    few, _ = train_together(X, Y, c_pos, c_neg, 0.05, 50, some)
    assert np.array_equal(few, all_labels[some])


def test_a_few_labels_descend_alone_to_the_same_optimum():
    X, Y, c_pos, c_neg = side_by_side()
    some = np.array([33, 2, 5])
    assert len(some) < lockstep.COMPANY
    alone, _ = train_together(X, Y, c_pos, c_neg, 1e-5, 5000, some)
    beside, _ = train_together(X, Y, c_pos, c_neg, 1e-5, 5000, np.arange(40))
    np.testing.assert_allclose(alone, beside[some], atol=2e-4)


def test_descent_side_by_side_on_one_row_and_on_an_empty_one():
    for X in (sp.csr_matrix(np.array([[0.0, 2.0]], np.float32)), sp.csr_matrix((1, 2), dtype="f4")):
        Y, one = sp.csr_matrix(np.array([[True, False]])), np.ones(2, np.float32)
        W, _ = train_together(X, Y, one, one, 1e-6, 500, np.arange(2))
        for label, y in enumerate(([True], [False])):
            slow = slow_descent(X.toarray(), np.array(y), [1.0], 500)
            np.testing.assert_allclose(W[label], slow, atol=1e-5)


def test_only_weights_of_the_least_size_are_written():
    X, Y, c_pos, c_neg = side_by_side()
    every, some = (
        solved_together(X, Y, c_pos, c_neg, 0.05, 50, np.arange(40), prune)[0]
        for prune in (0.0, 0.3)
    )
    entries = [
        list(zip(np.repeat(t.words, t.entries), t.child, t.weight, strict=True))
        for t in (every, some)
    ]
    assert entries[1] == [e for e in entries[0] if abs(e[2]) >= np.float32(0.3)]
    assert 0 < len(entries[1]) < len(entries[0])


def test_weights_lie_in_the_order_asked_for_and_a_word_s_by_label():
    X, Y, c_pos, c_neg = side_by_side()
    turned, _ = solved_together(X, Y, c_pos, c_neg, 0.05, 50, np.arange(40))
    assert np.all(np.diff(turned.words) < 0)  # the order given is backwards
    at = np.repeat(np.arange(len(turned.words)), turned.entries)
    place = list(zip(at, turned.child, strict=True))
    assert place == sorted(place)
