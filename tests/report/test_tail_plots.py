"""Weight norms and F1 of single labels by hand, and pictures whose bytes repeat."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import TopK
from coattail.errors import ModelError
from coattail.models.linear.linear_models import Blocks
from coattail.models.linear.linear_params import OvrParams, PltParams
from coattail.models.linear.ovr import Ovr
from coattail.models.linear.plt import Plt
from coattail.report import tail_plots


def ovr(weights, bias):
    """A model with these weights (labels, words)."""
    model = Ovr(OvrParams())
    model.W_ = sp.csr_matrix(np.array(weights, np.float32).T)
    model.bias_ = np.array(bias, np.float32)
    return model


def test_norms_leave_the_bias_out_and_unseen_labels_have_none(tmp_path):
    ovr([[3, 4], [0, -2], [0, 0]], [9, 0, -np.inf]).save(tmp_path / "m")
    np.testing.assert_array_equal(tail_plots.weight_norms(tmp_path / "m"), [5, 2, np.nan])


def test_norms_of_a_model_in_blocks_stand_at_their_labels(tmp_path):
    parts = [ovr([[3, 4]], [0]), ovr([[1, 0], [0, 6]], [0, 0])]
    labels = [np.array([1], np.int32), np.array([0, 2], np.int32)]
    Blocks(["head", "tail"], labels, parts, 4).save(tmp_path / "m")
    np.testing.assert_array_equal(tail_plots.weight_norms(tmp_path / "m"), [1, 5, 6, np.nan])


def test_a_tree_has_no_weights_of_a_label(tmp_path):
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(rng.random((12, 5)).astype(np.float32))
    Y = sp.csr_matrix(np.eye(3, dtype=np.float32)[np.arange(12) % 3])
    Plt(PltParams(model="plt")).fit(X, Y).save(tmp_path / "m")
    with pytest.raises(ModelError, match="no one-vs-rest model"):
        tail_plots.weight_norms(tmp_path / "m")


def test_bins_double_in_width_and_hold_quartiles():
    counts = np.array([0, 1, 2, 3, 3, 8, 9])
    values = np.array([7.0, 1.0, 2.0, 4.0, 6.0, np.nan, 5.0])
    bins = tail_plots.by_frequency(counts, values)
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
    above = tail_plots.label_f1(topk, Y, labels, 0.5)
    np.testing.assert_allclose(above, [200 / 3, 200 / 3, np.nan, np.nan])
    first = tail_plots.label_f1(topk, Y, labels, 1)
    np.testing.assert_allclose(first, [100, 0, np.nan, np.nan])


def test_pictures_are_written_small_and_byte_for_byte_the_same(tmp_path):
    rng = np.random.default_rng(0)
    counts = np.sort(rng.integers(0, 400, 3000))[::-1]
    norms = {"plain": np.sqrt(counts) + 0.1, "taug": np.full(3000, 2.0)}
    f1 = {"joint": rng.random(60) * 100, "httn": np.r_[np.nan, rng.random(59) * 100]}
    for name in ("a", "b"):
        tail_plots.draw_norms(tmp_path / f"norms-{name}.png", "toy", counts, norms)
        tail_plots.draw_label_f1(tmp_path / f"f1-{name}.png", "toy", counts[:60], f1)
    for kind in ("norms", "f1"):
        first = (tmp_path / f"{kind}-a.png").read_bytes()
        assert first == (tmp_path / f"{kind}-b.png").read_bytes()
        assert first.startswith(b"\x89PNG")
        assert len(first) < 80_000


def test_a_picture_without_any_known_label_is_still_drawn(tmp_path):
    nothing = {"joint": np.full(3, np.nan), "httn": np.full(3, np.nan)}
    tail_plots.draw_label_f1(tmp_path / "f1.png", "toy", np.ones(3), nothing)
    assert (tmp_path / "f1.png").exists()
