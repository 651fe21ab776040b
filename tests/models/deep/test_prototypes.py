"""HTTN's algebra by hand: split, samples, prototypes, transfer, attention, word vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.config import parse
from coattail.errors import ConfigError
from coattail.models.deep.transfer.prototypes import (
    Sample,
    attend,
    descend_transfer,
    learn_transfer,
    prototypes,
    ridge_transfer,
    sample_texts,
    split_labels,
    tail_rows,
)
from coattail.models.deep.transfer.transfer_params import HttnParams, JointParams


def columns(*texts_of_label, n=10):
    """Y (n, labels) from the texts of each label."""
    Y = np.zeros((n, len(texts_of_label)), np.float32)
    for label, texts in enumerate(texts_of_label):
        Y[list(texts), label] = 1
    return sp.csr_matrix(Y)


# --- the split -----------------------------------------------------------------------------------


def test_head_holds_the_most_frequent_labels_and_unseen_labels_are_in_neither():
    Y = columns([0], [1, 2, 3], [], [4, 5], [6, 7])
    head, tail = split_labels(Y, HttnParams(head_share=0.4))
    np.testing.assert_array_equal(head, [1, 3])
    np.testing.assert_array_equal(tail, [0, 4])


def test_head_count_overrules_the_share_and_joint_has_no_tail():
    Y = columns([0], [1, 2, 3], [], [4, 5])
    head, tail = split_labels(Y, HttnParams(head_count=1))
    assert (head.tolist(), tail.tolist()) == ([1], [0, 3])
    head, tail = split_labels(Y, JointParams(head_count=1))
    assert (head.tolist(), tail.tolist()) == ([0, 1, 3], [])


def test_a_tiny_share_still_leaves_one_head_label_and_a_full_one_no_tail():
    Y = columns([0], [1, 2])
    assert split_labels(Y, HttnParams(head_share=0.01))[0].tolist() == [1]
    assert split_labels(Y, HttnParams(head_share=1.0))[1].tolist() == []


# --- samples and prototypes ----------------------------------------------------------------------


def test_samples_are_different_texts_of_the_label_and_at_most_t():
    Y = columns([0, 1, 2, 3, 4, 5], [6], [], [7, 8, 9])
    sample = sample_texts(Y, np.array([0, 1, 2, 3]), 3, np.random.default_rng(0))
    np.testing.assert_array_equal(sample.indptr, [0, 3, 4, 4, 7])
    parts = np.split(sample.rows, sample.indptr[1:-1])
    assert set(parts[0]) < {0, 1, 2, 3, 4, 5}
    assert len(set(parts[0])) == 3
    assert parts[1].tolist() == [6]
    assert set(parts[3]) == {7, 8, 9}


def test_samples_visit_every_text_equally_often():
    Y = columns(range(10))
    rng = np.random.default_rng(1)
    seen = np.concatenate([sample_texts(Y, np.array([0]), 3, rng).rows for _ in range(1000)])
    counts = np.bincount(seen, minlength=10)
    assert np.abs(counts - 300).max() < 5 * math.sqrt(1000 * 0.3 * 0.7)


def test_prototype_is_the_mean_brought_back_to_unit_length():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    sample = Sample(np.array([0, 2, 3, 3]), np.array([0, 1, 2]))
    root = math.sqrt(0.5)
    expected = [[root, root], [0.6, 0.8], [0.0, 0.0]]
    np.testing.assert_allclose(prototypes(vectors, sample), expected, atol=1e-12)


# --- transfer ------------------------------------------------------------------------------------


def test_ridge_by_hand_in_one_dimension():
    # p = 1, -1 and m = 2, -4: w = mean(p m) / (mean(p^2) + 0.5) = 3 / 1.5.
    P, M = np.array([[[1.0], [-1.0]]]), np.array([[2.0], [-4.0]])
    np.testing.assert_allclose(ridge_transfer(P, M, 0.5), [[2.0]])


def test_ridge_has_a_vanishing_gradient():
    rng = np.random.default_rng(2)
    P, M = rng.normal(size=(3, 7, 4)), rng.normal(size=(7, 4))
    W = ridge_transfer(P, M, 0.1)
    gradient = 2 * 0.1 * W
    for p in P:
        gradient += 2 * (p @ W.T - M).T @ p / (3 * 7)
    np.testing.assert_allclose(gradient, 0, atol=1e-10)


def test_both_learners_recover_a_planted_map():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=(5, 5))
    P = rng.normal(size=(30, 40, 5))
    P[1:] = P[0]  # every set alike, so that the map is exact
    M = P[0] @ truth.T
    np.testing.assert_allclose(ridge_transfer(P, M, 1e-9), truth, atol=1e-6)
    found = descend_transfer(P, M, 0.02, 40, np.random.default_rng(0))
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_one_step_of_descent_moves_every_entry_by_the_step_size():
    # Adam's first step is lr times the sign of the gradient.
    rng = np.random.default_rng(4)
    P, M = rng.normal(size=(1, 6, 3)), rng.normal(size=(6, 3))
    start = np.random.default_rng(0).uniform(-1, 1, (3, 3)) / math.sqrt(3)
    gradient = (P[0] @ start.T - M).T @ P[0]
    found = descend_transfer(P, M, 0.01, 1, np.random.default_rng(0))
    np.testing.assert_allclose(found, start - 0.01 * np.sign(gradient), atol=1e-6)


def test_the_parameter_chooses_the_learner_and_the_seed_the_start():
    rng = np.random.default_rng(5)
    P, M = rng.normal(size=(2, 6, 3)), rng.normal(size=(6, 3))
    ridge = HttnParams(learner="ridge", ridge=0.3)
    np.testing.assert_array_equal(learn_transfer(P, M, ridge), ridge_transfer(P, M, 0.3))
    same = [learn_transfer(P, M, HttnParams(transfer_epochs=1, seed=s)) for s in (1, 1, 2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()


# --- attention and rows --------------------------------------------------------------------------


def test_attention_by_hand():
    p = np.array([[1.0, 0.0]])
    P = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    weight = math.e / (math.e + 1)
    np.testing.assert_allclose(attend(p, P), [[weight, 1 - weight]])


def test_attention_averages_over_sets_not_over_labels():
    rng = np.random.default_rng(6)
    p, P = rng.normal(size=(3, 4)), rng.normal(size=(5, 2, 4))
    slow = np.zeros((3, 4))
    for z in range(3):
        for heads in P:
            weight = np.exp([p[z] @ head for head in heads])
            slow[z] += (weight / weight.sum()) @ heads / len(P)
    np.testing.assert_allclose(attend(p, P), slow)


def test_sharp_attention_picks_the_nearest_head_label():
    p = np.array([[0.9, 0.1]])
    P = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_allclose(attend(p, P, 1000.0), [[1.0, 0.0]], atol=1e-12)


def test_tail_rows_by_hand_with_and_without_attention():
    p, P = np.array([[1.0, 0.0]]), np.array([[[0.0, 1.0]]])
    W = np.array([[2.0, 0.0], [0.0, 4.0]])
    plain = tail_rows(p, P, W, HttnParams(attention=False))
    np.testing.assert_allclose(plain, [[2.0, 0.0]])
    # One head label takes all the attention: p_new = ([0, 1] + [1, 0]) / 2.
    np.testing.assert_allclose(tail_rows(p, P, W, HttnParams()), [[1.0, 2.0]])


# --- word vectors --------------------------------------------------------------------------------


def test_wrong_parameters_are_refused():
    for bad in ({"t": 0}, {"head_share": 0.0}, {"learner": "sgd"}, {"model": "bbn"}):
        with pytest.raises(ConfigError):
            parse(bad, HttnParams, "transfer.x")
    with pytest.raises(ConfigError, match="ensemble shares it"):
        parse({"ensemble": 3, "finetune": True}, HttnParams, "transfer.x")
