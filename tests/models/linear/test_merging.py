"""Two blocks of labels on one scale."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import TopK
from coattail.data.features import Block
from coattail.models.linear import merging
from coattail.models.linear.linear_models import fit_blocks, load
from coattail.models.linear.linear_params import OvrParams
from coattail.models.ranking.cross_fit import deal
from coattail.testing.model_contract import same, separable

HEAD, TAIL = np.array([0, 2, 4], np.int32), np.array([1, 3, 5], np.int32)


def ranking(n=400, seed=0):
    """Probabilities of two labels, each true as often as its score squared says."""
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.random((n, 2)).astype(np.float32), axis=1)[:, ::-1].copy()
    labels = rng.permuted(np.tile(np.arange(2, dtype=np.int32), (n, 1)), axis=1)
    truth = rng.random((n, 2)) < scores**2
    rows, places = np.nonzero(truth)
    Y = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, labels[rows, places])), shape=(n, 2))
    return TopK(labels, scores), Y, truth


def test_a_map_gives_probabilities_that_add_up_to_the_hits():
    top, Y, truth = ranking(4000)
    map_, unseen = merging.fitted(top, Y)
    mapped = merging.mapped(map_, top, 2)
    assert mapped.kind == "probability"
    assert mapped.scores.sum() == pytest.approx(truth.sum(), rel=1e-3)
    for score in (0.3, 0.6, 0.9):  # the scores promise more than is kept
        near = np.abs(top.scores - score) < 0.05
        assert mapped.scores[near].mean() == pytest.approx(score**2, abs=0.06)
    assert np.abs(unseen.scores - mapped.scores).mean() < 0.02


def test_validation_is_ranked_by_maps_that_have_not_seen_its_text():
    top, Y, _ = ranking()
    _, before = merging.fitted(top, Y)
    fold = deal(top.n, merging.FOLDS, merging.SEED) == 0
    turned = Y.toarray()
    turned[fold] = 1 - turned[fold]
    _, after = merging.fitted(top, sp.csr_matrix(turned))
    assert np.array_equal(before.scores[fold], after.scores[fold])
    assert not np.allclose(before.scores[~fold], after.scores[~fold])


def test_places_without_a_label_stay_last():
    labels = np.tile(np.array([[1, -1]], np.int32), (20, 1))
    scores = np.column_stack([np.linspace(0.1, 0.9, 20), np.full(20, -np.inf)]).astype(np.float32)
    Y = sp.csr_matrix(np.repeat([[0, 0], [0, 1]], 10, axis=0).astype(np.float32))
    map_, unseen = merging.fitted(TopK(labels, scores), Y)
    assert np.all(np.isneginf(unseen.scores[:, 1]))
    assert np.all(np.isneginf(merging.mapped(map_, TopK(labels, scores), 2).scores[:, 1]))


def test_blocks_are_merged_by_probability_and_stay_so_on_disk(tmp_path):
    X, Y = separable(300, n_labels=6)
    blocks = [
        Block(name, X[rows], sp.csr_matrix(Y[rows][:, own]), own)
        for name, own in (("head", HEAD), ("tail", TAIL))
        for rows in [np.flatnonzero(Y[:, own].sum(axis=1))]
    ]
    model = fit_blocks(OvrParams(output="probability"), None, blocks, 6)
    plain = model.predict(X, 6)
    ranked = model.calibrate(X, Y, 6)
    assert ranked.n == 300
    assert sorted(ranked.labels[0].tolist()) == list(range(6))
    merged = model.predict(X, 6)
    assert not same(plain, merged)
    for own in (HEAD, TAIL):  # in the order of each block's own scores
        for one, other in zip(plain.labels[:50], merged.labels[:50], strict=True):
            assert one[np.isin(one, own)].tolist() == other[np.isin(other, own)].tolist()
    model.save(tmp_path / "model")
    assert same(merged, load(tmp_path / "model").predict(X, 6))
