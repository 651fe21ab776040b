"""Instance trees: FastXML and its propensity-scored form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.kernels import instance_trees
from coattail.models.linear.fastxml import Fastxml, _ideal
from coattail.models.linear.linear_models import load
from coattail.models.linear.linear_params import FastxmlParams
from coattail.testing.model_contract import ModelContract, digest, separable

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


class TestFastxml(ModelContract):
    def make(self):
        return Fastxml(FastxmlParams(trees=6, C=20.0))

    def load(self, folder):
        return Fastxml.load(folder)


class TestPfastrexml(ModelContract):
    def make(self):
        return Fastxml(FastxmlParams(trees=6, C=20.0, propensity=True))

    def load(self, folder):
        return load(folder)


def test_interrupted_fit_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    X, Y = separable()
    monkeypatch.setenv("COATTAIL_THREADS", "1")
    params = FastxmlParams(trees=4, C=20.0)
    Fastxml(params).fit(X, Y).save(tmp_path / "whole")
    grown, real = [], instance_trees.grow

    def dies_at_the_third(*arguments):
        if len(grown) == 2:
            raise KeyboardInterrupt
        grown.append(1)
        return real(*arguments)

    monkeypatch.setattr(instance_trees, "grow", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        Fastxml(params, partial=tmp_path / "partial").fit(X, Y)
    assert len(list((tmp_path / "partial").rglob("*.npz"))) == 2
    monkeypatch.setattr(instance_trees, "grow", lambda *a: (grown.append(1), real(*a))[1])
    Fastxml(params, partial=tmp_path / "partial").fit(X, Y).save(tmp_path / "resumed")
    assert len(grown) == 4  # two before, two now
    assert digest(tmp_path / "whole") == digest(tmp_path / "resumed")
    assert not (tmp_path / "partial").exists()


def test_ideal_gain_by_hand():
    gains = sp.csr_matrix(np.array([[1, 0, 1], [0, 0, 0], [0.5, 1, 0]], np.float32))
    d2 = 1 / np.log2(3)
    np.testing.assert_allclose(_ideal(gains), [1 / (1 + d2), 0, 1 / (1 + 0.5 * d2)])


def test_scores_are_mean_frequencies_in_the_leaves():
    X, Y = separable()
    model = Fastxml(FastxmlParams(trees=1, C=20.0, leaf=20)).fit(X, Y)
    (tree,) = model.trees_
    leaves = np.flatnonzero(tree.right < 0)
    dense, labels = X.toarray(), Y.toarray()
    reached = np.empty(len(dense), np.int64)
    for i, x in enumerate(dense):
        node = 0
        while tree.right[node] >= 0:
            part = slice(tree.split_first[node], tree.split_first[node + 1])
            margin = tree.bias[node] + x[tree.words[part]] @ tree.weights[part]
            node = node + 1 if margin > 0 else int(tree.right[node])
        reached[i] = node
    assert set(reached) == set(leaves)
    assert len(leaves) > 1
    slow = np.stack([labels[reached == leaf].mean(axis=0) for leaf in reached])
    np.testing.assert_allclose(model.predict(X, 6).to_csr(6).toarray(), slow, atol=1e-6)


def test_leaves_keep_only_their_best_labels():
    X, Y = separable(n_labels=6)
    model = Fastxml(FastxmlParams(trees=2, leaf=100, leaf_labels=2)).fit(X, Y)
    assert all(np.diff(tree.leaf_first).max() <= 2 for tree in model.trees_)


def test_trees_of_one_model_differ():
    X, Y = separable()
    first, second = Fastxml(FastxmlParams(trees=2, C=20.0)).fit(X, Y).trees_
    assert first.words.tolist() != second.words.tolist()


def test_propensities_bring_rare_labels_forward():
    rng = np.random.default_rng(0)
    # The rare label never stands alone: without propensities the frequent one leads.
    X = np.zeros((300, 4), np.float32)
    Y = np.zeros((300, 2), np.float32)
    X[:, 0] = 1
    Y[:, 0] = 1
    rare = rng.choice(300, 12, replace=False)
    X[rare, 1], Y[rare, 1] = 1, 1
    X, Y = sp.csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True)), sp.csr_matrix(Y)
    texts = X[rare]
    plain = Fastxml(FastxmlParams(trees=5, C=20.0)).fit(X, Y).predict(texts, 2)
    scored = Fastxml(FastxmlParams(trees=5, C=20.0, propensity=True)).fit(X, Y).predict(texts, 2)
    assert np.mean(scored.labels[:, 0] == 1) > np.mean(plain.labels[:, 0] == 1)


@pytest.mark.shared_data
def test_quality_on_bibtex_is_near_the_published_one():
    if not SHARED.exists():
        pytest.skip("needs ../shared/data")
    from coattail.arrays import unit_rows
    from coattail.data.formats.xmc import read_xmc

    (X, Y), (Xt, Yt) = (read_xmc(SHARED / "bibtex" / f"{s}.txt") for s in ("train", "test"))
    top = Fastxml(FastxmlParams(trees=10)).fit(unit_rows(X), Y).predict(unit_rows(Xt), 5)
    hits = Yt.toarray()[np.arange(Yt.shape[0])[:, None], np.maximum(top.labels, 0)]
    assert hits[:, 0].mean() > 0.58  # 50 trees: 0.63
