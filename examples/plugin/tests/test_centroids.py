"""The contract of all models, and what is true of means only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from coattail_centroids.model import Centroids, add_label, explain
from coattail_centroids.params import CentroidsParams

from coattail.testing.model_contract import ModelContract


class TestCentroids(ModelContract):
    def make(self) -> Centroids:
        return Centroids(CentroidsParams())

    def load(self, folder: Path) -> Centroids:
        return Centroids.load(folder)


X = sp.csr_matrix(np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], np.float32))
Y = sp.csr_matrix(np.array([[1, 0], [1, 0], [0, 1]], np.float32))


def test_scores_are_cosines_with_the_mean_text() -> None:
    model = Centroids(CentroidsParams()).fit(X, Y)
    mean = np.array([1.6, 0.8]) / np.hypot(1.6, 0.8)
    top = model.predict(X[:1], 2)
    assert top.labels.tolist() == [[0, -1]]  # no word in common with label 1
    np.testing.assert_allclose(top.scores[0, 0], mean[0], rtol=1e-6)


def test_a_prior_favours_frequent_labels() -> None:
    both = sp.csr_matrix(np.array([[0, 0.6, 0.8]], np.float32))
    plain = Centroids(CentroidsParams()).fit(X, Y).predict(both, 1)
    favoured = Centroids(CentroidsParams(prior=1.0)).fit(X, Y).predict(both, 2)
    assert plain.labels[0, 0] == 1
    assert favoured.scores[0, 1] < 2 * plain.scores[0, 0]
    np.testing.assert_allclose(favoured.scores[favoured.labels == 1], 0.8, rtol=1e-6)


def test_words_that_explain_add_up_to_the_score() -> None:
    model = Centroids(CentroidsParams()).fit(X, Y)
    (words,) = explain(model, X[1], [0], 3)
    assert [word for word, _ in words] == [0, 1]
    score = model.predict(X[1], 1).scores[0, 0]
    np.testing.assert_allclose(sum(weight for _, weight in words), score, rtol=1e-6)


def test_an_added_label_is_the_one_of_training_with_its_texts() -> None:
    model = Centroids(CentroidsParams()).fit(X, Y)
    add_label(model, "new", X[1:2], lambda: None)
    grown = sp.csr_matrix(np.hstack([Y.toarray(), [[0], [1], [0]]]).astype(np.float32))
    whole = Centroids(CentroidsParams()).fit(X, grown)
    assert model.predict(X, 3).labels.tolist() == whole.predict(X, 3).labels.tolist()
