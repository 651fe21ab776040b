"""Label trees from clustered labels: two arrays on disk, one form for linear and deep models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field

from coattail.arrays import as_csr, atomic_folder, parts, unit_rows
from coattail.config import Params
from coattail.errors import DataError, ModelError

GATHERED = 1024  # labels whose texts one thread adds up before it takes others
FAINT = 0.1  # companions of a label that make up less of its length are left out


class _Clustered(Params):
    """What all methods that cluster labels share."""

    leaf: int = Field(100, ge=1, description="labels in a leaf, at most")
    trees: int = Field(1, ge=1, description="trees, each from its own seed")
    seed: int = Field(0, ge=0, description="seed of the first tree; the others count up")
    tolerance: float = Field(1e-4, ge=0.0, description="gain in mean cosine that ends clustering")
    max_iterations: int = Field(50, ge=1, description="rounds of k-means per node, at most")
    representation: Literal["input", "cooccurrence", "both", "companions"] = Field(
        "input",
        description="what a label is to the clustering: its texts' words, labels, or both; "
        "companions: its texts' labels, the rare ones first",
    )
    regroup: bool = Field(
        False, description="move labels to the leaf that most of their texts reach anyway"
    )


class FlatTree(Params):
    """No inner level: all labels hang under the root."""

    method: Literal["flat"] = Field("flat", description="no clustering")


class BalancedTree(_Clustered):
    """Balanced spherical 2-means, halved until a cluster fits a leaf (Parabel)."""

    method: Literal["balanced"] = Field("balanced", description="balanced 2-means")


class KmeansTree(_Clustered):
    """Unbalanced spherical k-means, shallow and wide (Bonsai)."""

    method: Literal["kmeans"] = Field("kmeans", description="k-way unbalanced k-means")
    k: int = Field(100, ge=2, description="clusters of a node, at most")
    levels: int = Field(1, ge=1, description="levels of clusters between the root and the labels")


class ShallowTree(_Clustered):
    """A balanced binary tree of which only some levels are kept (AttentionXML: K, M, H)."""

    method: Literal["shallow"] = Field("shallow", description="compressed balanced tree")
    leaf: int = Field(8, ge=1, description="labels in a leaf, at most (M)")
    group: int = Field(8, ge=2, description="children of an inner node below the root (K, 2^c)")
    levels: int = Field(1, ge=1, description="levels of clusters kept, the finest first (H)")


TreeParams = Annotated[
    FlatTree | BalancedTree | KmeansTree | ShallowTree, Field(discriminator="method")
]


@dataclass(frozen=True, eq=False)
class Tree:
    """A rooted tree with labels under its leaves.

    Attributes
    ----------
    parent : int32 (m,)
        Parent of every node. Node 0 is the root (parent -1); nodes are numbered level by level,
        so the children of a node are consecutive.
    leaf : int32 (L,)
        The node each label hangs under; -1 for a label without a training text, which no tree can
        place and no model can learn (``unseen`` lists them).
    """

    parent: NDArray[np.int32]
    leaf: NDArray[np.int32]

    def __post_init__(self) -> None:
        m, inner = self.n_nodes, self.parent[1:]
        if m == 0 or self.parent[0] != -1 or np.any(inner < 0) or np.any(np.diff(inner) < 0):
            raise DataError("tree: nodes must be numbered level by level from the root, node 0")
        if np.any(inner >= np.arange(1, m)) or np.any((self.leaf < -1) | (self.leaf >= m)):
            raise DataError(f"tree: a node or label hangs under a node outside 0..{m - 1}")

    @property
    def n_nodes(self) -> int:
        return len(self.parent)

    @property
    def n_labels(self) -> int:
        return len(self.leaf)

    @cached_property
    def node_depth(self) -> NDArray[np.int32]:
        """Edges from the root to every node, (m,)."""
        depth = np.zeros(self.n_nodes, np.int32)
        for node in range(1, self.n_nodes):
            depth[node] = depth[self.parent[node]] + 1
        return depth

    @property
    def depth(self) -> int:
        """Levels of clusters between the root and the labels: 0 for a flat tree."""
        return int(self.node_depth.max())

    @cached_property
    def first_child(self) -> NDArray[np.int32]:
        """Children of node v are ``first_child[v]..first_child[v + 1]``, (m + 1,)."""
        return (np.searchsorted(self.parent[1:], np.arange(self.n_nodes + 1)) + 1).astype(np.int32)

    @cached_property
    def label_order(self) -> NDArray[np.int32]:
        """Labels sorted by leaf, then by id; unseen ones are left out."""
        order = np.argsort(self.leaf, kind="stable").astype(np.int32)
        return order[np.count_nonzero(self.leaf < 0) :]

    @cached_property
    def first_label(self) -> NDArray[np.int64]:
        """Labels of node v are ``label_order[first_label[v]:first_label[v + 1]]``, (m + 1,)."""
        seen = self.leaf[self.leaf >= 0]
        counts = np.bincount(seen, minlength=self.n_nodes)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @property
    def unseen(self) -> NDArray[np.int32]:
        """Labels that are not in the tree."""
        return np.flatnonzero(self.leaf < 0).astype(np.int32)

    def labels_of(self, node: int) -> NDArray[np.int32]:
        """Labels hanging directly under a node."""
        return self.label_order[self.first_label[node] : self.first_label[node + 1]]

    def children_of(self, node: int) -> NDArray[np.int32]:
        return np.arange(self.first_child[node], self.first_child[node + 1], dtype=np.int32)

    def nodes_at(self, depth: int) -> NDArray[np.int32]:
        return np.flatnonzero(self.node_depth == depth).astype(np.int32)

    def ancestor(self, depth: int) -> NDArray[np.int32]:
        """Node above each label at a depth, (L,); its leaf if that is higher; -1 if unseen."""
        node = self.leaf.copy()
        for _ in range(self.depth):
            deep = (node >= 0) & (self.node_depth[node] > depth)
            node[deep] = self.parent[node[deep]]
        return node

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Labels below every node, (m,)."""
        sizes = np.diff(self.first_label)
        for node in range(self.n_nodes - 1, 0, -1):
            sizes[self.parent[node]] += sizes[node]
        return sizes

    def restrict(self, labels: NDArray[np.int32]) -> Tree:
        """The tree over some labels only, renumbered 0..len(labels) in the order given."""
        leaf = self.leaf[labels]
        keep = np.zeros(self.n_nodes, bool)
        keep[0] = True
        keep[leaf[leaf >= 0]] = True
        for node in range(self.n_nodes - 1, 0, -1):
            keep[self.parent[node]] |= keep[node]
        number = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
        parent = np.where(self.parent[keep] >= 0, number[self.parent[keep]], -1)
        return Tree(parent.astype(np.int32), np.where(leaf >= 0, number[leaf], -1).astype(np.int32))

    def __str__(self) -> str:
        return self.text()

    def text(
        self,
        names: Sequence[str] | None = None,
        children: int = 4,
        labels: int = 6,
        lines: int = 40,
    ) -> str:
        """The tree as indented lines: so many children and labels per node, and lines, at most."""
        head = (
            f"{self.n_labels - len(self.unseen)} labels, {self.n_nodes} nodes, depth {self.depth}"
        )
        out = [f"{head}, {len(self.unseen)} unseen labels apart"]
        self._render(0, names, children, labels, out)
        if len(out) > lines:
            out[lines:] = [f"... {len(out) - lines} more lines"]
        return "\n".join(out)

    def _render(
        self, node: int, names: Sequence[str] | None, children: int, labels: int, out: list[str]
    ) -> None:
        indent = "  " * (int(self.node_depth[node]) + 1)
        own = self.labels_of(node)
        shown = ", ".join(names[i] if names else str(i) for i in own[:labels])
        more = f", ... {len(own) - labels} more" if len(own) > labels else ""
        out.append(
            f"{indent[2:]}node {node}: {self.sizes[node]} labels{': ' * bool(shown)}{shown}{more}"
        )
        below = self.children_of(node)
        for child in below[:children]:
            self._render(int(child), names, children, labels, out)
        if len(below) > children:
            out.append(f"{indent}... {len(below) - children} more nodes")


