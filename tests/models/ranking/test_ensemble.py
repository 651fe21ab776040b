"""Ensembles of two rankings: the mean by hand and by a slow loop, the weight chosen, borders."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.arrays import TopK, best_first
from coattail.config import parse
from coattail.errors import ConfigError, DataError, ModelError
from coattail.models.ranking.calibration import probabilities
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams, combine
from coattail.models.ranking.rerank import apply


def top(labels, scores, kind="probability"):
    return TopK(np.array(labels, np.int32), np.array(scores, np.float32), kind)


def random_top(rng, n, k, labels=9, kind="probability"):
    ids = np.array([rng.permutation(labels)[:k] for _ in range(n)]).reshape(n, k)
    ids = np.where(rng.random((n, k)) < 0.2, -1, ids)
    return best_first(ids, rng.random((n, k)), k, kind)


def test_means_by_hand_and_absent_labels_count_as_zero():
    a = top([[1, 2]], [[0.8, 0.4]])
    b = top([[2, 3]], [[0.9, 0.6]])
    out = combine(a, b, 0.25, 4)
    np.testing.assert_array_equal(out.labels, [[2, 3, 1, -1]])
    np.testing.assert_allclose(out.scores[0, :3], [0.775, 0.45, 0.2], rtol=1e-6)
    assert out.kind == "probability"
    out.validate(4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 6), st.integers(1, 12))
def test_combine_equals_a_slow_dictionary(seed, ka, kb, k):
    rng = np.random.default_rng(seed)
    a, b = random_top(rng, 4, ka), random_top(rng, 4, kb)
    weight = float(rng.random())
    out = combine(a, b, weight, k).validate(9)
    for i in range(4):
        total: dict[int, float] = {}
        for part, share in ((a, weight), (b, 1 - weight)):
            for label, score in zip(part.labels[i], part.scores[i], strict=True):
                if label >= 0:
                    total[int(label)] = total.get(int(label), 0) + share * float(score)
        ranked = sorted(total.items(), key=lambda item: (-np.float32(item[1]), item[0]))[:k]
        found = out.labels[i][out.labels[i] >= 0]
        np.testing.assert_array_equal(found, [label for label, _ in ranked])


def test_weight_one_and_zero_give_the_single_rankings_first():
    rng = np.random.default_rng(0)
    a, b = random_top(rng, 20, 4), random_top(rng, 20, 4)
    for weight, alone in ((1.0, a), (0.0, b)):
        out = combine(a, b, weight, 4)
        real = alone.labels >= 0
        np.testing.assert_array_equal(out.labels[real], alone.labels[real])


def test_margins_become_probabilities_first():
    a = top([[0, 1]], [[2.0, -1.0]], "margin")
    b = top([[1, 0]], [[0.9, 0.1]])
    out = combine(a, b, 0.5, 2)
    expected = 0.5 * probabilities(a) + 0.5 * np.array([[0.1, 0.9]])
    np.testing.assert_allclose(out.scores, expected, rtol=1e-5)


def test_average_of_an_average_is_the_mean_of_three():
    rng = np.random.default_rng(5)
    a, b, c = (random_top(rng, 30, 4) for _ in range(3))
    out = combine(combine(a, b, 0.5, 9), c, 0.6666667, 9)
    mean = sum(top.to_csr(9).toarray().astype(np.float64) for top in (a, b, c)) / 3
    for i in range(30):
        found = out.labels[i][out.labels[i] >= 0]
        np.testing.assert_allclose(out.scores[i][: len(found)], mean[i][found], rtol=1e-5)
        assert np.count_nonzero(mean[i]) == len(found)


def test_equal_means_go_to_the_smaller_label():
    out = combine(top([[5]], [[0.5]]), top([[3]], [[0.5]]), 0.5, 2)
    np.testing.assert_array_equal(out.labels, [[3, 5]])


def test_chosen_weight_leans_to_the_better_ranking():
    rng = np.random.default_rng(1)
    Y = sp.csr_matrix((rng.random((300, 9)) < 0.2).astype(np.float32))
    ids = np.tile(np.arange(9), (300, 1))
    good = best_first(ids, np.clip(Y.toarray() * 0.5 + 0.5 * rng.random((300, 9)), 0, 1), 9)
    bad = best_first(ids, rng.random((300, 9)), 9)
    for first, second, best in ((good, bad, 1.0), (bad, good, 0.0)):
        model = Ensemble(EnsembleParams(first="a", second="b")).fit(first, second, Y)
        assert abs(model.weight_ - best) <= 0.2
        values = [p["ndcg_at_5"] for p in model.front_]
        chosen = next(p for p in model.front_ if p["weight"] == model.weight_)
        assert chosen["ndcg_at_5"] == max(values)


def test_two_equal_rankings_choose_the_even_mix():
    rng = np.random.default_rng(2)
    a = random_top(rng, 50, 5)
    Y = sp.csr_matrix((rng.random((50, 9)) < 0.3).astype(np.float32))
    assert Ensemble(EnsembleParams(first="a", second="b")).fit(a, a, Y).weight_ == 0.5


def test_a_given_weight_is_kept():
    rng = np.random.default_rng(3)
    a, b = random_top(rng, 5, 3), random_top(rng, 5, 3)
    model = Ensemble(EnsembleParams(first="a", second="b", weight=0.3))
    assert model.fit(a, b, sp.csr_matrix((5, 9), dtype=np.float32)).weight_ == 0.3


def test_save_and_load_agree(tmp_path):
    rng = np.random.default_rng(4)
    a, b = random_top(rng, 30, 4), random_top(rng, 30, 5)
    Y = sp.csr_matrix((rng.random((30, 9)) < 0.3).astype(np.float32))
    model = Ensemble(EnsembleParams(first="a", second="b")).fit(a, b, Y)
    model.save(tmp_path / "e")
    back = Ensemble.load(tmp_path / "e")
    assert back.params == model.params
    assert back.predict(a, b, 3).scores.tobytes() == model.predict(a, b, 3).scores.tobytes()


def test_mistakes_are_clear_errors(tmp_path):
    a, b = top([[0]], [[0.5]]), top([[0], [1]], [[0.5], [0.5]])
    with pytest.raises(DataError, match="ranks 1 texts, the second 2"):
        combine(a, b, 0.5, 1)
    with pytest.raises(DataError, match="between 0 and 1"):
        combine(a, a, 1.5, 1)
    with pytest.raises(ModelError, match="not a saved ensemble"):
        Ensemble.load(tmp_path)
    with pytest.raises(ConfigError):
        parse({"first": "a", "second": "b", "weight": 2.0}, EnsembleParams, "ensemble.x")


def test_a_reranked_list_enters_with_its_probabilities_not_with_its_scores():
    plain, other = top([[0, 1, 2]], [[0.9, 0.5, 0.1]]), top([[2, 0]], [[0.6, 0.2]])
    reranked = apply(plain, np.array([1.0, 2.0, 40.0]), 3)
    np.testing.assert_array_equal(reranked.labels, [[2, 1, 0]])
    for pair, same in (((reranked, other), (plain, other)), ((other, reranked), (other, plain))):
        found, expected = combine(*pair, 0.3, 5), combine(*same, 0.3, 5)
        np.testing.assert_array_equal(found.labels, expected.labels)
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.parts, expected.parts)
        assert found.kind == "probability"


def test_a_list_that_only_orders_cannot_be_averaged():
    order = top([[0, 1]], [[2.0, 1.0]], "score")
    with pytest.raises(DataError, match="promise an order alone"):
        combine(order, order, 0.5, 2)
