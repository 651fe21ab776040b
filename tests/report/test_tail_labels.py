"""F1 of single labels by hand, and pictures of the tail whose bytes repeat."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import pictures
from coattail.arrays import TopK
from coattail.labels.frequency import HEAD, TAIL
from coattail.report.tail_labels import label_f1, tail_labels


def test_bins_double_in_width_and_hold_quartiles():
    counts = np.array([0, 1, 2, 3, 3, 8, 9])
    values = np.array([7.0, 1.0, 2.0, 4.0, 6.0, np.nan, 5.0])
    bins = pictures.by_frequency(counts, values)
    np.testing.assert_array_equal(bins.labels, [1, 3, 1])
    np.testing.assert_allclose(bins.texts, [1, np.sqrt(6), np.sqrt(8 * 15)])
    np.testing.assert_allclose(bins.median, [1, 4, 5])
    np.testing.assert_allclose((bins.low[1], bins.high[1]), (3, 5))


def ranking():
    """Two texts; truth: labels 0 and 1, label 1; label 3 has no text."""
    labels = np.array([[0, 2, 1], [2, 0, 1]], np.int32)
    scores = np.array([[0.9, 0.6, 0.2], [0.7, 0.6, 0.5]], np.float32)
    Y = sp.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 0, 0]], np.float32))
    return TopK(labels, scores), Y


def test_f1_of_labels_above_a_threshold_and_within_ranks():
    topk, Y = ranking()
    labels = np.array([0, 1, 2, 3])
    # Label 0: given twice, right once, true once. Label 1: given once (0.5 counts), right, true
    # twice. Label 2 and 3 are never true.
    above = label_f1(topk, Y, labels, 0.5)
    np.testing.assert_allclose(above, [200 / 3, 200 / 3, np.nan, np.nan])
    first = label_f1(topk, Y, labels, 1)
    np.testing.assert_allclose(first, [100, 0, np.nan, np.nan])


class Known:
    """What ``tail_labels`` asks features for."""

    def __init__(self, Y, bands):
        self.Y, self.bands = lambda split: Y, np.array(bands, np.int8)


def test_a_line_of_the_tail_goes_from_the_best_label_down():
    topk, Y = ranking()
    tail = tail_labels({"a": topk, "b": topk.head(2)}, Known(Y, [TAIL, TAIL, TAIL, TAIL]), 3)
    assert tail.labels == 2  # two of four have a test text
    assert tail.line["a"] == [(1, 100.0), (2, pytest.approx(200 / 3))]
    assert tail.line["b"] == [(1, pytest.approx(200 / 3)), (2, 0.0)]
    assert tail.found == {"a": 2, "b": 1}
    assert tail.mean == {"a": pytest.approx(250 / 3), "b": pytest.approx(100 / 3)}


def test_without_a_tail_there_is_no_line():
    topk, Y = ranking()
    for bands in ([HEAD] * 4, [HEAD, HEAD, TAIL, TAIL]):
        assert tail_labels({"a": topk}, Known(Y, bands), 3).line == {}


def test_of_a_long_tail_some_points_are_shown():
    n = 1000
    Y = sp.identity(n, dtype=np.float32, format="csr")
    labels = np.where(np.arange(n) % 2, np.arange(n), 0)[:, None].astype(np.int32)
    tail = tail_labels({"a": TopK(labels, np.ones((n, 1), np.float32))}, Known(Y, [TAIL] * n), 1)
    assert tail.found == {"a": 501}
    assert len(tail.line["a"]) == 200
    assert tail.line["a"][0][0] == 1
    assert tail.line["a"][-1][0] == n


def test_pictures_are_written_small_and_byte_for_byte_the_same(tmp_path):
    rng = np.random.default_rng(0)
    counts = np.sort(rng.integers(0, 400, 3000))[::-1]
    norms = {"plain": np.sqrt(counts) + 0.1, "taug": np.full(3000, 2.0)}
    f1 = {"joint": rng.random(60) * 100, "httn": np.r_[np.nan, rng.random(59) * 100]}
    for name in ("a", "b"):
        pictures.draw_norms(tmp_path / f"norms-{name}.png", "toy", counts, norms)
        pictures.draw_label_f1(tmp_path / f"f1-{name}.png", "toy", counts[:60], f1)
    for kind in ("norms", "f1"):
        first = (tmp_path / f"{kind}-a.png").read_bytes()
        assert first == (tmp_path / f"{kind}-b.png").read_bytes()
        assert first.startswith(b"\x89PNG")
        assert len(first) < 80_000


def test_a_picture_without_any_known_label_is_still_drawn(tmp_path):
    nothing = {"joint": np.full(3, np.nan), "httn": np.full(3, np.nan)}
    pictures.draw_label_f1(tmp_path / "f1.png", "toy", np.ones(3), nothing)
    assert (tmp_path / "f1.png").exists()
