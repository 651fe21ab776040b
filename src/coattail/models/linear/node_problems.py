"""The binary problems at the nodes of a label tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Parts, parts
from coattail.kernels import beam, node_texts
from coattail.kernels.compact_rows import compact
from coattail.kernels.runtime.scratch import kept, scratch
from coattail.kernels.solvers.problems import Labels
from coattail.kernels.sparse import constant
from coattail.labels.tree import Tree
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_params import PltParams
from coattail.models.linear.node_solver import node_rows, solve_in_lockstep
from coattail.models.linear.node_weights import NodeWeights

# Outputs of a node are trained together on all its texts if there are at least OUTPUTS of them, and
# the node has at most TEXTS texts or an average output has more than SHARE of them. Active sets
# would then hold most of the texts anyway.
OUTPUTS, TEXTS, SHARE = 4, 8_192, 0.005
EPOCHS = 3  # of a node so large that ``max_visits`` would not allow them


class NodeProblems:
    """One problem for every child of a node, and for every label under it.

    Attributes
    ----------
    rows : csr (nodes, texts)
        The texts below every node. Children of a node are consecutive, and so are their texts.
    label_first, label_texts : int (labels + 1,), int32
        The texts of label ``tree.label_order[j]`` are ``label_texts[first[j]:first[j + 1]]``.
    child_type : of the number of an output within its node
    """

    def __init__(
        self,
        params: PltParams,
        tree: Tree,
        X: sp.csr_matrix,
        Y: sp.csr_matrix,
        tail: NDArray[np.bool_] | None,
        counted: sp.csr_matrix | None = None,
    ) -> None:
        self.params, self.tree, self.n_words = params, tree, X.shape[1]
        # Made once for all nodes: a copy of the row bounds at every node would cost nodes * texts.
        self.csr = Parts(*constant(*parts(X)))
        self.squares = problem_groups.squares_of(X)
        self.rows = _rows_below(tree, Y)
        self.texts = np.diff(self.rows.indptr).astype(np.int64)
        self.label_first, self.label_texts = _texts_of(tree.label_order, Y)
        most = (np.diff(tree.first_child) + np.diff(tree.first_label)).max()
        self.child_type = np.uint16 if most <= np.iinfo(np.uint16).max else np.int32
        below = self.texts if counted is None else _texts_below(tree, counted)
        self._weigh(below, Y if counted is None else counted, tail)

    def _weigh(
        self, below: NDArray[np.int64], counted: sp.csr_matrix, tail: NDArray[np.bool_] | None
    ) -> None:
        """C of negatives, C of positives and the positives' target, by node and by label.

        They follow from how many texts a node has ``below`` it, and a label in ``counted``.
        """
        params, tree, n = self.params, self.tree, counted.shape[0]
        node_target = np.ones(tree.n_nodes, np.float32)
        self.node_weight = np.ones(tree.n_nodes)
        for depth in range(1, tree.depth + 1):
            level = tree.nodes_at(depth)
            self.node_weight[level] = problem_groups.positive_weights(params, below[level], n)
            node_target[level] = problem_groups.positive_targets(params, below[level], n)
        everywhere = np.full(tree.n_nodes, params.C, np.float32)
        self.of_node = everywhere, (params.C * self.node_weight).astype(np.float32), node_target
        counts = problem_groups.texts_per_label(counted)
        own = counts[tree.label_order]
        tail = problem_groups.tail_mask(params, counts) if tail is None else tail
        c = np.where(tail[tree.label_order], params.C * params.tail_c, params.C)
        weight = problem_groups.positive_weights(params, own, n)
        label_target = problem_groups.positive_targets(params, own, n)
        self.of_label = c.astype(np.float32), (c * weight).astype(np.float32), label_target

    def n_outputs(self, node: int) -> int:
        children, labels = self._outputs(node)
        return len(children) + len(labels)

    def n_rows(self, node: int) -> int:
        return int(self.texts[node])

    def is_shared(self, node: int) -> bool:
        """Whether the outputs of a node are best trained together on all its texts."""
        children, labels = self._outputs(node)
        n_outputs, n_rows = len(children) + len(labels), self.n_rows(node)
        positives = self.rows.indptr[children.stop] - self.rows.indptr[children.start]
        positives += self.label_first[labels.stop] - self.label_first[labels.start]
        many = positives > SHARE * n_outputs * n_rows
        return n_outputs >= OUTPUTS and bool(many or n_rows <= TEXTS)

    def train(self, node: int, start: int, stop: int) -> NodeWeights:
        """Train outputs start..stop of a node; their weights are sorted by word."""
        texts, params = self._texts(node), self.params
        group = self._group(node, texts, start, stop)
        if params.loss == "squared_hinge" and self.is_shared(node):
            # The more texts, the more one epoch teaches, and the stricter the test that ends a
            # descent: it looks at the largest violation of all texts.
            epochs = max(params.max_visits // max(len(texts), 1), EPOCHS)
            rows = node_rows(self.csr, self.squares, texts, self.n_words)
            return solve_in_lockstep(
                rows, group, params, min(params.max_epochs, epochs), start, self.child_type
            )
        found = problem_groups.solve(self._compacted(texts), group, params)
        child: NDArray[Any] = np.empty(len(found.words), self.child_type)
        weight = np.empty_like(found.weights)
        arrays = constant(found.start, found.stop, found.words, found.weights)
        with kept("place", self.n_words, np.int32, -1) as place:
            words, entries = beam.by_word(*arrays, place, child, weight)
        child += child.dtype.type(start)
        return NodeWeights(words, entries, child, weight, found.bias, found.limited)

    def _outputs(self, node: int) -> tuple[range, range]:
        """Children of a node, and places of its labels in the tree's order."""
        first_child, first_label = self.tree.first_child, self.tree.first_label
        return (
            range(int(first_child[node]), int(first_child[node + 1])),
            range(int(first_label[node]), int(first_label[node + 1])),
        )

    def _group(self, node: int, texts: NDArray[np.int32], start: int, stop: int) -> Labels:
        """Outputs start..stop of a node: its children, then its labels."""
        children, labels = self._outputs(node)
        n = len(children)
        some, others = children[start:stop], labels[max(start - n, 0) : max(stop - n, 0)]
        a, b, c, d = some.start, some.stop, others.start, others.stop
        bounds, firsts = self.rows.indptr[a : b + 1], self.label_first[c : d + 1]
        own = _joined(
            self.rows.indices[bounds[0] : bounds[-1]], self.label_texts[firsts[0] : firsts[-1]]
        )
        between = bounds[-1] - bounds[0]
        return Labels(
            np.arange(start, stop, dtype=np.int64) + (1000003 * node + self.params.seed),
            _joined(bounds[:-1] - bounds[0], firsts + (between - firsts[0])).astype(np.int64),
            np.searchsorted(texts, own).astype(np.int32),
            _joined(self.of_node[1][a:b], self.of_label[1][c:d]),
            _joined(self.of_node[0][a:b], self.of_label[0][c:d]),
            _joined(self.of_node[2][a:b], self.of_label[2][c:d]),
        )

    def _texts(self, node: int) -> NDArray[np.int32]:
        """Texts below a node, in order."""
        indptr = self.rows.indptr
        texts: NDArray[np.int32] = self.rows.indices[indptr[node] : indptr[node + 1]]
        return texts

    def _compacted(self, texts: NDArray[np.int32]) -> problem_groups.Renumbered:
        """Some rows with only the words they have, so that weights fit the cache.

        They are in scratch of this thread: valid until it asks for others.
        """
        nnz = int((self.csr.indptr[texts + 1] - self.csr.indptr[texts]).sum())
        indptr = np.empty(len(texts) + 1, np.int64)
        indices = scratch("indices", nnz, np.int32)
        values = scratch("values", nnz, np.float32)
        words = np.empty(min(nnz, self.n_words), np.int32)
        with kept("place", self.n_words, np.int32, -1) as place:
            found = compact(*self.csr, *constant(texts), place, indptr, indices, values, words)
        return problem_groups.renumbered(
            Parts(indptr, indices, values), self.squares[texts], words[:found]
        )


