"""Label trees with a linear classifier per node: Parabel, Bonsai, plain PLT."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK, as_csr, parts
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.kernels import beam
from coattail.kernels.runtime import pool
from coattail.kernels.runtime.scratch import kept
from coattail.kernels.sparse import constant
from coattail.labels import tree as trees_
from coattail.labels import tree_building, tree_params
from coattail.labels.tree import Tree
from coattail.models.fitted import Fitted
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_params import PltParams
from coattail.models.linear.node_problems import NodeProblems
from coattail.models.linear.node_weights import NodeWeights, TreeWeights, assemble
from coattail.models.linear.ovr import GROUP, check_rows
from coattail.progress import progress

BATCH = 512  # texts searched together: a node's words are laid out once for all of them


@dataclass(frozen=True)
class _Job:
    """Some outputs of one node, counted from ``start``."""

    tree: int
    node: int
    start: int
    stop: int


class Plt(Fitted):
    """A probabilistic label tree, or the average of several.

    Attributes
    ----------
    trees_ : list of Tree
    weights_ : list of TreeWeights, one per tree
    unconverged_ : int, after fit: classifiers that ended at the limit of epochs
    n_words_ : int
    """

    def __init__(
        self,
        params: PltParams,
        trees: list[Tree] | None = None,
        *,
        partial: str | Path | None = None,
        tail: NDArray[np.bool_] | None = None,
        counted: sp.csr_matrix | None = None,
    ) -> None:
        self.params = params
        self._given = trees
        self._partial = Path(partial) if partial else None
        self._tail, self._counted = tail, counted

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Plt:
        """Train a classifier for every child of every node, on the texts that reach the node."""
        X, Y = as_csr(X, "X"), as_csr(Y, "Y")
        check_rows(X, Y)
        self.trees_ = self._given or tree_building.build(tree_params.BalancedTree(), X, Y)
        for tree in self.trees_:
            if tree.n_labels != Y.shape[1]:
                raise ModelError(
                    f"the tree has {tree.n_labels} labels but Y has {Y.shape[1]}; "
                    "run dvc repro build_plt"
                )
        given = (self._tail, self._counted)
        problems = [NodeProblems(self.params, tree, X, Y, *given) for tree in self.trees_]
        jobs = [
            _Job(t, node, start, stop)
            for t, problem in enumerate(problems)
            for node in range(problem.tree.n_nodes)
            for start, stop in pool.chunks(problem.n_outputs(node), GROUP)
        ]
        # Large problems first: none is left to run alone at the end.
        jobs.sort(key=lambda job: -problems[job.tree].n_rows(job.node))
        numbered = list(enumerate(jobs))
        done: list[dict[int, list[tuple[int, NodeWeights]]]] = [{} for _ in problems]
        n_outputs = sum(job.stop - job.start for job in jobs)
        self.unconverged_ = 0
        with progress("label tree", n_outputs, "classifiers") as bar:
            work = lambda job: problems[job.tree].train(job.node, job.start, job.stop)  # noqa: E731
            for number, weights, new in problem_groups.solve_all(
                numbered, work, self._resumable(X, Y)
            ):
                job = jobs[number]
                done[job.tree].setdefault(job.node, []).append((job.start, weights))
                self.unconverged_ += int(weights.limited.sum())
                bar.advance(job.stop - job.start, new=new)
        problem_groups.tell_unconverged(
            self.unconverged_, n_outputs, "raise max_epochs and max_visits, or lower C"
        )
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
            with kept("slots", self.n_words_, np.int64, -1) as slots:
                options = (self.params.beam, self.params.discount, transform, slots)
                found = [beam.search(*rows, *limits, *arrays, *options) for arrays in forest]
            ends = np.cumsum([0] + [len(f[1]) for f in found[:-1]])
            first = np.stack([f[0] + end for f, end in zip(found, ends, strict=True)])
            all_labels = np.concatenate([f[1] for f in found])
            all_scores = np.concatenate([f[2] for f in found])
            with (
                kept("total", n_labels, np.float64) as total,
                kept("touched", n_labels, np.bool_) as touched,
            ):
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
                for field in fields(TreeWeights):
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
                TreeWeights(
                    **{
                        field.name: np.load(
                            folder / f"weights-{i}" / f"{field.name}.npy",
                            mmap_mode="r",
                            allow_pickle=False,
                        )
                        for field in fields(TreeWeights)
                    }
                )
                for i in range(len(model.trees_))
            ]
        except FileNotFoundError as error:
            raise ModelError(
                f"{folder} is no label-tree model: {error.filename} is missing"
            ) from None
        return model

    def _resumable(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> problem_groups.Partial[NodeWeights]:
        shapes = [array for tree in self.trees_ for array in (tree.parent, tree.leaf)]
        things = {"texts": X, "labels": Y, "trees": shapes}
        things |= {"tail": self._tail, "counted": self._counted}
        return problem_groups.Partial(self._partial, NodeWeights, self.params, things)


def _searchable(tree: Tree, weights: TreeWeights) -> tuple[NDArray, ...]:
    return constant(
        weights.node_word, weights.words, weights.entry, weights.child, weights.weight,
        weights.bias, weights.output, tree.first_child, tree.first_label, tree.label_order,
    )  # fmt: skip
