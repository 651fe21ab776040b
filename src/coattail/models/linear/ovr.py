"""One-vs-rest: a linear classifier per label against all texts (DiSMEC)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK, as_csr, best_first, hinge_probability, load_csr, parts, save_csr
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.kernels import beam, best_labels
from coattail.kernels.lanes import LANES
from coattail.kernels.runtime import pool
from coattail.kernels.solvers.problems import Labels
from coattail.kernels.sparse import constant
from coattail.models.fitted import Fitted
from coattail.models.linear import problem_groups
from coattail.models.linear.linear_params import OvrParams
from coattail.progress import progress

GROUP = 256  # labels trained together: eight blocks, so that a nearly done block is refilled
SHARES = 8  # towards the end a group is an eighth of what is left, so that threads end together


class Ovr(Fitted):
    """One-vs-rest linear classifiers.

    Attributes
    ----------
    W_ : CSR (words, labels)
        Weights, word by word.
    bias_ : float32 (labels,)
        -inf for a label without a training text: it is never given.
    unconverged_ : int
        After fit: labels that ended at the limit of rounds.
    """

    def __init__(
        self,
        params: OvrParams,
        *,
        partial: str | Path | None = None,
        tail: NDArray[np.bool_] | None = None,
        counted: sp.csr_matrix | None = None,
    ) -> None:
        self.params = params
        self._partial = Path(partial) if partial else None
        self._tail, self._counted = tail, counted
        self._by_label: sp.csr_matrix | None = None

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Ovr:
        """Train on X (n, words) and Y (n, labels); groups of labels run in parallel."""
        X, Y = as_csr(X, "X"), as_csr(Y, "Y")
        check_rows(X, Y)
        positives = sp.csc_matrix(Y)
        counts = np.diff(positives.indptr).astype(np.int64)
        jobs = list(enumerate(self._groups(counts, X.shape[1])))
        rows = problem_groups.by_frequency(X)
        c_pos, c_neg, target = self._c(Y if self._counted is None else self._counted)

        def work(labels: NDArray[np.int64]) -> problem_groups.Solved:
            chosen = positives[:, labels]
            group = Labels(
                labels,
                chosen.indptr.astype(np.int64),
                chosen.indices.astype(np.int32),
                c_pos[labels],
                c_neg[labels],
                target[labels],
            )
            return problem_groups.solve(rows, group, self.params)

        found: list[problem_groups.Solved] = []
        self.bias_ = np.full(Y.shape[1], -np.inf, np.float32)
        self.unconverged_, n_classifiers = 0, int((counts > 0).sum())
        with progress("one-vs-rest", n_classifiers, "labels") as bar:
            for number, solved, new in problem_groups.solve_all(jobs, work, self._resumable(X, Y)):
                labels = jobs[number][1]
                self.bias_[labels] = solved.bias
                found.append(solved)
                self.unconverged_ += int(solved.limited.sum())
                bar.advance(len(labels), _summary(solved), new)
        problem_groups.tell_unconverged(
            self.unconverged_, n_classifiers, "raise max_epochs or max_rounds, or lower C"
        )
        self.W_ = _by_word(found, [labels for _, labels in jobs], X.shape[1], Y.shape[1])
        self._by_label = None
        if self.params.shrink_norms:
            self._shrink_norms()
        return self

    def predict(self, X: sp.csr_matrix, k: int) -> TopK:
        """The k best labels of every row."""
        X = as_csr(X, "X")
        if X.shape[1] != self.W_.shape[0]:
            raise ModelError(
                f"the model knows {self.W_.shape[0]} words, X has {X.shape[1]}; "
                "use the features it was trained on"
            )
        labels = np.empty((X.shape[0], k), np.int32)
        scores = np.empty((X.shape[0], k), np.float32)
        self._rank(X, labels, scores)
        if self.params.output == "margin":
            return TopK(labels, scores, "margin")
        return best_first(labels, as_probability(scores, self.params.loss), k, "probability")

    def save(self, folder: str | Path) -> None:
        """Write the model; what was kept for resuming goes."""
        with atomic_folder(folder) as out:
            (out / "params.json").write_text(self.params.model_dump_json(indent=1) + "\n")
            save_csr(out / "W", self.W_)
            np.save(out / "bias.npy", self.bias_)
        if self._partial is not None:
            shutil.rmtree(self._partial, ignore_errors=True)

    @classmethod
    def load(cls, folder: str | Path) -> Ovr:
        """Read a saved model; the weights stay memory-mapped."""
        folder = Path(folder)
        try:
            model = cls(OvrParams.model_validate(json.loads((folder / "params.json").read_text())))
            model.bias_ = np.load(folder / "bias.npy", allow_pickle=False)
        except FileNotFoundError as error:
            raise ModelError(
                f"{folder} is no one-vs-rest model: {error.filename} is missing"
            ) from None
        model.W_ = load_csr(folder / "W")
        return model

    def _shrink_norms(self) -> None:
        """Divide classifiers, their biases too, by their norm; one without a word stays."""
        W = self.W_
        norms = np.sqrt(np.bincount(W.indices, np.square(W.data, dtype=np.float64), W.shape[1]))
        factor = np.where(norms > 0, norms, 1.0) ** -self.params.shrink_norms
        W.data *= factor[W.indices].astype(np.float32)
        self.bias_ *= factor.astype(np.float32)

    def _groups(self, counts: NDArray[np.int64], n_words: int) -> list[NDArray[np.int64]]:
        """Labels with a text, frequent and rare ones mixed so that groups take equal time."""
        seen = np.flatnonzero(counts)
        seen = seen[np.argsort(-counts[seen], kind="stable")]
        # Unpruned weights of a group are the largest thing it holds.
        fit = self.params.memory_mb * 2**20 // (8 * max(n_words, 1))
        size = int(np.clip(fit // LANES * LANES, LANES, GROUP))
        n_blocks = -(-len(seen) // LANES)
        blocks = [seen[b::n_blocks] for b in range(n_blocks)]
        groups = []
        while blocks:
            take = int(np.clip(len(blocks) // SHARES, min(2, size // LANES), size // LANES))
            groups.append(np.concatenate(blocks[:take]))
            del blocks[:take]
        return groups

    def _c(
        self, counted: sp.csr_matrix
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """C of positives, C of negatives and the positives' target, of every label."""
        params, n = self.params, counted.shape[0]
        counts = problem_groups.texts_per_label(counted)
        tail = self._tail if self._tail is not None else problem_groups.tail_mask(params, counts)
        c = np.where(tail, params.C * params.tail_c, params.C)
        c_pos = c * problem_groups.positive_weights(params, counts, n)
        target = problem_groups.positive_targets(params, counts, n)
        return c_pos.astype(np.float32), c.astype(np.float32), target

    def _resumable(
        self, X: sp.csr_matrix, Y: sp.csr_matrix
    ) -> problem_groups.Partial[problem_groups.Solved]:
        things = {"texts": X, "labels": Y, "tail": self._tail, "counted": self._counted}
        return problem_groups.Partial(self._partial, problem_groups.Solved, self.params, things)

    def _rank(
        self, X: sp.csr_matrix, labels: NDArray[np.int32], scores: NDArray[np.float32]
    ) -> None:
        rows, bias = constant(*parts(X)), constant(self.bias_)
        if self._prefers_blocks(X):
            if self._by_label is None:
                self._by_label = sp.csr_matrix(self.W_.T.tocsr())
            weights = constant(*parts(self._by_label))
            size = min(-(-X.shape[0] // pool.threads()), 8192)

            def rank(limits: tuple[int, int]) -> None:
                W = problem_groups.dense_block(self.W_.shape[0])
                best_labels.by_block(*rows, *limits, *weights, *bias, W, labels, scores)
        else:
            weights = constant(*parts(self.W_))
            size = 64

            def rank(limits: tuple[int, int]) -> None:
                best_labels.by_word(*rows, *limits, *weights, *bias, labels, scores)

        list(pool.each(rank, pool.chunks(X.shape[0], size)))

    def _prefers_blocks(self, X: sp.csr_matrix) -> bool:
        """Whether dense blocks of labels beat adding up word by word; the answer is the same."""
        n_words, n_labels = self.W_.shape
        additions = int(np.diff(self.W_.indptr)[X.indices].sum(dtype=np.int64))
        blocks = -(-n_labels // LANES)
        # Nanoseconds, measured: a scattered addition, a word of LANES labels, a weight laid out.
        spread = 0.1 * n_words * LANES * blocks * pool.threads() + 2.0 * self.W_.nnz
        return 3.0 * X.nnz * blocks + spread < 1.0 * additions


def check_rows(X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
    """X and Y must describe the same texts, and some label must have one."""
    if X.shape[0] != Y.shape[0]:
        raise ModelError(
            f"X has {X.shape[0]} texts but Y has {Y.shape[0]}; run dvc repro preprocess"
        )
    if not np.any(Y.data):
        raise ModelError("no label has a training text; there is nothing to learn")


def as_probability(margins: NDArray[np.float32], loss: str) -> NDArray[np.float32]:
    """Margins as scores in [0, 1]: `hinge_probability` for the hinge, else the sigmoid."""
    if loss == "logistic":
        return (1.0 / (1.0 + np.exp(-margins))).astype(np.float32)
    return hinge_probability(margins)


def _by_word(
    found: list[problem_groups.Solved], labels: list[NDArray[np.int64]], n_words: int, n_labels: int
) -> sp.csr_matrix:
    """One CSR (words, labels) from the weights of all groups; empties ``found``."""
    start, stop, words, weights = problem_groups.joined(found)
    found.clear()  # the weights are the largest thing in memory: never more than two copies
    column = np.concatenate(labels)
    order = np.argsort(column)
    arrays = constant(start[order], stop[order], words, weights)
    child, data = np.empty(len(arrays[2]), np.int32), np.empty(len(arrays[2]), np.float32)
    used, length = beam.by_word(*arrays, np.full(n_words, -1, np.int32), child, data)
    counts = np.zeros(n_words, np.int64)
    counts[used] = length
    indptr = np.concatenate([[0], np.cumsum(counts)])
    # Labels come in their order, so every word lists its labels in order.
    columns = column[order].astype(np.int32)[child]
    W = sp.csr_matrix((data, columns, indptr), shape=(n_words, n_labels), copy=False)
    W.has_canonical_format = True
    return W


def _summary(solved: problem_groups.Solved) -> str:
    rounds, _, rows = solved.stats.mean(axis=0)[:3]
    return f"{rounds:.1f} rounds, {rows:.0f} active rows a label"
