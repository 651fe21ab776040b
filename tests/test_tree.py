"""Label trees: balance, order, determinism, compression, unseen labels, arrays on disk."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail import tree
from coattail.config import parse
from coattail.errors import ConfigError, DataError, ModelError
from coattail.tree import BalancedTree, FlatTree, KmeansTree, ShallowTree, Tree, TreeParams


def topics(n_topics=8, per_topic=16, texts=40, seed=0):
    """Label l is of topic l % topics; topic t owns words 4t..4t + 3."""
    rng = np.random.default_rng(seed)
    n_labels = n_topics * per_topic
    X = np.zeros((n_topics * texts, 4 * n_topics), np.float32)
    Y = np.zeros((n_topics * texts, n_labels), np.float32)
    for i in range(len(X)):
        topic = i % n_topics
        X[i, 4 * topic + rng.integers(0, 4, 3)] = 1
        Y[i, topic + n_topics * rng.integers(0, per_topic, 2)] = 1
    Y[:n_labels][np.arange(n_labels), np.arange(n_labels)] = 1  # text i is of label i's topic
    return sp.csr_matrix(X), sp.csr_matrix(Y)


METHODS = [
    FlatTree(),
    BalancedTree(leaf=10, trees=2),
    KmeansTree(leaf=10, k=8),
    KmeansTree(leaf=3, k=4, levels=3),
    ShallowTree(leaf=4, group=4, levels=2),
    BalancedTree(leaf=10, representation="both"),
    KmeansTree(leaf=10, k=8, representation="cooccurrence"),
]


@pytest.mark.parametrize("params", METHODS, ids=lambda p: f"{p.method}")
def test_every_label_hangs_under_exactly_one_leaf(params):
    X, Y = topics()
    for built in tree.build(params, X, Y):
        assert len(built.unseen) == 0
        assert sorted(built.label_order.tolist()) == list(range(Y.shape[1]))
        assert built.sizes[0] == Y.shape[1]
        for node in range(built.n_nodes):
            inner = len(built.children_of(node)) > 0
            assert inner != (len(built.labels_of(node)) > 0)  # children or labels, never both
            assert np.all(built.leaf[built.labels_of(node)] == node)
            assert np.all(built.parent[built.children_of(node)] == node)


@pytest.mark.parametrize("params", METHODS, ids=lambda p: f"{p.method}")
def test_same_seed_gives_the_same_tree_for_any_number_of_threads(params, monkeypatch):
    X, Y = topics()
    built = []
    for threads in ("1", "3"):
        monkeypatch.setenv("COATTAIL_THREADS", threads)
        built.append(tree.build(params, X, Y))
    for a, b in zip(*built, strict=True):
        assert np.array_equal(a.parent, b.parent)
        assert np.array_equal(a.leaf, b.leaf)


def test_balanced_leaves_differ_by_at_most_one_label():
    X, Y = topics(n_topics=7, per_topic=13)
    (built,) = tree.build(BalancedTree(leaf=6), X, Y)
    sizes = np.diff(built.first_label)
    leaves = sizes[sizes > 0]
    assert leaves.max() <= 6
    assert leaves.max() - leaves.min() <= 1
    assert len(leaves) == 16
    assert built.depth == 4


def test_several_trees_differ():
    X, Y = topics()
    first, second, third = tree.build(BalancedTree(leaf=10, trees=3), X, Y)
    assert not np.array_equal(first.leaf, second.leaf)
    (alone,) = tree.build(BalancedTree(leaf=10, seed=2), X, Y)
    assert np.array_equal(third.leaf, alone.leaf)


def test_topics_are_found_by_kmeans():
    X, Y = topics()
    # Random starts may share a topic; more centres than topics and the topics still stay pure.
    (built,) = tree.build(KmeansTree(leaf=10, k=32), X, Y)
    for node in range(1, built.n_nodes):
        assert len(set((built.labels_of(node) % 8).tolist())) == 1


def test_halving_separates_two_topics():
    X, Y = topics(n_topics=2, per_topic=20)
    (built,) = tree.build(BalancedTree(leaf=20), X, Y)
    assert built.n_nodes == 3
    for node in (1, 2):
        assert len(set((built.labels_of(node) % 2).tolist())) == 1


def test_no_cluster_of_kmeans_is_empty_or_single():
    X, Y = topics(n_topics=8, per_topic=4)
    (built,) = tree.build(KmeansTree(leaf=5, k=20), X, Y)
    assert np.diff(built.first_label)[1:].min() >= 2


def test_shallow_tree_keeps_the_finest_levels():
    X, Y = topics()  # 128 labels; halved to 32 leaves of 4 at depth 5
    (built,) = tree.build(ShallowTree(leaf=4, group=4, levels=2), X, Y)
    assert built.depth == 2
    assert len(built.children_of(0)) == 8  # level 3 of the binary tree
    assert all(len(built.children_of(v)) == 4 for v in built.nodes_at(1))
    assert all(len(built.labels_of(v)) == 4 for v in built.nodes_at(2))
    (one,) = tree.build(ShallowTree(leaf=4, group=4, levels=1), X, Y)
    assert (one.depth, one.n_nodes) == (1, 33)


def test_group_must_be_a_power_of_two():
    X, Y = topics()
    with pytest.raises(ConfigError, match="group is 6"):
        tree.build(ShallowTree(leaf=4, group=6), X, Y)


def test_labels_without_texts_are_listed_apart():
    X, Y = topics()
    wide = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 3), dtype=np.float32)], format="csr")
    for params in METHODS:
        built = tree.build(params, X, wide)[0]
        assert built.unseen.tolist() == [128, 129, 130]
        assert 129 not in built.label_order
        assert built.ancestor(0)[129] == -1
    with pytest.raises(DataError, match="at least one label"):
        tree.build(FlatTree(), X, sp.csr_matrix(Y.shape, dtype=np.float32))


def test_one_label_and_duplicate_labels_do_no_harm():
    X, Y = topics()
    for params in METHODS:
        assert tree.build(params, X, sp.csr_matrix(Y[:, :1]))[0].sizes[0] == 1
        twins = sp.csr_matrix(np.repeat(Y[:, :1].toarray(), 40, axis=1))
        assert tree.build(params, X, twins)[0].sizes[0] == 40


def test_text_without_words_is_no_obstacle():
    X, Y = topics()
    X = sp.csr_matrix(X.toarray() * (np.arange(X.shape[0]) > 60)[:, None].astype(np.float32))
    for params in METHODS:
        assert tree.build(params, X, Y)[0].sizes[0] == Y.shape[1]


def test_ancestors_by_hand():
    #        0
    #    1       2        label 0 under 1, labels 1 and 3 under 3, label 2 under 4
    #          3   4
    t = Tree(np.array([-1, 0, 0, 2, 2], np.int32), np.array([1, 3, 4, 3], np.int32))
    assert t.node_depth.tolist() == [0, 1, 1, 2, 2]
    assert t.depth == 2
    assert t.ancestor(0).tolist() == [0, 0, 0, 0]
    assert t.ancestor(1).tolist() == [1, 2, 2, 2]
    assert t.ancestor(2).tolist() == [1, 3, 4, 3]
    assert t.sizes.tolist() == [4, 1, 3, 2, 1]
    assert t.labels_of(3).tolist() == [1, 3]
    assert t.children_of(2).tolist() == [3, 4]
    assert t.nodes_at(1).tolist() == [1, 2]


def test_restricted_tree_drops_empty_branches():
    t = Tree(np.array([-1, 0, 0, 2, 2], np.int32), np.array([1, 3, 4, 3], np.int32))
    small = t.restrict(np.array([3, 0], np.int32))
    assert small.parent.tolist() == [-1, 0, 0, 2]
    assert small.leaf.tolist() == [3, 1]
    assert t.restrict(np.array([], np.int32)).n_nodes == 1


def test_malformed_trees_are_refused():
    with pytest.raises(DataError, match="level by level"):
        Tree(np.array([0], np.int32), np.array([0], np.int32))
    with pytest.raises(DataError, match="level by level"):
        Tree(np.array([-1, 0, 1, 0], np.int32), np.array([0], np.int32))
    with pytest.raises(DataError, match=r"outside 0\.\.0"):
        Tree(np.array([-1], np.int32), np.array([4], np.int32))


def test_saved_trees_come_back(tmp_path):
    X, Y = topics()
    built = tree.build(BalancedTree(leaf=10, trees=2), X, Y)
    tree.save(tmp_path / "plt", built)
    again = tree.load(tmp_path / "plt")
    assert [t.n_nodes for t in again] == [t.n_nodes for t in built]
    for a, b in zip(built, again, strict=True):
        assert np.array_equal(a.parent, b.parent)
        assert np.array_equal(a.leaf, b.leaf)
    with pytest.raises(ModelError, match="build_plt"):
        tree.load(tmp_path / "nothing")


def test_rendering_names_labels_and_stays_short():
    X, Y = topics()
    (built,) = tree.build(BalancedTree(leaf=10), X, Y)
    names = [f"concept {i}" for i in range(Y.shape[1])]
    text = built.text(names)
    assert text.startswith("128 labels, 31 nodes, depth 4, 0 unseen")
    assert "concept" in text
    assert str(built).count("\n") <= 41


def test_label_vectors_are_unit_sums_of_rows():
    X, Y = topics(n_topics=3, per_topic=2, texts=6)
    V = tree.label_vectors(X, Y).toarray()
    rows = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    slow = Y.toarray().T @ rows
    slow /= np.linalg.norm(slow, axis=1, keepdims=True)
    np.testing.assert_allclose(V, slow, atol=1e-6)


def test_label_vectors_of_labels_without_texts_and_of_empty_texts():
    X = sp.csr_matrix(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]], np.float32))
    Y = sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0]], np.float32))
    V = tree.label_vectors(X, Y).toarray()
    both = np.array([0.6, 1.8, 0.0]) / np.hypot(0.6, 1.8)
    np.testing.assert_allclose(V, [both, [0, 0, 0], [0, 0, 0]], atol=1e-6)


def test_label_vectors_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(tree, "GATHERED", 7)
    X, Y = topics()
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("COATTAIL_THREADS", threads)
        V = tree.label_vectors(X, Y)
        found.append((V.indptr.tobytes(), V.indices.tobytes(), V.data.tobytes()))
    assert found[0] == found[1] == found[2]


def test_params_choose_the_method():
    assert isinstance(parse({"method": "kmeans", "k": 5}, TreeParams, "here"), KmeansTree)
    with pytest.raises(ConfigError):
        parse({"method": "balanced", "k": 5}, TreeParams, "here")
