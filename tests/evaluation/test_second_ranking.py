"""The second ranking of PW-DiSMEC's evaluation, by hand."""

from __future__ import annotations

import numpy as np

from coattail.arrays import TopK, best_first
from coattail.evaluation.metrics import judge
from coattail.evaluation.second_ranking import reorder_top5
from coattail.testing.model_contract import separable


def ranking(labels, scores):
    return TopK(np.array(labels, np.int32), np.array(scores, np.float32), "margin")


Q = np.array([1.0, 5.0, 3.0, 9.0, 2.0, 7.0])


def test_rare_labels_with_a_positive_margin_move_up():
    # Margins above 0: labels 0, 1, 2. Rank 1: the rarest of them is 1 (q 5); then 2 (q 3), then 0.
    # Left are 3 and 4 with negative margins: the best of them, 4, comes first although 3 is rarer.
    top = ranking([[0, 1, 2, 4, 3]], [[0.9, 0.5, 0.1, -0.2, -0.3]])
    assert reorder_top5(top, Q).labels.tolist() == [[1, 2, 0, 4, 3]]


def test_best_label_may_be_taken_below_the_threshold():
    # Nothing is positive: every rank takes the best one left, so nothing moves.
    top = ranking([[0, 3, 1, 5, 2]], [[-0.1, -0.2, -0.3, -0.4, -0.5]])
    assert reorder_top5(top, Q).labels.tolist() == [[0, 3, 1, 5, 2]]


def test_threshold_stands_for_a_margin_of_zero():
    top = ranking([[0, 3, 1]], [[0.9, 0.4, 0.3]])
    assert reorder_top5(top, Q, above=0.5, k=3).labels.tolist() == [[0, 3, 1]]
    assert reorder_top5(top, Q, above=0.35, k=3).labels.tolist() == [[3, 0, 1]]


def test_short_and_empty_rows_keep_their_padding():
    top = ranking([[0, 1, -1], [-1, -1, -1]], [[2.0, 1.0, -np.inf], [-np.inf] * 3])
    again = reorder_top5(top, Q)
    assert again.labels.tolist() == [[1, 0, -1, -1, -1], [-1] * 5]
    again.validate(len(Q))


def test_labels_beyond_the_fifth_are_left_alone():
    top = ranking([[0, 1, 2, 4, 5, 3]], [[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]])
    assert sorted(reorder_top5(top, Q).labels[0].tolist()) == [0, 1, 2, 4, 5]


def test_psp_at_five_stays_and_psp_at_one_does_not_fall_when_all_are_right():
    _, Y = separable(200, n_labels=12, seed=3)
    rng = np.random.default_rng(0)
    q = 1 + rng.random(12) * 9
    scores = rng.normal(size=(200, 12)).astype(np.float32) + 4 * Y.toarray()
    top = best_first(np.tile(np.arange(12, dtype=np.int32), (200, 1)), scores, 12, "margin")
    before, after = judge(top, Y, q), judge(reorder_top5(top, q), Y, q)
    assert np.isclose(after.ratio("psp", 5).percent, before.ratio("psp", 5).percent)
    assert after.ratio("psp", 1).percent != before.ratio("psp", 1).percent
