"""Label trees from clustered labels: two arrays on disk, one form for linear and deep models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coattail.config import parse
from coattail.errors import DataError, ModelError
from coattail.files import atomic_folder
from coattail.labels.tree_params import TreeParams

RECIPE = "recipe.json"


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


def save(folder: str | Path, trees: list[Tree], recipe: TreeParams | None = None) -> None:
    """Write trees as ``<i>/parent.npy`` and ``<i>/leaf.npy`` beside a readable ``tree.json``.

    How they were built goes beside them, so that parts of the data can be clustered the same way.
    """
    with atomic_folder(folder) as out:
        if recipe is not None:
            (out / RECIPE).write_text(recipe.model_dump_json(indent=1) + "\n")
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


def recipe_of(folder: str | Path) -> TreeParams | None:
    """How the trees of a folder were built; None if nobody said."""
    path = Path(folder) / RECIPE
    return parse(json.loads(path.read_text()), TreeParams, str(path)) if path.exists() else None


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
