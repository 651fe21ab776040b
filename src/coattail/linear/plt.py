"""Label trees with a linear classifier per node: Parabel, Bonsai, plain PLT."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail import tree as trees_
from coattail.arrays import Parts, TopK, as_csr, atomic_folder, parts
from coattail.errors import ModelError
from coattail.kernels import beam, gather, pool
from coattail.kernels.sparse import compact, constant, in_order
from coattail.linear import solve
from coattail.linear.in_step import solve_in_step
from coattail.linear.ovr import GROUP, check_rows
from coattail.linear.params import PltParams
from coattail.linear.scratch import scratch
from coattail.linear.weights import Turned, Weights, assemble
from coattail.progress import progress
from coattail.tree import Tree

# Outputs of a node descend together, on all its texts, if there are at least OUTPUTS of them and
# the node has at most TEXTS, or they have more than SHARE of its texts each, on average: sets of
# the texts that matter would hold most of them.
OUTPUTS, TEXTS, SHARE = 4, 8_192, 0.005
EPOCHS = 3  # of a node so large that ``max_visits`` would not allow them
BATCH = 512  # texts searched together: a node's words are laid out once for all of them
_scratch = threading.local()


@dataclass(frozen=True)
class _Job:
    """Some outputs of one node, counted from ``start``."""

    tree: int
    node: int
    start: int
    stop: int


class Plt:
    """A probabilistic label tree, or the average of several.

    Attributes
    ----------
    trees_ : list of Tree
    weights_ : list of Weights, one per tree
    n_words_ : int
    """

    def __init__(
        self,
        params: PltParams,
        trees: list[Tree] | None = None,
        *,
        partial: str | Path | None = None,
        tail: NDArray[np.bool_] | None = None,
    ) -> None:
        self.params = params
        self._given = trees
        self._partial = Path(partial) if partial else None
        self._tail = tail

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Plt:
        """Train a classifier for every child of every node, on the texts that reach the node."""
        X, Y = as_csr(X, "X"), as_csr(Y, "Y")
        check_rows(X, Y)
        self.trees_ = self._given or trees_.build(trees_.BalancedTree(), X, Y)
        for tree in self.trees_:
            if tree.n_labels != Y.shape[1]:
                raise ModelError(
                    f"the tree has {tree.n_labels} labels but Y has {Y.shape[1]}; "
                    "run dvc repro build_plt"
                )
        problems = [NodeProblems(self.params, tree, X, Y, self._tail) for tree in self.trees_]
        jobs = [
            _Job(t, node, start, stop)
            for t, problem in enumerate(problems)
            for node in range(problem.tree.n_nodes)
            for start, stop in pool.chunks(problem.n_outputs(node), GROUP)
        ]
        # Large problems first: none is left to run alone at the end.
        jobs.sort(key=lambda job: -problems[job.tree].n_rows(job.node))
        numbered = list(enumerate(jobs))
        done: list[dict[int, list[tuple[int, Turned]]]] = [{} for _ in problems]
        n_outputs = sum(job.stop - job.start for job in jobs)
        with progress("label tree", n_outputs, "classifiers") as bar:
            work = lambda job: problems[job.tree].train(job.node, job.start, job.stop)  # noqa: E731
            for number, turned, new in solve.solve_all(numbered, work, self._resumable(X, Y)):
                job = jobs[number]
                done[job.tree].setdefault(job.node, []).append((job.start, turned))
                bar.advance(job.stop - job.start, new=new)
        self.n_words_ = X.shape[1]
        self.weights_ = [
            assemble(tree.n_nodes, of_tree) for tree, of_tree in zip(self.trees_, done, strict=True)
        ]
        return self

    def predict(self, X: sp.csr_matrix, k: int) -> TopK:
        """The k best labels of every row among those the beams reach."""
        X = as_csr(X, "X")
        if X.shape[1] != self.n_words_:
            raise ModelError(
                f"the model knows {self.n_words_} words, X has {X.shape[1]}; "
                "use the features it was trained on"
            )
        labels = np.empty((X.shape[0], k), np.int32)
        scores = np.empty((X.shape[0], k), np.float32)
        rows = constant(*parts(X))
        forest = [_searchable(t, w) for t, w in zip(self.trees_, self.weights_, strict=True)]
        n_labels = self.trees_[0].n_labels
        transform = beam.SIGMOID if self.params.loss == "logistic" else beam.HINGE

        def batch(limits: tuple[int, int]) -> None:
            slots, total, touched = _search_scratch(self.n_words_, n_labels)
            options = (self.params.beam, self.params.discount, transform, slots)
            found = [beam.search(*rows, *limits, *arrays, *options) for arrays in forest]
            ends = np.cumsum([0] + [len(f[1]) for f in found[:-1]])
            first = np.stack([f[0] + end for f, end in zip(found, ends, strict=True)])
            all_labels = np.concatenate([f[1] for f in found])
            all_scores = np.concatenate([f[2] for f in found])
            counted = (total, touched, len(found), limits[0], labels, scores)
            beam.merge(first, all_labels, all_scores, *counted)

        list(pool.each(batch, pool.chunks(X.shape[0], BATCH)))
        return TopK(labels, scores, "probability")

    def save(self, folder: str | Path) -> None:
        """Write the model with its trees; what was kept for resuming goes."""
        with atomic_folder(folder) as out:
            (out / "params.json").write_text(self.params.model_dump_json(indent=1) + "\n")
            (out / "words.json").write_text(json.dumps(self.n_words_) + "\n")
            trees_.save(out / "trees", self.trees_)
            for i, weights in enumerate(self.weights_):
                (out / f"weights-{i}").mkdir()
                for field in fields(Weights):
                    np.save(
                        out / f"weights-{i}" / f"{field.name}.npy", getattr(weights, field.name)
                    )
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)

    @classmethod
    def load(cls, folder: str | Path) -> Plt:
        """Read a saved model; the weights stay memory-mapped."""
        folder = Path(folder)
        try:
            model = cls(PltParams.model_validate(json.loads((folder / "params.json").read_text())))
            model.n_words_ = json.loads((folder / "words.json").read_text())
            model.trees_ = trees_.load(folder / "trees")
            model.weights_ = [
                Weights(
                    **{
                        field.name: np.load(
                            folder / f"weights-{i}" / f"{field.name}.npy",
                            mmap_mode="r",
                            allow_pickle=False,
                        )
                        for field in fields(Weights)
                    }
                )
                for i in range(len(model.trees_))
            ]
        except FileNotFoundError as error:
            raise ModelError(
                f"{folder} is no label-tree model: {error.filename} is missing"
            ) from None
        return model

    def _resumable(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> solve.Partial[Turned]:
        shapes = [array for tree in self.trees_ for array in (tree.parent, tree.leaf)]
        tail = self._tail if self._tail is not None else "by count"
        identity = (self.params, *parts(X), *parts(Y), *shapes, tail)
        return solve.Partial(self._partial, Turned, *identity)


class NodeProblems:
    """The binary problems at the nodes of one tree."""

    def __init__(
        self,
        params: PltParams,
        tree: Tree,
        X: sp.csr_matrix,
        Y: sp.csr_matrix,
        tail: NDArray[np.bool_] | None,
    ) -> None:
        self.params, self.tree, self.n_words = params, tree, X.shape[1]
        # Once for all nodes: a copy of all bounds at every node would grow with their product.
        self.csr = constant(*parts(X))
        self.squares = solve.squares_of(X)
        self.rows = _rows_below(tree, Y)
        self.texts = np.diff(self.rows.indptr).astype(np.int64)
        self.positives = sp.csc_matrix(Y)
        self.counts = counts = np.diff(self.positives.indptr).astype(np.int64)
        self.tail = solve.tail_mask(params, counts) if tail is None else tail
        self.node_weight = np.ones(tree.n_nodes)
        for depth in range(1, tree.depth + 1):
            level = tree.nodes_at(depth)
            self.node_weight[level] = solve.positive_weights(params, self.texts[level], X.shape[0])
        self.label_weight = np.ones(len(counts))
        seen = tree.leaf >= 0
        self.label_weight[seen] = solve.positive_weights(params, counts[seen], X.shape[0])

    def n_outputs(self, node: int) -> int:
        tree = self.tree
        n_children = tree.first_child[node + 1] - tree.first_child[node]
        return int(n_children + tree.first_label[node + 1] - tree.first_label[node])

    def n_rows(self, node: int) -> int:
        return int(self.texts[node])

    def is_shared(self, node: int) -> bool:
        """Whether the outputs of a node are best trained together on all its texts."""
        n_outputs, n_rows = self.n_outputs(node), self.n_rows(node)
        # Children are consecutive, and so are their texts.
        first, last = self.rows.indptr[self.tree.first_child[node : node + 2]]
        positives = last - first + self.counts[self.tree.labels_of(node)].sum()
        many = positives > SHARE * n_outputs * n_rows
        return n_outputs >= OUTPUTS and bool(many or n_rows <= TEXTS)

    def train(self, node: int, start: int, stop: int) -> Turned:
        """Outputs start..stop of a node, trained, their weights word by word."""
        rows, group = self.problem(node, start, stop)
        few = self.n_outputs(node) <= np.iinfo(np.uint16).max
        params = self.params
        if params.loss == "squared_hinge" and self.is_shared(node):
            # Where texts are very many an epoch teaches more, and the largest violation, which
            # ends a descent, is an ever stricter test.
            epochs = max(params.max_visits // max(rows.n, 1), EPOCHS)
            params = params.model_copy(update={"max_epochs": min(params.max_epochs, epochs)})
            order = np.empty(len(rows.words), np.int32)
            in_order(rows.words, _places(self.n_words), *_marks(self.n_words), order)
            return solve_in_step(rows, order, group, params, start, few)
        found = solve.solve(rows, group, params)
        child: NDArray[Any] = np.empty(len(found.words), np.uint16 if few else np.int32)
        weight = np.empty_like(found.weights)
        arrays = constant(found.start, found.stop, found.words, found.weights)
        words, entries = beam.by_word(*arrays, _places(self.n_words), child, weight)
        child += child.dtype.type(start)
        return Turned(words, entries, child, weight, found.bias)

    def problem(self, node: int, start: int, stop: int) -> tuple[solve.Rows, solve.Group]:
        """Rows and labels of outputs start..stop of a node: its children, then its labels."""
        texts = self._texts(node, node + 1)
        first, last = self.tree.first_child[node : node + 2]
        children = np.arange(first, last)[start:stop]
        beyond = [max(output - int(last - first), 0) for output in (start, stop)]
        labels = self.tree.labels_of(node)[slice(*beyond)]
        own = [self._texts(children[0], children[-1] + 1)] if len(children) else []
        own.append(_ranges(self.positives, labels))
        sizes = np.concatenate([self.texts[children], self.counts[labels]])
        weight = np.concatenate([self.node_weight[children], self.label_weight[labels]])
        c = np.full(stop - start, self.params.C)
        c[len(children) :][self.tail[labels]] *= self.params.tail_c
        group = solve.Group(
            np.arange(start, stop, dtype=np.int64) + 1000003 * node + self.params.seed,
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.searchsorted(texts, np.concatenate(own)).astype(np.int32),
            (c * weight).astype(np.float32),
            c.astype(np.float32),
        )
        return self._compacted(texts), group

    def _texts(self, first: int, last: int) -> NDArray[np.int32]:
        """Texts below the nodes first..last, one node behind another."""
        begin, end = self.rows.indptr[[first, last]]
        texts: NDArray[np.int32] = self.rows.indices[begin:end]
        return texts

    def _compacted(self, texts: NDArray[np.int32]) -> solve.Rows:
        """Some rows with only the words they have: small enough for the cache.

        They lie in scratch of this thread, until it asks for others.
        """
        nnz = int((self.csr[0][texts + 1] - self.csr[0][texts]).sum())
        indptr = np.empty(len(texts) + 1, np.int64)
        indices = scratch("indices", nnz, np.int32)
        values = scratch("values", nnz, np.float32)
        words = np.empty(min(nnz, self.n_words), np.int32)
        place = _places(self.n_words)
        found = compact(*self.csr, *constant(texts), place, indptr, indices, values, words)
        return solve.rows_of(Parts(indptr, indices, values), self.squares[texts], words[:found])


def _ranges(M: sp.csc_matrix, columns: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rows of some columns, one column behind another."""
    begin, end = M.indptr[columns].astype(np.int64), M.indptr[columns + 1].astype(np.int64)
    ends = np.cumsum(end - begin)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(end - ends, end - begin)
    rows: NDArray[np.int32] = M.indices[places]
    return rows


