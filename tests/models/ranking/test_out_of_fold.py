"""A ranking of validation that is handed on has not seen the labels of the texts it ranks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import TopK, best_first
from coattail.errors import ModelError
from coattail.evaluation import metrics
from coattail.labels.frequency import inverse_propensity
from coattail.models.ranking import boosting
from coattail.models.ranking.calibration import Calibration
from coattail.models.ranking.cross_fit import CrossFit, deal, together
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams

L, N, TRAIN = 40, 150, 500
NAMES = [f"name{i}" for i in range(L)]
RERANKINGS = [
    {"strategy": "propensity"},
    {"strategy": "imbalance"},
    {"strategy": "power", "calibration": "platt"},
    {"strategy": "power", "calibration": "isotonic"},
    {"strategy": "frequency_plus", "calibration": "context"},
    {"strategy": "power", "calibration": "names"},
    {"strategy": "power", "calibration": "boosted"},
    {"strategy": "learned", "steps": 4, "allowed_loss": 5.0},
    {"strategy": "learned", "steps": 4, "floor_from": "best", "confidence": 0.5},
    {"strategy": "learned", "steps": 4, "calibration": "names", "allowed_loss": 20.0},
    {"strategy": "learned", "steps": 4, "calibration": "boosted", "allowed_loss": 20.0},
]


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(boosting, "TREES", 15)


class World:
    """Validation and test texts whose labels have something (or nothing) to do with the scores."""

    def __init__(self, seed=0, n=N, signal=0.5):
        self.rng = np.random.default_rng(seed)
        self.signal, self.train = signal, self.rng.integers(1, 60, L)
        self.n, self.Y = n, self.labels(n)
        self.top, self.other = self.ranking(self.Y), self.ranking(self.Y)
        self.q = inverse_propensity(self.train, TRAIN)

    def labels(self, n):
        return sp.csr_matrix((self.rng.random((n, L)) < 0.1).astype(np.float32))

    def ranking(self, Y):
        scores = self.rng.random(Y.shape) + self.signal * Y.toarray()
        return best_first(np.tile(np.arange(L), (Y.shape[0], 1)), scores / 2, 15)

    def texts(self, n):
        return [" ".join(self.rng.choice(NAMES, 4)) for _ in range(n)]

    def reranker(self, Y, texts, settings):
        counts = self.train + np.asarray(Y.sum(axis=0), np.int64).ravel()
        params = RerankParams(base="b", **settings)
        q = inverse_propensity(counts, TRAIN + self.n)
        return Reranker(params, NAMES).fit(self.top, Y, counts, q, texts, self.q)


def content(top: TopK, rows):
    return [
        None if array is None else array[rows].tobytes()
        for array in (top.labels, top.scores, top.probability, top.parts)
    ]


def with_other_labels(Y, rows, seed=1):
    changed = Y.toarray()
    changed[rows] = np.random.default_rng(seed).random((int(rows.sum()), L)) < 0.3
    return sp.csr_matrix(changed)


@pytest.mark.parametrize("settings", RERANKINGS)
def test_a_folds_own_labels_change_no_byte_of_its_reranking(settings):
    world = World()
    texts = world.texts(N)
    before = world.reranker(world.Y, texts, settings).out_of_fold(15).validate(L)
    rows = deal(N, 5, 0) == 3
    other = world.reranker(with_other_labels(world.Y, rows), texts, settings).out_of_fold(15)
    assert content(other, rows) == content(before, rows)
    if settings.get("calibration") or settings["strategy"] == "learned":
        assert content(other, ~rows) != content(before, ~rows)  # the others did learn of it


def test_a_folds_own_labels_change_no_byte_of_its_average_and_others_may_change_its_weight():
    world, fold = World(signal=0.2), deal(N, 5, 0)
    params = EnsembleParams(first="a", second="b")
    before = Ensemble(params).fit(world.top, world.other, world.Y)
    average = before.out_of_fold(world.top, world.other, 15).validate(L)
    same = []
    for number in range(5):
        rows = fold == number
        Y = with_other_labels(world.Y, rows)
        model = Ensemble(params).fit(world.top, world.other, Y)
        other = model.out_of_fold(world.top, world.other, 15)
        assert content(other, rows) == content(average, rows)
        same.append(content(other, ~rows) == content(average, ~rows))
    assert not all(same)


@pytest.mark.parametrize(
    "settings", [one for one in RERANKINGS if one["strategy"] in ("power", "learned")]
)
def test_reranked_noise_is_ranked_no_better_on_validation_than_on_test(settings):
    gaps = []
    for seed in range(3):
        world = World(seed, signal=0.0)
        Y_new = world.labels(2 * N)
        new = world.ranking(Y_new)
        texts, new_texts = world.texts(N), world.texts(2 * N)
        model = world.reranker(world.Y, texts, settings)
        valid, test = model.out_of_fold(15), model.predict(new, 15, new_texts)
        gaps.append(ndcg(valid, world.Y) - ndcg(test, Y_new))
    assert np.mean(gaps) < 3  # the standard deviation of this mean is 1.4 at most


def ndcg(top, Y):
    return metrics.judge(top, Y).ratio("ndcg", 5).percent


def test_boosted_noise_seems_good_to_whoever_looks_at_the_texts_of_the_fit():
    # What the test above would see if valid.npz were `predict`, as it once was.
    world = World(signal=0.0)
    texts = world.texts(N)
    model = world.reranker(world.Y, texts, {"strategy": "power", "calibration": "boosted"})
    seen, unseen = model.predict(world.top, 15, texts), model.out_of_fold(15)
    assert ndcg(seen, world.Y) > ndcg(unseen, world.Y) + 8


def test_an_average_of_noise_is_no_better_on_validation_than_on_test():
    gaps = []
    for seed in range(8):
        world = World(seed, signal=0.0)
        Y_new = world.labels(2 * N)
        pair = world.ranking(Y_new), world.ranking(Y_new)
        model = Ensemble(EnsembleParams(first="a", second="b")).fit(world.top, world.other, world.Y)
        valid = model.out_of_fold(world.top, world.other, 15)
        gaps.append(ndcg(valid, world.Y) - ndcg(model.predict(*pair, 15), Y_new))
    assert np.mean(gaps) < 1.5


def test_maps_for_pairs_of_folds_are_those_of_a_fit_without_both():
    world = World()
    hits = np.take_along_axis(world.Y.toarray() > 0, world.top.labels, 1)
    frequency, fold = world.train.astype(float), deal(N, 4, 3)
    cross = CrossFit("context", world.top, hits, frequency, None, fold)
    for number in range(4):
        alone = cross.without(number)
        assert not alone[fold == number].any()
        for other in {0, 1, 2, 3} - {number}:
            rest, rows = ~np.isin(fold, (number, other)), fold == other
            map_ = Calibration("context").fit(world.top.rows(rest), hits[rest], frequency)
            np.testing.assert_array_equal(alone[rows], map_(world.top.rows(rows), frequency))


def test_fewer_texts_than_folds_and_one_text_alone_are_ranked():
    for n in (1, 3):
        world = World(n=n)
        for settings in RERANKINGS:
            top = world.reranker(world.Y, world.texts(n), settings).out_of_fold(5)
            assert top.validate(L).n == n


def test_no_text_is_ranked_by_a_strategy_that_needs_none():
    world = World(n=0)
    assert world.reranker(world.Y, [], {"strategy": "power"}).out_of_fold(5).labels.shape == (0, 5)
    model = Ensemble(EnsembleParams(first="a", second="b")).fit(world.top, world.top, world.Y)
    assert model.out_of_fold(world.top, world.top, 5).n == 0


def test_a_loaded_model_has_no_validation_texts_to_rank(tmp_path):
    world = World()
    model = world.reranker(world.Y, world.texts(N), {"strategy": "power"})
    model.save(tmp_path / "r")
    with pytest.raises(ModelError, match="no validation texts"):
        Reranker.load(tmp_path / "r").out_of_fold(5)
    mean = Ensemble(EnsembleParams(first="a", second="b")).fit(world.top, world.other, world.Y)
    mean.save(tmp_path / "e")
    with pytest.raises(ModelError, match="no validation texts"):
        Ensemble.load(tmp_path / "e").out_of_fold(world.top, world.other, 5)


def test_rankings_of_some_texts_each_are_put_together_with_all_they_carry():
    world = World()
    rows = np.random.default_rng(0).random(N) < 0.3
    carry = np.random.default_rng(1).random((N, 15, 2)).astype(np.float32)
    top = TopK(world.top.labels, world.top.scores, "score", carry, world.top.scores)
    parts = [(rows, top.rows(rows)), (~rows, top.rows(~rows))]
    back = together(parts)
    assert content(back, slice(None)) == content(top, slice(None))
    assert back.kind == "score"
