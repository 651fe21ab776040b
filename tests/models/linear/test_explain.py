"""Contributions and norms of linear models, against what the models themselves predict."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.data.features import Block
from coattail.errors import ModelError
from coattail.labels import tree_building, tree_params
from coattail.models.linear.explain import contributions, norms
from coattail.models.linear.linear_models import build, fit_blocks
from coattail.models.linear.linear_params import FastxmlParams, OvrParams, PltParams

N_WORDS, N_LABELS = 12, 6


def problem(seed: int = 0) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Label l is true where word l stands; the other words are noise."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((120, N_WORDS)) < 0.3) * rng.random((120, N_WORDS))
    dense[:, -1] += 0.1  # no empty text
    X = sp.csr_matrix(dense.astype(np.float32))
    return X, sp.csr_matrix((dense[:, :N_LABELS] > 0).astype(np.float32))


def one_word(word: int, value: float = 1.0) -> sp.csr_matrix:
    return sp.csr_matrix(([value], ([0], [word])), shape=(1, N_WORDS), dtype=np.float32)


def by_hand(margin) -> np.ndarray:
    """Weights (words, labels) as far as they are positive, from margins of one-word texts."""
    silent = margin(sp.csr_matrix((1, N_WORDS), dtype=np.float32))
    return np.stack([margin(one_word(word)) - silent for word in range(N_WORDS)])


def margins(model, x: sp.csr_matrix) -> np.ndarray:
    top = model.predict(x, N_LABELS)
    out = np.full(N_LABELS, np.nan)
    out[top.labels[0]] = top.scores[0]
    return out


def test_contributions_of_one_vs_rest_are_its_margins_without_the_bias():
    X, Y = problem()
    model = build(OvrParams(prune=0.0)).fit(X, Y)
    weights = by_hand(lambda x: margins(model, x))
    found = contributions(model, X[3], range(N_LABELS), N_WORDS)
    x = X[3].toarray()[0]
    for label, words in enumerate(found):
        expected = {j: x[j] * weights[j, label] for j in range(N_WORDS)}
        expected = {j: value for j, value in expected.items() if value > 1e-6}
        assert {j for j, _ in words} == set(expected)
        assert [value for _, value in words] == sorted((v for _, v in words), reverse=True)
        for j, value in words:
            assert value == pytest.approx(expected[j], rel=1e-3, abs=1e-5)


def test_contributions_of_a_label_tree_are_those_of_the_classifier_at_the_leaf():
    X, Y = problem()
    model = build(
        PltParams(loss="logistic", prune=0.0), tree_building.build(tree_params.FlatTree(), X, Y)
    ).fit(X, Y)

    def margin(x: sp.csr_matrix) -> np.ndarray:
        score = margins(model, x)  # a sigmoid: in a flat tree the leaf alone decides
        return np.log(score / (1 - score))

    weights = by_hand(margin)
    found = contributions(model, X[3], range(N_LABELS), N_WORDS)
    x = X[3].toarray()[0]
    assert all(words == [] or words[0][1] > 0 for words in found)
    shown = {(j, label): value for label, words in enumerate(found) for j, value in words}
    assert len(shown) >= N_LABELS
    for (j, label), value in shown.items():
        assert value == pytest.approx(x[j] * weights[j, label], rel=1e-2, abs=1e-3)
    left_out = [pair for pair in np.ndindex(N_WORDS, N_LABELS) if pair not in shown]
    assert all(x[j] * weights[j, label] < 1e-3 for j, label in left_out)


def trees_of(X, Y):
    return tree_building.build(tree_params.BalancedTree(leaf=2), X, Y)


@pytest.mark.parametrize("kind", ["ovr", "plt", "blocks"])
def test_norms_add_up_the_weights_that_contributions_show(kind):
    X, Y = problem()
    if kind == "ovr":
        model = build(OvrParams()).fit(X, Y)
    elif kind == "plt":
        model = build(PltParams(), trees_of(X, Y)).fit(X, Y)
        assert model.trees_[0].depth > 0
    else:
        even, odd = np.arange(0, N_LABELS, 2), np.arange(1, N_LABELS, 2)
        blocks = [Block("even", X, Y[:, even], even), Block("odd", X, Y[:, odd], odd)]
        model = fit_blocks(OvrParams(), None, blocks, N_LABELS)
    squares = np.zeros(N_LABELS)
    for word in range(N_WORDS):
        for sign in (1.0, -1.0):
            shown = contributions(model, one_word(word, sign), range(N_LABELS), 1)
            squares += [sum(value for _, value in words) ** 2 for words in shown]
    np.testing.assert_allclose(norms(model), np.sqrt(squares), rtol=1e-5)
    assert (norms(model) > 0).all()


def test_blocks_explain_a_label_by_the_base_that_has_it():
    X, Y = problem()
    even, odd = np.arange(0, N_LABELS, 2), np.arange(1, N_LABELS, 2)
    blocks = [Block("even", X, Y[:, even], even), Block("odd", X, Y[:, odd], odd)]
    model = fit_blocks(OvrParams(), None, blocks, N_LABELS)
    alone = build(OvrParams()).fit(X, Y[:, odd])
    assert contributions(model, X[3], odd, 4) == contributions(alone, X[3], range(len(odd)), 4)


def test_a_label_without_a_training_text_has_no_words_and_no_norm():
    X, Y = problem()
    Y = sp.lil_matrix(Y)
    Y[:, 2] = 0
    Y = sp.csr_matrix(Y)
    for model in (build(OvrParams()).fit(X, Y), build(PltParams(), trees_of(X, Y)).fit(X, Y)):
        assert contributions(model, X[3], [2], 4) == [[]]
        assert norms(model)[2] == 0


def test_a_model_without_a_classifier_per_label_explains_nothing():
    X, Y = problem()
    model = build(FastxmlParams(trees=2)).fit(X, Y)
    assert contributions(model, X[0], [0], 4) is None
    assert norms(model) is None


def test_contributions_are_of_one_text():
    X, Y = problem()
    model = build(OvrParams()).fit(X, Y)
    with pytest.raises(ModelError, match="one text, got 2 rows"):
        contributions(model, X[:2], [0], 4)