def _rows_below(tree: Tree, Y: sp.csr_matrix) -> sp.csr_matrix:
    """(nodes, texts): the texts with a label below each node, sorted."""
    walk = constant(Y.indptr.astype(np.int64), Y.indices, Y.data != 0, tree.leaf, tree.parent)
    indptr = np.concatenate([[0], np.cumsum(gather.count_texts(*walk))])
    texts = np.empty(indptr[-1], np.int32)
    gather.list_texts(*walk, indptr, texts)
    ones = np.ones(len(texts), np.int8)
    return sp.csr_matrix((ones, texts, indptr), shape=(tree.n_nodes, Y.shape[0]))


def _places(n_words: int) -> NDArray[np.int32]:
    """Scratch (n_words,) of this thread, -1 everywhere; the kernels leave it so."""
    known: NDArray[np.int32] | None = getattr(_scratch, "places", None)
    if known is None or len(known) < n_words:
        known = _scratch.places = np.full(n_words, -1, np.int32)
    return known


def _marks(n_words: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Scratch of this thread, a bit for every word and one for 64 of them; kernels leave zeros."""
    known: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = getattr(_scratch, "marks", None)
    if known is None or 64 * len(known[0]) < n_words:
        known = np.zeros(n_words // 64 + 1, np.uint64), np.zeros(n_words // 4096 + 1, np.uint64)
        _scratch.marks = known
    return known


def _searchable(tree: Tree, weights: Weights) -> tuple[NDArray, ...]:
    return constant(
        weights.node_word, weights.words, weights.entry, weights.child, weights.weight,
        weights.bias, weights.output, tree.first_child, tree.first_label, tree.label_order,
    )  # fmt: skip


def _search_scratch(n_words: int, n_labels: int) -> tuple[NDArray, NDArray, NDArray]:
    """Scratch of this thread; the kernels leave it as they found it."""
    known = getattr(_scratch, "search", None)
    if known is None or len(known[0]) < n_words or len(known[1]) < n_labels:
        known = _scratch.search = (
            np.full(n_words, -1, np.int64),
            np.zeros(n_labels, np.float64),
            np.zeros(n_labels, np.bool_),
        )
    return known
