"""AttentionXML over a tree: candidates against a slow reference, and learning by levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.arrays import Ragged, TopK
from coattail.errors import ModelError
from coattail.evaluation import metrics
from coattail.labels.tree import Tree
from coattail.models.deep import batching
from coattail.models.deep.deep_models import build, load
from coattail.models.deep.deep_params import AttentionXmlParams
from coattail.models.deep.estimators.level_model import LevelModel
from coattail.models.deep.estimators.tree_levels import Family, Level, choose_parents, levels_of
from coattail.models.deep.training import checkpoint
from coattail.testing.network_contract import fit

WORDS, LABELS = 30, 8
# Root 0; clusters 1, 2, 3; clusters 4, 5 under 1 and 6, 7 under 2; node 3 holds labels itself.
TREE = Tree(
    np.array([-1, 0, 0, 0, 1, 1, 2, 2], np.int32),
    np.array([4, 5, 4, 6, 7, 3, -1, 3], np.int32),  # label 6 is in no leaf
)


def corpus(n: int, seed: int = 0) -> tuple[Ragged, sp.csr_matrix]:
    """Label j (but 6) is there exactly when word 2 + j is."""
    rng = np.random.default_rng(seed)
    texts, rows, columns = [], [], []
    for i in range(n):
        labels = rng.choice([0, 1, 2, 3, 4, 5, 7], rng.integers(1, 3), replace=False)
        words = np.concatenate([labels + 2, rng.integers(2 + LABELS, WORDS, rng.integers(0, 5))])
        texts.append(rng.permutation(words))
        rows += [i] * len(labels)
        columns += labels.tolist()
    indptr = np.cumsum([0, *(len(t) for t in texts)]).astype(np.int64)
    Y = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(n, LABELS))
    return Ragged(indptr, np.concatenate(texts).astype(np.int32)), Y


def params(**other: object) -> AttentionXmlParams:
    values = {
        "tree": "toy",
        "candidates": 2,
        "epochs": 10,
        "batch": 16,
        "embedding_dim": 12,
        "hidden": 8,
        "fc": [8],
        "lr": 0.02,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
        "label_outputs": True,
    }
    return AttentionXmlParams.model_validate({"model": "attentionxml", **values, **other})


def test_levels_of_a_tree_with_leaves_of_different_depth() -> None:
    top, middle, bottom = levels_of(TREE)
    assert top.item.tolist() == [0, 0, 0, 1, 1, 2, -1, 2]
    assert top.parent.tolist() == [0, 0, 0]
    # nodes 3, 4, 5, 6, 7 in this order; node 3 stays its own child
    assert middle.item.tolist() == [1, 2, 1, 3, 4, 0, -1, 0]
    assert middle.parent.tolist() == [2, 0, 0, 1, 1]
    assert bottom.item.tolist() == [0, 1, 2, 3, 4, 5, -1, 6]
    assert bottom.parent.tolist() == [1, 2, 1, 3, 4, 0, 0]


def test_a_flat_tree_has_one_level_of_labels() -> None:
    (only,) = levels_of(Tree(np.array([-1], np.int32), np.zeros(4, np.int32)))
    assert only.item.tolist() == [0, 1, 2, 3]


def test_targets_of_a_level_say_which_clusters_hold_a_label() -> None:
    Y = sp.csr_matrix(np.array([[1, 0, 1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 1, 1, 0, 1]], np.float32))
    assert levels_of(TREE)[0].targets(Y).toarray().tolist() == [[1, 0, 0], [0, 1, 1]]


def test_true_parents_come_first_then_the_best_predicted() -> None:
    true = sp.csr_matrix(np.array([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 1]], np.float32))
    labels = np.array([[1, 3, 2], [4, 2, -1], [2, 3, 4]], np.int32)
    scores = np.where(labels < 0, -np.inf, [[0.9, 0.8, 0.7]]).astype(np.float32)
    chosen = choose_parents(true, TopK(labels, scores), np.arange(3), 3)
    # text 0: 3 was predicted, 0 was not, 1 is the best wrong guess; text 2 has more than fit:
    # the predicted ones 2 and 4 first
    assert chosen.tolist() == [[3, 0, 1], [4, 2, -1], [2, 4, 0]]


def test_children_of_parents_equal_the_slow_way() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        parent = np.concatenate([np.arange(6), rng.integers(0, 6, 20)])
        parent = rng.permutation(parent)
        family = Family(Level(parent, np.zeros(0, np.int64)))
        parents = np.array([rng.permutation(6)[:3], [2, -1, -1], [-1, -1, -1]])
        items, source = family.columns(parents)
        for row in range(3):
            slow = [
                (child, column)
                for column, p in enumerate(parents[row])
                for child in range(len(parent))
                if p >= 0 and parent[child] == p
            ]
            got = list(zip(items[row].tolist(), source[row].tolist(), strict=True))
            assert got[: len(slow)] == slow
            assert set(got[len(slow) :]) <= {(-1, -1)}


def test_level_wise_training_learns_what_the_flat_model_learns(tmp_path: Path) -> None:
    tokens, Y = corpus(240)
    test = corpus(80, seed=1)
    model = build(params())
    assert isinstance(model, LevelModel)
    epochs: list[int] = []
    fit(
        model,
        tokens,
        Y,
        vocabulary_size=WORDS,
        valid=corpus(60, seed=2),
        trees=[TREE],
        threads=1,
        log=lambda _, epoch: epochs.append(epoch),
    )
    top = model.predict(test[0], 4).validate(LABELS)
    flat = fit(
        build(params(tree="flat", candidates=0)), tokens, Y, vocabulary_size=WORDS, threads=1
    )
    assert metrics.ranked(top, test[1], "ndcg", 5) > 88
    assert metrics.ranked(flat.predict(test[0], 4), test[1], "ndcg", 5) > 88
    assert 6 not in top.labels  # the label outside the tree
    assert epochs == list(range(len(epochs)))
    assert len(epochs) > 10
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(test[0], 4)
    assert np.array_equal(again.labels, top.labels)
    assert np.array_equal(again.scores, top.scores)
    weights = model.explain(test[0].row(0), [0, 7])
    assert weights.shape == (2, test[0].lengths[0])
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(ModelError, match="no training text"):
        model.explain(test[0].row(0), [6])


def test_score_is_the_product_along_the_path() -> None:
    tokens, Y = corpus(40)
    model = build(params(epochs=1, candidates=5))
    fit(model, tokens, Y, vocabulary_size=WORDS, trees=[TREE], threads=1)
    chain = model.chains_[0]
    one = tokens.take(np.array([0]))
    batch_logits = []
    batch = batching.pad(one, np.array([0]), 50, "cpu")
    for depth, level in enumerate(chain.levels):
        items = np.arange(level.n_items)[None, :]
        batch_logits.append(1 / (1 + np.exp(-chain._logits(depth, batch, items)[0])))
    top = model.predict(one, 7)
    for label, score in zip(top.labels[0], top.scores[0], strict=True):
        path = [level.item[label] for level in chain.levels]
        wanted = np.prod([batch_logits[d][item] for d, item in enumerate(path)])
        assert score == pytest.approx(wanted, rel=1e-4)


def test_trees_are_averaged_and_weighted_training_runs() -> None:
    tokens, Y = corpus(60)
    other = Tree(np.array([-1, 0, 0], np.int32), np.array([1, 2, 1, 2, 1, 2, -1, 1], np.int32))
    model = build(params(epochs=1, weighting="pwcb", mix="tailmix"))
    fit(model, tokens, Y, vocabulary_size=WORDS, trees=[TREE, other], threads=1)
    top = model.predict(tokens, 5).validate(LABELS)
    assert len(model.chains_) == 2
    assert [len(chain.nets) for chain in model.chains_] == [3, 2]
    assert top.scores[np.isfinite(top.scores)].max() <= 1


def test_same_seed_gives_the_same_model_and_finished_levels_are_not_trained_again(
    tmp_path: Path,
) -> None:
    tokens, Y = corpus(40)
    runs: list[list[int]] = []
    for folder in ("a", "b"):
        seen: list[int] = []
        model = build(params(epochs=2))
        fit(
            model,
            tokens,
            Y,
            vocabulary_size=WORDS,
            trees=[TREE],
            threads=1,
            log=lambda _, epoch, seen=seen: seen.append(epoch),
            checkpoint=tmp_path / "state.safetensors",
        )
        model.save(tmp_path / folder)
        runs.append(seen)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    checkpoint.forget(tmp_path / "state.safetensors")
    assert not list(tmp_path.glob("*.safetensors"))
    assert len(runs[0]) == 6
    assert runs[1] == []
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_a_tree_that_is_missing_or_of_other_labels_is_refused() -> None:
    tokens, Y = corpus(20)
    with pytest.raises(ModelError, match="none was given"):
        fit(build(params()), tokens, Y, vocabulary_size=WORDS)
    with pytest.raises(ModelError, match="8 labels but Y has 7"):
        fit(build(params()), tokens, Y[:, :7], vocabulary_size=WORDS, trees=[TREE])


def test_only_the_level_of_labels_logs_metrics_of_labels() -> None:
    tokens, Y = corpus(40)
    seen: list[dict[str, float]] = []
    fit(
        build(params(epochs=1)),
        tokens,
        Y,
        vocabulary_size=WORDS,
        trees=[TREE],
        valid=corpus(20, seed=1),
        threads=1,
        log=lambda numbers, _: seen.append(numbers),
    )
    *inner, last = [{name for name in numbers if "_at_" in name} for numbers in seen]
    assert inner == [{"level_ndcg_at_5"}] * 2
    assert last == {f"valid_{name}" for name in metrics.FOLLOWED}
