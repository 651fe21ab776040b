"""Label trees with classifiers: beam search, presets, levels' weights, resuming."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from coattail.data.features import Block
from coattail.errors import ModelError
from coattail.kernels import beam
from coattail.labels import tree, tree_building, tree_params
from coattail.labels.tree import Tree
from coattail.labels.tree_params import BalancedTree, FlatTree, KmeansTree, ShallowTree
from coattail.models.linear import node_problems, plt, problem_groups
from coattail.models.linear.linear_models import Blocks, fit_blocks, load
from coattail.models.linear.linear_params import OvrParams, PltParams
from coattail.models.linear.node_problems import NodeProblems
from coattail.models.linear.ovr import Ovr, as_probability
from coattail.models.linear.plt import Plt
from coattail.testing.model_contract import ModelContract, digest, same, separable
from tests.models.linear.test_ovr import noisy


class OwnTrees(Plt):
    """Builds its trees when it sees the data, as a stage before it would."""

    shape = BalancedTree(leaf=2, trees=2)

    def fit(self, X, Y):
        self._given = tree_building.build(self.shape, X, Y)
        return super().fit(X, Y)


class Wide(OwnTrees):
    shape = KmeansTree(leaf=2, k=3, levels=2)


class TestParabel(ModelContract):
    def make(self):
        return OwnTrees(PltParams())

    def load(self, folder):
        return Plt.load(folder)


class TestPlainPlt(ModelContract):
    def make(self):
        return Wide(PltParams(loss="logistic", C=16.0, weighting="pw", normalise=True))

    def load(self, folder):
        return load(folder)


def test_texts_below_a_node_are_those_with_a_label_below_it():
    rng = np.random.default_rng(4)
    Y = sp.random(60, 12, 0.2, "csr", np.float32, random_state=rng)
    Y.data[::5] = 0  # entries that say no
    # Labels under the root, an inner node and leaves; label 11 is not in the tree.
    leaf = np.array([0, 1, 3, 3, 4, 4, 5, 5, 2, 6, 6, -1], np.int32)
    built = Tree(np.array([-1, 0, 0, 1, 1, 2, 2], np.int32), leaf)
    below = node_problems._rows_below(built, Y)
    for node in range(built.n_nodes):
        inside = [
            label
            for label in range(12)
            if leaf[label] >= 0 and built.ancestor(built.node_depth[node])[label] == node
        ]
        texts = np.flatnonzero((Y[:, inside].toarray() != 0).any(axis=1))
        assert below.indices[below.indptr[node] : below.indptr[node + 1]].tolist() == texts.tolist()


def many_labels(n=600, seed=1):
    X, Y = separable(n, n_labels=40, seed=seed)
    return X, Y, tree_building.build(ShallowTree(leaf=4, group=2, levels=3), X, Y)


def exhaustive(model, X):
    """Path scores of all labels by walking the whole tree in float64, averaged over trees."""
    total = np.zeros((X.shape[0], model.trees_[0].n_labels))
    for t, w in zip(model.trees_, model.weights_, strict=True):
        outputs = np.full((X.shape[0], w.output[-1]), 0.0)
        for v in range(t.n_nodes):
            size = w.output[v + 1] - w.output[v]
            W = np.zeros((X.shape[1], size))
            for s in range(w.node_word[v], w.node_word[v + 1]):
                for e in range(w.entry[s], w.entry[s + 1]):
                    W[w.words[s], w.child[e]] = w.weight[e]
            outputs[:, w.output[v] : w.output[v + 1]] = (
                X @ W + w.bias[w.output[v] : w.output[v + 1]]
            )
        if model.params.loss == "logistic":
            logs = -np.logaddexp(0, -outputs)
        else:
            logs = -np.square(np.maximum(0, 1 - outputs))
        path = np.zeros((X.shape[0], t.n_nodes))
        for v in range(t.n_nodes):
            for c, child in enumerate(t.children_of(v)):
                path[:, child] = model.params.discount * path[:, v] + logs[:, w.output[v] + c]
            for c, label in enumerate(t.labels_of(v), len(t.children_of(v))):
                score = model.params.discount * path[:, v] + logs[:, w.output[v] + c]
                total[:, label] += np.exp(score)
    return total / len(model.trees_)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("discount", [1.0, 0.98])
def test_wide_beam_equals_exhaustive_search(loss, discount):
    X, Y, trees = many_labels()
    trees += tree_building.build(KmeansTree(leaf=3, k=4, levels=2), X, Y)  # with early leaves
    model = Plt(PltParams(loss=loss, beam=1000, discount=discount, prune=0.01), trees).fit(X, Y)
    top = model.predict(X, 40)
    assert np.all(top.labels >= 0)
    slow = np.take_along_axis(exhaustive(model, X), top.labels, axis=1)
    np.testing.assert_allclose(top.scores, slow, rtol=1e-3, atol=1e-6)


def test_narrow_beam_finds_a_part_of_what_the_wide_one_finds():
    X, Y, trees = many_labels()
    model = Plt(PltParams(), trees).fit(X, Y)
    wide = model.predict(X, 40).to_csr(40).toarray()
    object.__setattr__(model, "params", PltParams(beam=1))
    narrow = model.predict(X, 40)
    assert np.all((narrow.labels >= 0).sum(axis=1) <= 4)  # one leaf
    real = narrow.labels >= 0
    rows = np.nonzero(real)[0]
    assert np.array_equal(narrow.scores[real], wide[rows, narrow.labels[real]])


def test_looking_words_up_and_laying_them_out_give_the_same_bits():
    X, Y = separable(300)
    noise = sp.random(300, 6000, 0.02, "csr", np.float32, random_state=np.random.default_rng(2))
    X = sp.hstack([X, noise], format="csr")
    model = OwnTrees(PltParams(prune=0.0)).fit(X, Y)
    assert np.diff(model.weights_[0].node_word)[0] > 2 * beam.SEARCH
    batch = model.predict(X, 6)  # many texts at the root: laid out
    for i in range(20):
        one = model.predict(X[i : i + 1], 6)  # one text: looked up
        assert np.array_equal(one.labels[0], batch.labels[i])
        assert np.array_equal(one.scores[0], batch.scores[i])


def test_flat_tree_is_one_vs_rest():
    X, Y = noisy()
    exact = {"eps": 1e-5, "gap": 1e-7, "max_epochs": 3000, "prune": 0.0}
    flat = (
        Plt(PltParams(**exact), tree_building.build(tree_params.FlatTree(), X, Y))
        .fit(X, Y)
        .predict(X, 5)
    )
    margins = Ovr(OvrParams(**exact)).fit(X, Y).predict(X, 5).to_csr(5).toarray()
    # Texts without any label never reach the root: they are negatives for one-vs-rest alone.
    assert (np.diff(Y.indptr) > 0).mean() < 1
    labelled = np.diff(Y.indptr) > 0
    same_rows = Ovr(OvrParams(**exact)).fit(X[labelled], Y[labelled]).predict(X, 5).to_csr(5)
    expected = as_probability(same_rows.toarray(), "squared_hinge")
    np.testing.assert_allclose(flat.to_csr(5).toarray(), expected, atol=2e-3)
    assert margins.shape == expected.shape


def test_node_problems_hold_the_texts_below_the_node():
    X, Y, (built,) = many_labels(n=100)
    problems = NodeProblems(PltParams(), built, X, Y, None)
    dense = Y.toarray()
    for node in range(built.n_nodes):
        below = [label for label in range(40) if node in path_to_root(built, label)]
        slow = np.flatnonzero(dense[:, below].any(axis=1)) if below else []
        first, last = problems.rows.indptr[node : node + 2]
        assert problems.rows.indices[first:last].tolist() == list(slow)


def test_outputs_trained_together_have_the_weights_that_sets_of_texts_find(monkeypatch):
    X, Y = noisy(900, 60, 5)
    built = Tree(np.array([-1], np.int32), np.zeros(5, np.int32))
    params = PltParams(eps=1e-5, gap=1e-8, max_epochs=5000, max_rounds=30, negatives=20, prune=0.0)
    problems = NodeProblems(params, built, X, Y, None)
    found, calls = {}, []
    monkeypatch.setattr(problem_groups, "solve", recorded(problem_groups.solve, calls))
    for outputs, shared in ((5, True), (6, False)):
        monkeypatch.setattr(node_problems, "OUTPUTS", outputs)
        assert problems.is_shared(0) is shared
        turned = problems.train(0, 0, 5)
        assert bool(calls) is not shared  # sets of texts are searched for, or not
        W = np.zeros((5, X.shape[1] + 1))
        W[turned.child, np.repeat(turned.words, turned.entries)] = turned.weight
        W[:, -1] = turned.bias
        found[shared] = W
    np.testing.assert_allclose(found[True], found[False], atol=1e-3)


def recorded(function, calls: list):
    def called(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return called


def test_large_nodes_are_trained_together_only_if_their_outputs_are_large_too(monkeypatch):
    X, Y, (built,) = many_labels(n=100)
    problems = NodeProblems(PltParams(), built, X, Y, None)
    monkeypatch.setattr(node_problems, "OUTPUTS", 1)
    monkeypatch.setattr(node_problems, "TEXTS", 0)
    texts = np.diff(problems.rows.indptr)
    share = texts[built.children_of(0)].mean() / texts[0]
    for limit, shared in ((share - 0.01, True), (share + 0.01, False)):
        monkeypatch.setattr(node_problems, "SHARE", limit)
        assert problems.is_shared(0) is shared


def path_to_root(t: Tree, label: int) -> list[int]:
    node, path = int(t.leaf[label]), []
    while node >= 0:
        path.append(node)
        node = int(t.parent[node])
    return path


def test_every_level_is_weighted_by_its_own_counts():
    X, Y, (built,) = many_labels()
    problems = NodeProblems(PltParams(weighting="pw", normalise=True), built, X, Y, None)
    for depth in range(1, built.depth + 1):
        weights = problems.node_weight[built.nodes_at(depth)]
        assert weights.mean() == pytest.approx(1)
    texts = np.diff(problems.rows.indptr)
    level = built.nodes_at(2)
    order = np.argsort(texts[level])
    assert np.all(np.diff(problems.node_weight[level][order]) <= 1e-12)  # rarer weighs more
    plain = NodeProblems(PltParams(), built, X, Y, None)
    assert np.all(plain.node_weight == 1)


def test_three_trees_average_their_scores():
    X, Y, _ = many_labels()
    trees = tree_building.build(BalancedTree(leaf=5, trees=3), X, Y)
    apart = [Plt(PltParams(beam=100), [t]).fit(X, Y).predict(X, 40) for t in trees]
    together = Plt(PltParams(beam=100), trees).fit(X, Y).predict(X, 40)
    mean = sum(top.to_csr(40).toarray() for top in apart) / 3
    np.testing.assert_allclose(together.to_csr(40).toarray(), mean, atol=1e-6)


def test_labels_outside_the_tree_are_never_given():
    X, Y = separable()
    wide = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 1), dtype=np.float32)], format="csr")
    top = OwnTrees(PltParams(beam=50)).fit(X, wide).predict(X, 10)
    assert set(np.unique(top.labels)) == {-1, *range(6)}


def test_interrupted_fit_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    X, Y, trees = many_labels()
    monkeypatch.setenv("COATTAIL_THREADS", "1")
    Plt(PltParams(), trees).fit(X, Y).save(tmp_path / "whole")
    done, real = [], NodeProblems.train

    def dies(*arguments):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(1)
        return real(*arguments)

    monkeypatch.setattr(NodeProblems, "train", dies)
    with pytest.raises(KeyboardInterrupt):
        Plt(PltParams(), trees, partial=tmp_path / "partial").fit(X, Y)
    assert len(list((tmp_path / "partial").rglob("*.npz"))) == 5
    monkeypatch.setattr(NodeProblems, "train", real)
    Plt(PltParams(), trees, partial=tmp_path / "partial").fit(X, Y).save(tmp_path / "resumed")
    assert digest(tmp_path / "whole") == digest(tmp_path / "resumed")


def test_a_node_trained_in_several_parts_has_the_same_weights(monkeypatch):
    X, Y = separable(600, n_labels=100)
    flat = tree_building.build(FlatTree(), X, Y)
    whole = Plt(PltParams(), flat).fit(X, Y).weights_[0]
    monkeypatch.setattr(plt, "GROUP", 32)
    parts = Plt(PltParams(), flat).fit(X, Y).weights_[0]
    for name, array in vars(whole).items():
        assert array.dtype == getattr(parts, name).dtype
        assert np.array_equal(array, getattr(parts, name))


def test_a_large_node_ends_after_so_many_visits_but_not_before_three_epochs():
    X, Y, _ = many_labels()
    flat, n = tree_building.build(FlatTree(), X, Y), X.shape[0]

    def bias(**params):
        return Plt(PltParams(eps=1e-4, **params), flat).fit(X, Y).weights_[0].bias

    assert np.array_equal(bias(max_visits=1), bias(max_epochs=3))
    assert np.array_equal(bias(max_visits=5 * n + 1, max_epochs=6), bias(max_epochs=5))
    assert not np.array_equal(bias(max_epochs=6), bias(max_epochs=5))
    # Newton steps of the logistic loss are no such visits.
    assert np.array_equal(bias(max_visits=1, loss="logistic"), bias(loss="logistic"))


def test_blocks_use_their_part_of_the_tree(tmp_path):
    X, Y, trees = many_labels()
    head, tail = np.arange(10, dtype=np.int32), np.arange(10, 40, dtype=np.int32)
    blocks = [
        Block("head", X, sp.csr_matrix(Y[:, head]), head),
        Block("tail", X, sp.csr_matrix(Y[:, tail]), tail),
    ]
    model = fit_blocks(PltParams(), trees, blocks, 40)
    assert isinstance(model, Blocks)
    top = model.predict(X, 3)
    assert Y.toarray()[np.arange(Y.shape[0]), top.labels[:, 0]].mean() > 0.95
    model.save(tmp_path / "model")
    assert same(top, load(tmp_path / "model").predict(X, 3))


def test_weights_of_nodes_count_texts_and_not_their_copies():
    X, Y, trees = many_labels()
    twice = [sp.vstack([one, one], format="csr") for one in (X, Y)]
    params = PltParams(weighting="pwcb")
    once, copies, wrong = (
        NodeProblems(params, trees[0], *of)
        for of in ((X, Y, None), (*twice, None, Y), (*twice, None))
    )
    for mine, theirs in ((once.of_node, copies.of_node), (once.of_label, copies.of_label)):
        assert all(map(np.array_equal, mine, theirs))
    assert not np.allclose(once.of_label[1], wrong.of_label[1])


def test_blocks_may_cluster_for_themselves(tmp_path):
    X, Y, trees = many_labels()
    labels = [np.arange(10, dtype=np.int32), np.arange(10, 40, dtype=np.int32)]
    blocks = [
        Block(name, X, sp.csr_matrix(Y[:, own]), own)
        for name, own in zip(("head", "tail"), labels, strict=True)
    ]
    recipe = tree_params.KmeansTree(k=4, leaf=5)
    tree.save(tmp_path / "plt", trees, recipe)
    assert tree.recipe_of(tmp_path / "plt") == recipe
    params = PltParams(tree_per_block=True)
    model = fit_blocks(params, trees, blocks, 40, recipe=tree.recipe_of(tmp_path / "plt"))
    for part, block in zip(model.models_, blocks, strict=True):
        (wanted,) = tree_building.build(recipe, block.X, block.Y)
        assert np.array_equal(part.trees_[0].leaf, wanted.leaf)
        assert np.array_equal(part.trees_[0].parent, wanted.parent)
    with pytest.raises(ModelError, match="does not say how it was built"):
        fit_blocks(params, trees, blocks, 40)


def test_loaded_weights_stay_on_disk_and_serve_one_text_at_a_time(tmp_path):
    X, Y, trees = many_labels(200)
    model = Plt(PltParams(), trees).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = Plt.load(tmp_path / "m")
    assert isinstance(loaded.weights_[0].weight, np.memmap)
    together = model.predict(X[:4], 3)
    for i in range(4):
        one = loaded.predict(X[i : i + 1], 3)
        np.testing.assert_array_equal(one.labels[0], together.labels[i])
        np.testing.assert_array_equal(one.scores[0], together.scores[i])


def test_tree_of_other_labels_is_refused():
    X, Y, trees = many_labels()
    with pytest.raises(ModelError, match="40 labels but Y has 39"):
        Plt(PltParams(), trees).fit(X, Y[:, :39])


def test_model_without_trees_clusters_the_labels_itself():
    X, Y = separable()
    top = Plt(PltParams()).fit(X, Y).predict(X, 1)
    assert Y.toarray()[np.arange(Y.shape[0]), top.labels[:, 0]].mean() > 0.95


def test_a_request_that_finds_no_memory_leaves_the_next_answers_as_they_were(monkeypatch):
    monkeypatch.setenv("COATTAIL_THREADS", "1")
    X, Y = separable()
    model = OwnTrees(PltParams()).fit(X, Y)
    wanted, real = model.predict(X, 3), beam.merge

    def fails_midway(first, labels, scores, total, *others):
        total[:] = 1
        raise MemoryError

    monkeypatch.setattr(beam, "merge", fails_midway)
    with pytest.raises(MemoryError):
        model.predict(X, 3)
    monkeypatch.setattr(beam, "merge", real)
    assert same(model.predict(X, 3), wanted)