def _joined(first: NDArray, second: NDArray) -> NDArray:
    """Concatenate; no copy if the first is empty, as it is for most nodes."""
    return np.concatenate([first, second]) if len(first) else second


def _rows_below(tree: Tree, Y: sp.csr_matrix) -> sp.csr_matrix:
    """(nodes, texts): the texts with a label below each node, sorted."""
    walk = constant(Y.indptr.astype(np.int64), Y.indices, Y.data != 0, tree.leaf, tree.parent)
    indptr = np.concatenate([[0], np.cumsum(node_texts.count_texts(*walk))])
    texts = np.empty(indptr[-1], np.int32)
    node_texts.list_texts(*walk, indptr, texts)
    ones = np.ones(len(texts), np.int8)
    return sp.csr_matrix((ones, texts, indptr), shape=(tree.n_nodes, Y.shape[0]))


def _texts_below(tree: Tree, Y: sp.csr_matrix) -> NDArray[np.int64]:
    """How many texts have a label below each node, (nodes,)."""
    return np.diff(_rows_below(tree, Y).indptr).astype(np.int64)


def _texts_of(labels: NDArray[np.int32], Y: sp.csr_matrix) -> tuple[NDArray, NDArray[np.int32]]:
    """The texts of some labels: those of the j-th are ``texts[first[j]:first[j + 1]]``."""
    n = len(labels)
    place = np.full(Y.shape[1], n, np.int32)  # all others come last
    place[labels] = np.arange(n, dtype=np.int32)
    columns = np.where(Y.data != 0, place[Y.indices], np.int32(n))
    ones = np.ones(Y.nnz, np.int8)
    turned = sp.csr_matrix((ones, columns, Y.indptr), shape=(Y.shape[0], n + 1)).tocsc()
    return turned.indptr[:-1], turned.indices
