"""Instance trees: FastXML, and PfastreXML with propensities and label centres."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK, as_csr, best_first, load_csr, parts, save_csr, unit_rows
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.kernels import beam, instance_trees
from coattail.kernels.runtime import pool
from coattail.kernels.runtime.scratch import kept
from coattail.kernels.sparse import constant
from coattail.labels.frequency import counts, inverse_propensity
from coattail.labels.tree_building import label_vectors
from coattail.models.fitted import Fitted
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_params import FastxmlParams
from coattail.models.linear.ovr import check_rows
from coattail.progress import progress

BATCH = 64
SHORTLIST = 10  # PfastreXML re-ranks this many times k labels of the trees


@dataclass(frozen=True)
class InstanceTree:
    """One tree as flat arrays; the left child of an inner node is the next node."""

    right: NDArray[np.int32]  # (m,), -1 for a leaf
    split_first: NDArray[np.int64]  # (m + 1,), into words and weights
    words: NDArray[np.int32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]  # (m,)
    leaf_first: NDArray[np.int64]  # (m + 1,), into labels and scores
    labels: NDArray[np.int32]
    scores: NDArray[np.float32]


class Fastxml(Fitted):
    """An ensemble of instance trees; a score is the mean label frequency in a text's leaves.

    Attributes
    ----------
    trees_ : list of InstanceTree
    shape_ : (words, labels)
    centres_ : CSR (labels, words) of unit rows, for PfastreXML; else None
    """

    def __init__(self, params: FastxmlParams, *, partial: str | Path | None = None) -> None:
        self.params = params
        self._partial = Path(partial) if partial else None

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Fastxml:
        """Grow the trees in parallel, each from its own seed."""
        X, Y = as_csr(X, "X"), as_csr(Y, "Y")
        check_rows(X, Y)
        Y = Y.copy()
        Y.eliminate_zeros()
        gains = self._gains(Y)
        arrays = constant(*parts(X))
        labels = constant(*parts(gains)[:2], gains.data, _ideal(gains))
        limits = (self.params.leaf, self.params.leaf_labels, self.params.C, self.params.newton)

        def one(tree: int) -> InstanceTree:
            key = self.params.seed * 1_000_003 + tree
            return InstanceTree(
                *instance_trees.grow(*arrays, X.shape[1], *labels, Y.shape[1], *limits, key)
            )

        self.trees_ = []
        with progress("instance trees", self.params.trees, "trees") as bar:
            things = {"texts": X, "labels": Y}
            grown = problem_groups.Partial(self._partial, InstanceTree, self.params, things)
            jobs = [(tree, tree) for tree in range(self.params.trees)]
            for _, tree, new in problem_groups.solve_all(jobs, one, grown):
                self.trees_.append(tree)
                bar.advance(1, f"{len(tree.right)} nodes", new)
        self.shape_ = (X.shape[1], Y.shape[1])
        self.centres_ = label_vectors(X, Y) if self.params.propensity else None
        return self

    def predict(self, X: sp.csr_matrix, k: int) -> TopK:
        """The k best labels of every row among those in its leaves."""
        X = as_csr(X, "X")
        if X.shape[1] != self.shape_[0]:
            raise ModelError(
                f"the model knows {self.shape_[0]} words, X has {X.shape[1]}; "
                "use the features it was trained on"
            )
        wanted = SHORTLIST * k if self.params.propensity else k
        labels = np.empty((X.shape[0], wanted), np.int32)
        scores = np.empty((X.shape[0], wanted), np.float32)
        rows = constant(*parts(X))
        trees = [constant(*vars(tree).values()) for tree in self.trees_]

        def batch(limits: tuple[int, int]) -> None:
            n = limits[1] - limits[0]
            room = sum(int(np.diff(tree.leaf_first).max(initial=0)) for tree in self.trees_)
            first = np.arange(n, dtype=np.int64) * room
            found, found_scores = np.empty(n * room, np.int32), np.empty(n * room, np.float32)
            at = first.copy()
            with kept("dense row", self.shape_[0], np.float32) as x:
                for tree in trees:
                    instance_trees.add_leaves(*rows, *limits, *tree, x, at, found, found_scores)
            ragged = _dense_to_ragged(first, at, found, found_scores)
            # A row's list holds the labels of all trees: merge one list, then divide.
            with (
                kept("total", self.shape_[1], np.float64) as total,
                kept("touched", self.shape_[1], np.bool_) as touched,
            ):
                beam.merge(*ragged, total, touched, 1, limits[0], labels, scores)

        list(pool.each(batch, pool.chunks(X.shape[0], BATCH)))
        scores /= np.float32(len(self.trees_))
        if not self.params.propensity:
            return TopK(labels, scores, "probability")
        return best_first(labels, self._recentred(X, labels, scores), k, "probability")

    def save(self, folder: str | Path) -> None:
        """Write the model; what was kept for resuming goes."""
        with atomic_folder(folder) as out:
            (out / "params.json").write_text(self.params.model_dump_json(indent=1) + "\n")
            (out / "shape.json").write_text(json.dumps(list(self.shape_)) + "\n")
            for field in fields(InstanceTree):
                own = [getattr(tree, field.name) for tree in self.trees_]
                np.save(out / f"{field.name}.npy", np.concatenate(own))
                sizes = np.array([len(array) for array in own], np.int64)
                np.save(out / f"{field.name}.sizes.npy", sizes)
            if self.centres_ is not None:
                save_csr(out / "centres", self.centres_)
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)

    @classmethod
    def load(cls, folder: str | Path) -> Fastxml:
        """Read a saved model; all trees lie in a few memory-mapped arrays."""
        folder = Path(folder)
        try:
            model = cls(
                FastxmlParams.model_validate(json.loads((folder / "params.json").read_text()))
            )
            words, labels = json.loads((folder / "shape.json").read_text())
            columns = [_split_array(folder, field.name) for field in fields(InstanceTree)]
        except FileNotFoundError as error:
            raise ModelError(f"{folder} is no FastXML model: {error.filename} is missing") from None
        model.shape_ = (words, labels)
        model.trees_ = [InstanceTree(*arrays) for arrays in zip(*columns, strict=True)]
        model.centres_ = load_csr(folder / "centres") if model.params.propensity else None
        return model

    def _gains(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """Label weights of every text: 1, or 1/p scaled to at most 1."""
        gains = Y.copy()
        gains.data[:] = 1
        if self.params.propensity:
            q = inverse_propensity(counts(Y), Y.shape[0], *self.params.propensity_constants)
            gains.data[:] = (q / q.max())[gains.indices]
        return gains

    def _recentred(
        self, X: sp.csr_matrix, labels: NDArray[np.int32], scores: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """P^alpha times exp(-gamma/2 |x - centre|^2)^(1 - alpha), P the trees' score."""
        assert self.centres_ is not None
        row = np.repeat(np.arange(len(labels)), labels.shape[1])
        flat = labels.ravel()
        real = np.flatnonzero(flat >= 0)
        unit = unit_rows(X)
        cosine = np.zeros(len(flat))
        for start, stop in pool.chunks(len(real), 100_000):
            part = real[start:stop]
            products = unit[row[part]].multiply(self.centres_[flat[part]])
            cosine[part] = np.asarray(products.sum(axis=1)).ravel()
        distance = np.maximum(0.0, 2.0 - 2.0 * cosine).reshape(labels.shape)
        alpha, gamma = self.params.alpha, self.params.gamma
        trees = np.where(labels >= 0, scores, 1.0).astype(np.float64)
        centred = trees**alpha * np.exp(-0.5 * gamma * distance) ** (1.0 - alpha)
        return np.where(labels >= 0, centred, -np.inf).astype(np.float32)


