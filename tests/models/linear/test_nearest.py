"""Nearest texts: votes by hand and by a slow loop, borders, and the contract of all models."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.errors import ModelError
from coattail.models.linear import linear_models
from coattail.models.linear.linear_params import NearestParams
from coattail.models.linear.nearest import Nearest
from coattail.testing.model_contract import ModelContract


class TestNearest(ModelContract):
    def make(self):
        return Nearest(NearestParams(neighbours=5))

    def load(self, folder):
        return linear_models.load(folder)


def nearest(X, Y, neighbours=50):
    model = Nearest(NearestParams(neighbours=neighbours))
    return model.fit(sp.csr_matrix(X, dtype=np.float32), sp.csr_matrix(Y, dtype=np.float32))


def ask(model, row, k):
    return model.predict(sp.csr_matrix([row], dtype=np.float32), k)


def test_votes_and_the_nearest_text_by_hand():
    # Cosines to (1, 1, 0)/sqrt 2: 0.8 * 0.7071 + 0.6 * 0.7071, 0.7071 and 0.
    model = nearest([[0.8, 0.6, 0], [2, 0, 0], [0, 0, 1]], [[1, 0, 1], [0, 1, 1], [1, 1, 1]])
    top = ask(model, [1, 1, 0], 4)
    a, b = 1.4 / np.sqrt(2), 1 / np.sqrt(2)
    np.testing.assert_array_equal(top.labels, [[2, 0, 1, -1]])
    np.testing.assert_allclose(top.scores[0, :3], [1, a / (a + b), b / (a + b)], rtol=1e-6)
    expected = [[1, a], [a / (a + b), a], [b / (a + b), b], [0, 0]]
    np.testing.assert_allclose(top.parts[0], expected, rtol=1e-6)
    assert top.kind == "probability"


def test_only_so_many_texts_vote_and_the_earlier_of_equal_ones():
    model = nearest([[1, 0], [1, 0], [1, 1]], np.eye(3), neighbours=1)
    np.testing.assert_array_equal(ask(model, [1, 0], 3).labels, [[0, -1, -1]])


def test_a_text_without_a_known_word_has_no_labels():
    model = nearest([[1, 0, 0], [0, 1, 0]], np.eye(2))
    for row in ([0, 0, 0], [0, 0, 1]):
        top = ask(model, row, 2)
        np.testing.assert_array_equal(top.labels, [[-1, -1]])
        assert not top.parts.any()


def test_a_neighbour_without_labels_counts_in_the_whole():
    top = ask(nearest([[1, 0], [1, 0]], [[1], [0]]), [1, 0], 1)
    assert top.scores[0, 0] == pytest.approx(0.5)


def test_ties_go_to_the_smaller_label():
    np.testing.assert_array_equal(ask(nearest([[1]], [[1, 1, 1]]), [1], 2).labels, [[0, 1]])


def test_many_texts_equal_a_slow_loop():
    rng = np.random.default_rng(0)
    X = (rng.random((40, 12)) * (rng.random((40, 12)) < 0.3)).astype(np.float32)
    Y, Q = (rng.random((40, 7)) < 0.3).astype(np.float32), X[:15] + X[15:30]
    top = nearest(X, Y, 6).predict(sp.csr_matrix(Q), 7).validate(7)
    unit = [row / (np.linalg.norm(row) or 1) for row in X.astype(np.float64)]
    for i, row in enumerate(Q.astype(np.float64)):
        cosine = np.array([text @ row / (np.linalg.norm(row) or 1) for text in unit])
        chosen = [t for t in np.argsort(-cosine, kind="stable")[:6] if cosine[t] > 0]
        votes = sum((cosine[t] * Y[t] for t in chosen), np.zeros(7)) / cosine[chosen].sum()
        for place, label in enumerate(top.labels[i]):
            if label >= 0:
                best = max(cosine[t] for t in chosen if Y[t, label])
                np.testing.assert_allclose(top.parts[i, place], [votes[label], best], rtol=1e-5)
        assert (top.labels[i] >= 0).sum() == (votes > 0).sum()


def test_other_words_are_a_clear_error():
    with pytest.raises(ModelError, match="knows 2 words, X has 3"):
        ask(nearest([[1, 0]], [[1]]), [1, 0, 0], 1)
