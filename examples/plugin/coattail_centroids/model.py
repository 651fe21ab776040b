"""A label is the mean of its training texts; a text has the labels whose means are nearest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from coattail.arrays import TopK, as_csr, load_csr, save_csr, topk_of_csr, unit_rows
from coattail.errors import ModelError
from coattail.files import atomic_folder
from coattail.models.fitted import Fitted
from coattail_centroids.params import CentroidsParams

BATCH = 2000  # texts whose scores for all labels are in memory at a time


class Centroids(Fitted):
    """Labels by the cosine of a text and the mean of the label's texts, times count ** prior.

    Attributes
    ----------
    centroids_ : CSR (labels, words), unit rows; a label without a text has an empty one
    counts_ : int64 (labels,), training texts per label
    """

    def __init__(self, params: CentroidsParams) -> None:
        self.params = params

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> Centroids:
        """Average the texts X (n, words) of every label of Y (n, labels)."""
        X, Y = as_csr(X, "X"), as_csr(Y, "Y")
        self.centroids_ = unit_rows(as_csr(Y.T @ X, "the sums of texts"))
        self.counts_ = np.asarray(Y.sum(axis=0), np.int64).ravel()
        return self

    def predict(self, X: sp.csr_matrix, k: int) -> TopK:
        """The k labels with the largest scores; a text that shares no word with any has none."""
        X = as_csr(X, "X")
        if X.shape[1] != self.centroids_.shape[1]:
            raise ModelError(
                f"the model knows {self.centroids_.shape[1]} words, X has {X.shape[1]}; "
                "use the features it was trained on"
            )
        weight = sp.diags_array(np.maximum(self.counts_, 1).astype(np.float32) ** self.params.prior)
        by_word = sp.csr_matrix(self.centroids_.T @ weight)
        starts = range(0, max(X.shape[0], 1), BATCH)
        tops = [topk_of_csr(_scores(X[i : i + BATCH], by_word), k, "margin") for i in starts]
        return TopK(
            np.vstack([top.labels for top in tops]),
            np.vstack([top.scores for top in tops]),
            "margin",
        )

    def save(self, folder: str | Path) -> None:
        """Write params.json (its ``model`` says whose folder it is), the means and the counts."""
        with atomic_folder(folder) as out:
            (out / "params.json").write_text(self.params.model_dump_json(indent=1) + "\n")
            save_csr(out / "centroids", self.centroids_)
            np.save(out / "counts.npy", self.counts_)

    @classmethod
    def load(cls, folder: str | Path) -> Centroids:
        """Read a saved model."""
        folder = Path(folder)
        try:
            content = json.loads((folder / "params.json").read_text())
        except FileNotFoundError:
            raise ModelError(f"{folder} is no model of centroids: params.json is missing") from None
        model = cls(CentroidsParams.model_validate(content))
        model.centroids_ = load_csr(folder / "centroids")
        model.counts_ = np.load(folder / "counts.npy", allow_pickle=False)
        return model


def _scores(X: sp.csr_matrix, by_word: sp.csr_matrix) -> sp.csr_matrix:
    return as_csr(unit_rows(X) @ by_word, "scores")


def explain(
    model: Centroids, x: sp.csr_matrix, labels: list[int], n: int
) -> list[list[tuple[int, float]]]:
    """For each label the n words of a text that add most to its cosine, strongest first."""
    found = []
    for label in labels:
        row = as_csr(x.multiply(model.centroids_[[label]]), "the words' shares")
        order = np.lexsort((row.indices, -row.data))[:n]
        found.append([(int(row.indices[i]), float(row.data[i])) for i in order])
    return found


def add_label(model: Centroids, name: str, new: sp.csr_matrix, training: Callable[[], Any]) -> None:
    """One more label: the mean of its texts. The others stay, so no training text is needed."""
    mean = unit_rows(as_csr(sp.csr_matrix(new.sum(axis=0)), "the sum of texts"))
    model.centroids_ = as_csr(sp.vstack([model.centroids_, mean], format="csr"), "means")
    model.counts_ = np.append(model.counts_, new.shape[0])