def label_vectors(
    X: sp.csr_matrix, Y: sp.csr_matrix, representation: str = "input"
) -> sp.csr_matrix:
    """Labels as unit rows: the sum of their texts' rows, of the labels beside them, or both.

    ``companions`` adds up the texts' labels as if they were words: unit rows of all labels of a
    text, weighted by the square of their inverse frequency, log(1 + n / count), FAINT ones dropped.
    """
    X, Y = as_csr(X, "X"), as_csr(Y, "Y")
    if representation == "companions":
        rarity = np.log1p(Y.shape[0] / np.maximum(np.bincount(Y.indices, Y.data != 0), 1)) ** 2
        weighted = (rarity[Y.indices] * (Y.data != 0), Y.indices, Y.indptr)
        W = unit_rows(sp.csr_matrix(weighted, shape=Y.shape))
        return unit_rows(_unit_sums(W, Y.T.tocsr(), FAINT))
    views = []
    if representation in ("input", "both"):
        views.append(_unit_sums(unit_rows(X), Y.T.tocsr()))
    if representation in ("cooccurrence", "both"):
        together = sp.csr_matrix(Y.T.tocsr() @ Y)
        together.setdiag(0)
        together.eliminate_zeros()
        views.append(unit_rows(together))
    if len(views) == 1:
        return views[0]
    return unit_rows(sp.csr_matrix(sp.hstack(views, format="csr")))