def _ideal(gains: sp.csr_matrix) -> NDArray[np.float64]:
    """One over the largest DCG a ranking can give each text; 0 for a text without labels, (n,)."""
    lengths = np.diff(gains.indptr)
    row = np.repeat(np.arange(gains.shape[0]), lengths)
    order = np.lexsort((-gains.data, row))
    rank = np.arange(len(row)) - np.repeat(gains.indptr[:-1], lengths)
    best = np.bincount(row, gains.data[order] / np.log2(2.0 + rank), minlength=gains.shape[0])
    return np.divide(1.0, best, out=np.zeros(len(best)), where=best > 0)


def _split_array(folder: Path, name: str) -> list[NDArray]:
    joined = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    sizes = np.load(folder / f"{name}.sizes.npy", allow_pickle=False)
    return np.split(joined, np.cumsum(sizes)[:-1])


def _dense_to_ragged(
    first: NDArray[np.int64], last: NDArray[np.int64], labels: NDArray, scores: NDArray
) -> tuple[NDArray[np.int64], NDArray, NDArray]:
    """Drop the unused room between rows: (1, n + 1) starts, labels, scores."""
    lengths = last - first
    starts = np.concatenate([[0], np.cumsum(lengths)])
    source = np.repeat(first - starts[:-1], lengths) + np.arange(starts[-1])
    return starts[None, :], labels[source], scores[source]
