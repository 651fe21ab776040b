"""Label trees: balance, order, determinism, compression, unseen labels, arrays on disk."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.config import parse
from coattail.errors import ConfigError, DataError, ModelError
from coattail.labels import tree, tree_building, tree_params
from coattail.labels.clustering import regrouped
from coattail.labels.tree import Tree
from coattail.labels.tree_params import BalancedTree, FlatTree, KmeansTree, ShallowTree, TreeParams


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
    BalancedTree(leaf=10, representation="companions", regroup=True),
    ShallowTree(leaf=4, group=4, levels=2, regroup=True),
]


@pytest.mark.parametrize("params", METHODS, ids=lambda p: f"{p.method}")
def test_every_label_hangs_under_exactly_one_leaf(params):
    X, Y = topics()
    for built in tree_building.build(params, X, Y):
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
        built.append(tree_building.build(params, X, Y))
    for a, b in zip(*built, strict=True):
        assert np.array_equal(a.parent, b.parent)
        assert np.array_equal(a.leaf, b.leaf)


def test_balanced_leaves_differ_by_at_most_one_label():
    X, Y = topics(n_topics=7, per_topic=13)
    (built,) = tree_building.build(BalancedTree(leaf=6), X, Y)
    sizes = np.diff(built.first_label)
    leaves = sizes[sizes > 0]
    assert leaves.max() <= 6
    assert leaves.max() - leaves.min() <= 1
    assert len(leaves) == 16
    assert built.depth == 4


def test_several_trees_differ():
    X, Y = topics()
    first, second, third = tree_building.build(BalancedTree(leaf=10, trees=3), X, Y)
    assert not np.array_equal(first.leaf, second.leaf)
    (alone,) = tree_building.build(BalancedTree(leaf=10, seed=2), X, Y)
    assert np.array_equal(third.leaf, alone.leaf)


def test_topics_are_found_by_kmeans():
    X, Y = topics()
    # Random starts may share a topic; more centres than topics and the topics still stay pure.
    (built,) = tree_building.build(KmeansTree(leaf=10, k=32), X, Y)
    for node in range(1, built.n_nodes):
        assert len(set((built.labels_of(node) % 8).tolist())) == 1


def test_halving_separates_two_topics():
    X, Y = topics(n_topics=2, per_topic=20)
    (built,) = tree_building.build(BalancedTree(leaf=20), X, Y)
    assert built.n_nodes == 3
    for node in (1, 2):
        assert len(set((built.labels_of(node) % 2).tolist())) == 1


def test_no_cluster_of_kmeans_is_empty_or_single():
    X, Y = topics(n_topics=8, per_topic=4)
    (built,) = tree_building.build(KmeansTree(leaf=5, k=20), X, Y)
    assert np.diff(built.first_label)[1:].min() >= 2


def test_shallow_tree_keeps_the_finest_levels():
    X, Y = topics()  # 128 labels; halved to 32 leaves of 4 at depth 5
    (built,) = tree_building.build(ShallowTree(leaf=4, group=4, levels=2), X, Y)
    assert built.depth == 2
    assert len(built.children_of(0)) == 8  # level 3 of the binary tree
    assert all(len(built.children_of(v)) == 4 for v in built.nodes_at(1))
    assert all(len(built.labels_of(v)) == 4 for v in built.nodes_at(2))
    (one,) = tree_building.build(ShallowTree(leaf=4, group=4, levels=1), X, Y)
    assert (one.depth, one.n_nodes) == (1, 33)


def test_group_must_be_a_power_of_two():
    X, Y = topics()
    with pytest.raises(ConfigError, match="group is 6"):
        tree_building.build(ShallowTree(leaf=4, group=6), X, Y)


def test_labels_without_texts_are_listed_apart():
    X, Y = topics()
    wide = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 3), dtype=np.float32)], format="csr")
    for params in METHODS:
        built = tree_building.build(params, X, wide)[0]
        assert built.unseen.tolist() == [128, 129, 130]
        assert 129 not in built.label_order
        assert built.ancestor(0)[129] == -1
    with pytest.raises(DataError, match="at least one label"):
        tree_building.build(FlatTree(), X, sp.csr_matrix(Y.shape, dtype=np.float32))


def test_one_label_and_duplicate_labels_do_no_harm():
    X, Y = topics()
    for params in METHODS:
        assert tree_building.build(params, X, sp.csr_matrix(Y[:, :1]))[0].sizes[0] == 1
        twins = sp.csr_matrix(np.repeat(Y[:, :1].toarray(), 40, axis=1))
        assert tree_building.build(params, X, twins)[0].sizes[0] == 40


def test_text_without_words_is_no_obstacle():
    X, Y = topics()
    X = sp.csr_matrix(X.toarray() * (np.arange(X.shape[0]) > 60)[:, None].astype(np.float32))
    for params in METHODS:
        assert tree_building.build(params, X, Y)[0].sizes[0] == Y.shape[1]


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
    built = tree_building.build(BalancedTree(leaf=10, trees=2), X, Y)
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
    (built,) = tree_building.build(BalancedTree(leaf=10), X, Y)
    names = [f"concept {i}" for i in range(Y.shape[1])]
    text = built.text(names)
    assert text.startswith("128 labels, 31 nodes, depth 4, 0 unseen")
    assert "concept" in text
    assert str(built).count("\n") <= 41


def test_label_vectors_are_unit_sums_of_rows():
    X, Y = topics(n_topics=3, per_topic=2, texts=6)
    V = tree_building.label_vectors(X, Y).toarray()
    rows = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    slow = Y.toarray().T @ rows
    slow /= np.linalg.norm(slow, axis=1, keepdims=True)
    np.testing.assert_allclose(V, slow, atol=1e-6)


def test_label_vectors_of_labels_without_texts_and_of_empty_texts():
    X = sp.csr_matrix(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]], np.float32))
    Y = sp.csr_matrix(np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0]], np.float32))
    V = tree_building.label_vectors(X, Y).toarray()
    both = np.array([0.6, 1.8, 0.0]) / np.hypot(0.6, 1.8)
    np.testing.assert_allclose(V, [both, [0, 0, 0], [0, 0, 0]], atol=1e-6)


def test_label_vectors_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(tree_building, "GATHERED", 7)
    X, Y = topics()
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("COATTAIL_THREADS", threads)
        V = tree_building.label_vectors(X, Y)
        found.append((V.indptr.tobytes(), V.indices.tobytes(), V.data.tobytes()))
    assert found[0] == found[1] == found[2]


def test_params_choose_the_method():
    assert isinstance(parse({"method": "kmeans", "k": 5}, TreeParams, "here"), KmeansTree)
    with pytest.raises(ConfigError):
        parse({"method": "balanced", "k": 5}, TreeParams, "here")


def test_companions_are_the_labels_of_a_labels_texts_the_rare_ones_first():
    Y = sp.csr_matrix(np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 0, 0]], np.float32))
    V = tree_building.label_vectors(
        sp.csr_matrix((4, 1), dtype=np.float32), Y, "companions"
    ).toarray()
    # n / count is 1, 4, 4: texts 0 and 2 are (a, b) of length 1, the others (1, 0).
    a, b = np.log(2.0) ** 2, np.log(5.0) ** 2
    a, b = a / np.hypot(a, b), b / np.hypot(a, b)
    first = np.array([2 * a + 2, b, b])
    expected = [first / np.linalg.norm(first), [a, b, 0], [a, 0, b]]
    np.testing.assert_allclose(V, expected, rtol=1e-6)


def test_faint_companions_and_entries_that_say_no_are_left_out():
    Y = sp.lil_matrix((300, 301), dtype=np.float32)
    for text in range(300):  # label 300 stands beside 300 different ones
        Y[text, text] = Y[text, 300] = 1
    Y = sp.csr_matrix(Y)
    X = sp.csr_matrix((300, 1), dtype=np.float32)
    V = tree_building.label_vectors(X, Y, "companions").toarray()
    assert np.count_nonzero(V[300]) <= 1
    np.testing.assert_allclose(np.linalg.norm(V[:300], axis=1), 1, rtol=1e-6)
    with_zeros = Y.tolil()
    with_zeros[0, 1] = 2
    with_zeros = sp.csr_matrix(with_zeros)
    with_zeros.data[with_zeros.data == 2] = 0
    assert with_zeros.nnz == Y.nnz + 1
    assert np.array_equal(tree_building.label_vectors(X, with_zeros, "companions").toarray(), V)


def slowly_regrouped(leaf, Y, room):
    """Sets of texts per label, leaf by leaf."""
    leaf, Y = leaf.copy(), Y.toarray() != 0
    counts = Y.sum(axis=0)
    for label in sorted(range(len(leaf)), key=lambda j: (-counts[j], j)):
        own = leaf[label]
        if own < 0:
            continue
        reached = {}
        for node in sorted(set(leaf[leaf >= 0].tolist())):
            others = (leaf == node) & (np.arange(len(leaf)) != label)
            reached[node] = int((Y[:, label] & Y[:, others].any(axis=1)).sum())
        free = [v for v in reached if (leaf == v).sum() < room and reached[v] > reached[own]]
        if free:
            leaf[label] = max(free, key=lambda v: (reached[v], -v))
    return leaf


@pytest.mark.parametrize("room", [3, 6, 100])
@pytest.mark.parametrize("seed", range(5))
def test_regrouping_equals_the_slow_reference(seed, room):
    rng = np.random.default_rng(seed)
    Y = sp.random(40, 24, 0.15, "csr", np.float32, random_state=rng)
    Y.data[::7] = 0  # entries that say no
    parent = np.array([-1, 0, 0, 1, 1, 2, 2], np.int32)
    leaf = rng.integers(3, 7, 24).astype(np.int32)
    leaf[5] = -1
    expected = slowly_regrouped(leaf, Y, room)
    found = regrouped(Tree(parent, leaf), Y, room)
    assert np.array_equal(found.leaf < 0, leaf < 0)
    for a in range(24):  # the same labels side by side; empty leaves are gone
        together = (found.leaf == found.leaf[a]) & (leaf >= 0)
        assert np.array_equal(together, (expected == expected[a]) & (leaf >= 0)) or leaf[a] < 0
    assert np.all(found.sizes > 0)


def test_regrouping_brings_the_labels_of_a_text_together():
    rng = np.random.default_rng(3)
    Y = np.zeros((400, 64), np.float32)
    for i in range(400):  # a text has four labels of one group of eight
        Y[i, 8 * (i % 8) + rng.choice(8, 4, replace=False)] = 1
    Y = sp.csr_matrix(Y)
    scattered = Tree(np.array([-1] + [0] * 8, np.int32), (1 + np.arange(64) % 8).astype(np.int32))
    leaves = lambda t: np.mean([len(set(t.leaf[Y[i].indices])) for i in range(400)])  # noqa: E731
    assert leaves(regrouped(scattered, Y, 12)) < 0.6 * leaves(scattered)
    full = regrouped(scattered, Y, 8)  # nobody has room
    assert np.array_equal(full.leaf, scattered.leaf)


@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 11])
def test_leaves_of_one_label(n_labels):
    Y = sp.csr_matrix(np.eye(20, n_labels, dtype=np.float32))
    (built,) = tree_building.build(
        tree_params.BalancedTree(leaf=1), sp.csr_matrix(np.eye(20, dtype="f4")), Y
    )
    assert len(set(built.leaf.tolist())) == n_labels
    assert np.all(np.diff(built.first_label) <= 1)