def _unit_sums(X: sp.csr_matrix, labels: sp.csr_matrix, least: float = 0.0) -> sp.csr_matrix:
    """``labels @ X`` with rows of length 1, without entries below ``least``; labels are (L, n)."""
    from coattail.kernels import gather, pool  # numba, only when it is needed
    from coattail.kernels.sparse import constant

    n_labels, n_words = len(labels.indptr) - 1, X.shape[1]
    texts = constant(labels.indptr.astype(np.int64), labels.indices, labels.data)
    add = partial(gather.unit_sums, *constant(*parts(X)), *texts)
    chunks = pool.chunks(n_labels, max(GATHERED, n_labels // 64))  # each clears its own scratch
    found = list(pool.each(lambda limits: add(*limits, n_words, np.float32(least)), chunks))
    lengths, words, sums = (np.concatenate(columns) for columns in zip(*found, strict=True))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_matrix((sums, words, indptr), shape=(n_labels, n_words))


def build(params: TreeParams, X: sp.csr_matrix, Y: sp.csr_matrix) -> list[Tree]:
    """The trees ``params`` asks for, over the labels of Y (n, L)."""
    counts = np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1])
    seen = np.flatnonzero(counts).astype(np.int32)
    if len(seen) == 0:
        raise DataError("a label tree needs at least one label with a training text; Y has none")
    if isinstance(params, FlatTree):
        return [_numbered([[seen]], Y.shape[1])]
    from coattail.clustering import partitions, regrouped  # numba, only when it is needed

    V = label_vectors(X, Y, params.representation)
    trees = [
        _numbered(partitions(params, V, seen, params.seed + i), Y.shape[1])
        for i in range(params.trees)
    ]
    return [regrouped(tree, Y, params.leaf) for tree in trees] if params.regroup else trees


def _numbered(levels: list[list[NDArray[np.int32]]], n_labels: int) -> Tree:
    """A tree from the clusters of every level, the root's first; a cluster lies in one above it."""
    parent, above = [-1], np.full(n_labels, -1, np.int32)
    leaf = np.full(n_labels, -1, np.int32)
    leaf[levels[0][0]] = 0
    for level in levels[1:]:
        above[:] = leaf
        # Children of a node must be consecutive, also when some parents were not split.
        for cluster in sorted(level, key=lambda c: int(above[c[0]])):
            leaf[cluster] = len(parent)
            parent.append(int(above[cluster[0]]))
    return Tree(np.array(parent, np.int32), leaf)


def save(folder: str | Path, trees: list[Tree]) -> None:
    """Write trees as ``<i>/parent.npy`` and ``<i>/leaf.npy`` beside a readable ``tree.json``."""
    with atomic_folder(folder) as out:
        for i, tree in enumerate(trees):
            (out / str(i)).mkdir()
            np.save(out / str(i) / "parent.npy", tree.parent)
            np.save(out / str(i) / "leaf.npy", tree.leaf)
        facts = [
            {
                "nodes": tree.n_nodes,
                "labels": tree.n_labels,
                "unseen": len(tree.unseen),
                "depth": tree.depth,
                "largest_leaf": int(np.diff(tree.first_label).max()),
            }
            for tree in trees
        ]
        (out / "tree.json").write_text(json.dumps(facts, indent=1) + "\n")


def load(folder: str | Path) -> list[Tree]:
    """Read the trees of ``save``."""
    folder = Path(folder)
    try:
        n = len(json.loads((folder / "tree.json").read_text()))
        return [
            Tree(
                np.load(folder / str(i) / "parent.npy", allow_pickle=False),
                np.load(folder / str(i) / "leaf.npy", allow_pickle=False),
            )
            for i in range(n)
        ]
    except FileNotFoundError as error:
        raise ModelError(f"{error.filename} is missing; run dvc repro build_plt") from None
