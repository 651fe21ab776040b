"""Evidence from several rankings: parts that travel, a calibration that reads them, new texts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import DEPTH, TopK, best_first
from coattail.data.corpus import PreprocessParams
from coattail.data.features import Features
from coattail.data.preprocess import prepare
from coattail.errors import DataError, ModelError
from coattail.labels.frequency import inverse_propensity
from coattail.models.linear.linear_params import NearestParams, OvrParams
from coattail.models.linear.nearest import Nearest
from coattail.models.linear.ovr import Ovr
from coattail.models.ranking.calibration import true_places
from coattail.models.ranking.ensemble import Ensemble, EnsembleParams, combine
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams
from coattail.pipeline.candidates import candidates
from coattail.serving.bundle import bundle
from coattail.serving.tagger import Tagger

# --- parts ---------------------------------------------------------------------------------------


def top(labels, scores, parts=None, kind="probability"):
    return TopK(
        np.array(labels, np.int32),
        np.array(scores, np.float32),
        kind,
        None if parts is None else np.array(parts, np.float32),
    )


def test_parts_are_sorted_cut_padded_and_saved_with_their_labels(tmp_path):
    one = best_first([[4, -1, 7]], [[0.1, 9.0, 0.6]], 3, parts=np.array([[[1, 2], [3, 4], [5, 6]]]))
    assert one.labels.tolist() == [[7, 4, -1]]
    assert one.parts.tolist() == [[[5, 6], [1, 2], [3, 4]]]
    assert one.head(1).parts.tolist() == [[[5, 6]]]
    assert one.head(4).parts[0, 3].tolist() == [0, 0]
    assert one.rows(slice(0, 0)).parts.shape == (0, 3, 2)
    one.save(tmp_path / "r.npz")
    np.testing.assert_array_equal(TopK.load(tmp_path / "r.npz").parts, one.parts)
    top([[1]], [[0.5]]).save(tmp_path / "plain.npz")
    assert TopK.load(tmp_path / "plain.npz").parts is None
    with pytest.raises(DataError, match="parts of shape"):
        top([[1]], [[0.5]], [[0.5]])


def test_an_average_tells_what_each_list_said():
    out = combine(top([[1, 2]], [[0.8, 0.4]]), top([[2, 3]], [[0.9, 0.6]]), 0.25, 4)
    assert out.labels.tolist() == [[2, 3, 1, -1]]
    np.testing.assert_allclose(out.parts[0], [[0.4, 0.9], [0, 0.6], [0.8, 0], [0, 0]], rtol=1e-6)


def test_an_average_of_averages_tells_all_and_parts_stand_for_their_list():
    pair = combine(top([[1, 2]], [[0.8, 0.4]]), top([[2]], [[0.9]]), 0.5, 2)
    third = top([[2, 5]], [[0.3, 0.2]], [[[0.7, 0.6], [0.5, 0.1]]])
    out = combine(pair, third, 1.0, 3)
    assert out.labels.tolist() == [[2, 1, 5]]  # the third has no weight, but is still listed, last
    expected = [[0.4, 0.9, 0.7, 0.6], [0.8, 0, 0, 0], [0, 0, 0.5, 0.1]]
    np.testing.assert_allclose(out.parts[0], expected, rtol=1e-6)


# --- a calibration that reads them ---------------------------------------------------------------

LABELS, TEXTS = 60, 1200


def world(seed=0):
    """A base that scores by chance, beside a ranking that knows."""
    rng = np.random.default_rng(seed)
    own = np.argsort(rng.random((TEXTS, LABELS)), axis=1)[:, :3]
    Y = np.zeros((TEXTS, LABELS), np.float32)
    np.put_along_axis(Y, own, 1, axis=1)
    everything = np.tile(np.arange(LABELS), (TEXTS, 1))
    base = best_first(everything, rng.uniform(0.1, 0.9, Y.shape), 20)
    knows = best_first(everything, 0.4 + 0.2 * Y, LABELS)
    counts = 2 * Y.sum(axis=0).astype(np.int64)
    both = combine(base, knows, 1.0, 20)
    return both, sp.csr_matrix(Y), counts, inverse_propensity(counts, 2 * TEXTS)


NAMES, WORDS = [f"name{i}" for i in range(LABELS)], ["some words"] * TEXTS


def reranker(**settings):
    params = {"base": "b", "strategy": "learned", "calibration": "boosted"} | settings
    return Reranker(RerankParams(**params), NAMES)


def test_what_another_ranking_is_worth_is_learned():
    base, Y, counts, q = world()
    model = reranker().fit(base, Y, counts, q, WORDS)
    first = true_places(model.predict(base, 20, WORDS), Y)
    listed = true_places(base, Y).sum(axis=1)
    assert all(row[:n].all() for row, n in zip(first, listed, strict=True))
    assert model.learned_.chosen.calibration == "boosted"


def test_save_and_load_agree_bit_for_bit_and_one_text_is_ranked_as_among_many(tmp_path):
    base, Y, counts, q = world()
    model = reranker(strategy="power", power=0.0).fit(base, Y, counts, q, WORDS)
    for name in ("a", "b"):
        model.save(tmp_path / name)
        model = Reranker.load(tmp_path / name)
    assert (tmp_path / "a/params.json").read_bytes() == (tmp_path / "b/params.json").read_bytes()
    many, one = model.predict(base, 9, WORDS), model.predict(base.rows(slice(7, 8)), 9, WORDS[:1])
    assert one.labels[0].tobytes() == many.labels[7].tobytes()
    assert one.scores[0].tobytes() == many.scores[7].tobytes()


def test_a_base_with_other_parts_and_missing_texts_are_clear_errors():
    base, Y, counts, q = world()
    model = reranker().fit(base, Y, counts, q, WORDS)
    with pytest.raises(ModelError, match="rank with the base it was fitted on"):
        model.predict(TopK(base.labels, base.scores), 5, WORDS)
    with pytest.raises(DataError, match="boosted reads the texts"):
        model.predict(base, 5)


def test_lists_with_gaps_and_no_texts_at_all_pass():
    base, Y, counts, q = world()
    model = reranker().fit(base, Y, counts, q, WORDS)
    gaps = base.head(22).rows(slice(2))
    assert (model.predict(gaps, 22, WORDS[:2]).labels[:, 20:] == -1).all()
    assert model.predict(base.rows(slice(0, 0)), 3, []).labels.shape == (0, 3)


def test_a_base_trained_again_has_seen_the_labels_of_validation():
    base, Y, counts, q = world()
    counts = counts.copy()
    counts[5] = Y[:, 5].sum()  # in validation only
    model = reranker().fit(base, Y, counts, q, WORDS)
    assert not (model.predict(base, 20, WORDS).labels == 5).any()
    model.refit(counts)
    assert (model.predict(base, 20, WORDS).labels == 5).any()
    np.testing.assert_array_equal(model.frequency_, counts)


# --- new texts -----------------------------------------------------------------------------------


def test_a_new_text_is_ranked_as_in_the_pipeline(tmp_path):
    rng = np.random.default_rng(0)
    topics = ["fish", "road", "sugar", "tax", "ship", "wine"]
    raw = tmp_path / "raw"
    raw.mkdir()
    for split in ("train", "valid", "test"):
        with open(raw / f"{split}.jsonl", "w") as file:
            for i in range(60):
                own = rng.choice(topics, 2, replace=False).tolist()
                text = " ".join([*own, *rng.choice(["law", "act", "rule"], 3)])
                file.write(json.dumps({"id": f"{split}{i}", "text": text, "labels": own}) + "\n")
    files = {split: f"{split}.jsonl" for split in ("train", "valid", "test")}
    manifest = {"name": "toy", "format": "jsonl", "files": files}
    propensity = {"propensity": {"A": 0.55, "B": 1.5}}
    (raw / "manifest.json").write_text(json.dumps(manifest | propensity))
    data = tmp_path / "data"
    prepare(raw, data / "features", PreprocessParams(min_df=1))
    features = Features(data / "features")
    models = {
        "ovr": Ovr(OvrParams()).fit(features.X("train"), features.Y("train")),
        "near": Nearest(NearestParams(neighbours=3)).fit(features.X("train"), features.Y("train")),
    }
    ranked = {
        split: [model.predict(features.X(split), DEPTH) for model in models.values()]
        for split in ("valid", "test")
    }
    Y = features.Y("valid")
    mean = Ensemble(EnsembleParams(first="ovr", second="near")).fit(*ranked["valid"], Y)
    valid, test = (mean.predict(*ranked[split], DEPTH) for split in ("valid", "test"))
    params = RerankParams(base="mean", strategy="learned", calibration="boosted", refit=True)
    best = Reranker(params, features.label_names).fit(
        valid, Y, features.counts, features.inverse_propensity, features.texts("valid")
    )
    best.refit(features.counts)
    for name, model in {**models, "mean": mean, "best": best}.items():
        model.save(data / "models" / name)
    known = candidates(
        {
            "train_linear": {
                "ovr": {"model": "ovr", "tree": "flat"},
                "near": {"model": "nearest", "tree": "flat"},
            },
            "ensemble": {"mean": {"first": "ovr", "second": "near"}},
            "rerank": {"best": {"base": "mean"}},
        }
    )
    bundle(tmp_path / "bundle", "best", known, data)
    texts = features.texts("test")
    expected = best.predict(test, 5, texts)
    found = Tagger.of_bundle(tmp_path / "bundle").rank(texts, 5)
    assert found.labels.tobytes() == expected.labels.tobytes()
    assert found.scores.tobytes() == expected.scores.tobytes()
    assert Tagger.of_bundle(tmp_path / "bundle").rank(["", "unknown words"], 5).labels.shape == (
        2,
        5,
    )
