"""Ranks the labels of the nearest training texts: the texts themselves are the model.

A label with few texts has a poor classifier, but a new text that resembles one of them is good
evidence. `TopK.parts` has two figures per label: its votes, and the cosine of its nearest text.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK, as_csr, load_csr, parts, save_csr, unit_rows
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.kernels import best_labels
from coattail.kernels.runtime import pool
from coattail.kernels.sparse import constant
from coattail.models.fitted import Fitted
from coattail.models.linear.linear_params import NearestParams
from coattail.models.linear.ovr import check_rows

BATCH = 64


class Nearest(Fitted):
    """The labels of the texts with the largest cosine.

    A score is the share of a label's texts among the ``neighbours`` nearest ones, each weighing its
    cosine; the parts are this share and the cosine of the label's nearest text among them.

    Attributes
    ----------
    by_word_ : CSR (words, texts)
        Unit training texts, word by word: one-vs-rest with a text in the place of a label.
    Y_ : CSR (texts, labels)
    """

    def __init__(self, params: NearestParams) -> None:
        self.params = params

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Nearest:
        """Keep the texts X (n, words) and their labels Y (n, labels)."""
        X, Y = as_csr(X, "X"), as_csr(Y, "Y")
        check_rows(X, Y)
        self.Y_ = Y.copy()
        self.Y_.eliminate_zeros()
        self.by_word_ = sp.csr_matrix(unit_rows(X).T.tocsr())
        return self

    def predict(self, X: sp.csr_matrix, k: int) -> TopK:
        """The k labels with most votes; none if the text shares no word with a training text."""
        X = as_csr(X, "X")
        if X.shape[1] != self.by_word_.shape[0]:
            raise ModelError(
                f"the model knows {self.by_word_.shape[0]} words, X has {X.shape[1]}; "
                "use the features it was trained on"
            )
        rows = constant(*parts(unit_rows(X)))
        index = constant(*parts(self.by_word_), np.zeros(self.by_word_.shape[1], np.float32))
        m = min(self.params.neighbours, self.by_word_.shape[1])
        texts, cosines = np.empty((X.shape[0], m), np.int32), np.empty((X.shape[0], m), np.float32)
        labels, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        told = np.empty((X.shape[0], k, 2), np.float32)

        def rank(limits: tuple[int, int]) -> None:
            best_labels.by_word(*rows, *limits, *index, texts, cosines)
            some = slice(*limits)
            top = self._vote(texts[some], np.minimum(cosines[some], 1), k)
            labels[some], scores[some], told[some] = top.labels, top.scores, top.parts

        list(pool.each(rank, pool.chunks(X.shape[0], BATCH)))
        return TopK(labels, scores, "probability", told)

    def save(self, folder: str | Path) -> None:
        """Write the texts, word by word, and their labels."""
        with atomic_folder(folder) as out:
            (out / "params.json").write_text(self.params.model_dump_json(indent=1) + "\n")
            save_csr(out / "by_word", self.by_word_)
            save_csr(out / "labels", self.Y_)

    @classmethod
    def load(cls, folder: str | Path) -> Nearest:
        """Read a saved model; the texts stay memory-mapped."""
        folder = Path(folder)
        try:
            content = json.loads((folder / "params.json").read_text())
        except FileNotFoundError as error:
            raise ModelError(
                f"{folder} is no model of nearest texts: {error.filename} is missing"
            ) from None
        model = cls(NearestParams.model_validate(content))
        model.by_word_, model.Y_ = load_csr(folder / "by_word"), load_csr(folder / "labels")
        return model

    def _vote(self, texts: NDArray[np.int32], cosines: NDArray[np.float32], k: int) -> TopK:
        """From the nearest texts (n, m), nearest first, to labels."""
        near = cosines > 0  # a text without a common word is no neighbour
        of_near = self.Y_[texts[near]]
        lengths, label = np.diff(of_near.indptr), of_near.indices.astype(np.int64)
        row = np.repeat(np.nonzero(near)[0], lengths)
        weight = np.repeat(cosines[near].astype(np.float64), lengths)
        pair, group = np.unique(row * self.Y_.shape[1] + label, return_inverse=True)
        row, label = np.divmod(pair, self.Y_.shape[1])
        votes, best = np.bincount(group, weight, len(pair)), np.zeros(len(pair))
        np.maximum.at(best, group, weight)
        total = np.where(near, cosines, 0).sum(axis=1, dtype=np.float64)
        votes = votes / total[row]
        order = np.lexsort((label, -votes.astype(np.float32), row))
        start = np.searchsorted(row, np.arange(len(texts)))
        rank = np.arange(len(row)) - start[row]
        keep = rank < k
        at, order = (row[keep], rank[keep]), order[keep]
        labels = np.full((len(texts), k), -1, np.int32)
        scores = np.full((len(texts), k), -np.inf, np.float32)
        told = np.zeros((len(texts), k, 2), np.float32)
        labels[at], scores[at] = label[order], votes[order]
        told[at] = np.stack([votes, best], axis=1)[order]
        return TopK(labels, scores, "probability", told)
