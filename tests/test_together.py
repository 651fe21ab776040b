"""Descent for many labels side by side, beside slow descent for one of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import parts
from coattail.kernels import sparse, together
from coattail.linear.solve import aligned, dense_block, solver_blocks
from tests.test_kernels import random_csr, slow_descent


def train_together(X, Y, c_pos, c_neg, eps, max_epochs, labels):
    """Weights (labels, words + 1), biases last, and row visits."""
    positives = sp.csc_matrix(Y[:, labels])
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel().astype(np.float32) + 1
    V, Q = solver_blocks(X.shape[1])
    problem = sparse.constant(
        *parts(X), squares, positives.indptr.astype(np.int64), positives.indices.astype(np.int32),
        labels, c_pos[labels], c_neg[labels],
    )  # fmt: skip
    start, stop, words, weights, bias, stats = together.train(
        *problem, 3, np.float32(eps), max_epochs, np.float32(0.0), V[0], dense_block(len(Q))
    )
    W = np.zeros((len(labels), X.shape[1] + 1), np.float32)
    for row, first, last in zip(W, start, stop, strict=True):
        row[words[first:last]] = weights[first:last]
    W[:, -1] = bias
    return W, stats[:, 1]


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
    assert np.any(visits > together.TOGETHER * 120) == alone  # some labels went on alone
    for label in (0, 4, 5, 17, 31, 32, 39):  # of both blocks of lanes
        y = Y[:, label].toarray().ravel()
        slow = slow_descent(X.toarray(), y, np.where(y, c_pos[label], c_neg[label]), 400)
        np.testing.assert_allclose(W[label], slow, atol=2e-4)


def test_descent_side_by_side_ignores_who_is_beside():
    X, Y, c_pos, c_neg = side_by_side()
    all_labels, _ = train_together(X, Y, c_pos, c_neg, 0.05, 50, np.arange(40))
    some = np.array([33, 2, 5, 30])
    few, _ = train_together(X, Y, c_pos, c_neg, 0.05, 50, some)
    assert np.array_equal(few, all_labels[some])


def test_a_few_labels_descend_alone_to_the_same_optimum():
    X, Y, c_pos, c_neg = side_by_side()
    some = np.array([33, 2, 5])
    assert len(some) < together.COMPANY
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


@pytest.mark.parametrize("size", [1, 33, 100_000])
def test_scratch_begins_at_a_cache_line(size):
    found = aligned(size)
    assert found.ctypes.data % 64 == 0
    assert found.shape == (size,)
    assert found.dtype == np.float32
    assert not found.any()


def test_only_weights_of_the_least_size_are_written():
    X, Y, c_pos, c_neg = side_by_side()
    positives = sp.csc_matrix(Y)
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel().astype(np.float32) + 1
    V, Q = solver_blocks(X.shape[1])
    problem = sparse.constant(
        *parts(X), squares, positives.indptr.astype(np.int64), positives.indices.astype(np.int32),
        np.arange(40), c_pos, c_neg,
    )  # fmt: skip
    limits = (3, np.float32(0.05), 50)
    kept = [
        together.train(*problem, *limits, np.float32(prune), V[0], dense_block(len(Q)))
        for prune in (0.0, 0.3)
    ]
    for label in range(40):
        every, some = (
            dict(zip(f[2][f[0][label] : f[1][label]], f[3][f[0][label] : f[1][label]], strict=True))
            for f in kept
        )
        assert some == {word: w for word, w in every.items() if abs(w) >= np.float32(0.3)}
