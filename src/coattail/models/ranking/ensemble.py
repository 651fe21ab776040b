"""Averages two rankings: a weighted mean of probabilities over the union of their lists.

The result keeps the probabilities of both (`TopK.parts`), so that a calibration can weigh them
label by label. An average of averages keeps those of all rankings in it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field

from coattail.arrays import TopK, best_first
from coattail.config import Params, parse
from coattail.errors import DataError, ModelError
from coattail.evaluation import metrics
from coattail.files import atomic_folder
from coattail.models.fitted import Fitted
from coattail.models.ranking.calibration import probabilities
from coattail.models.ranking.cross_fit import deal, together


class EnsembleParams(Params):
    """A variant of the section ``ensemble``."""

    first: str = Field(description="name of the first candidate")
    second: str = Field(description="name of the second candidate")
    weight: float | None = Field(
        None, ge=0.0, le=1.0, description="weight of the first; null: best nDCG@5 on validation"
    )
    steps: int = Field(20, ge=1, le=1000, description="intervals of the weights tried when null")
    folds: int = Field(
        5, ge=2, le=50, description="parts of validation; each is averaged by the others' weight"
    )
    seed: int = Field(0, ge=0, description="assignment of validation texts to folds")


def combine(a: TopK, b: TopK, weight: float, k: int) -> TopK:
    """The k labels with the largest ``weight * p_a + (1 - weight) * p_b``.

    Margins are mapped to probabilities first, a reranked list enters with the probabilities beside
    its scores, and a label that one list lacks has probability 0 there.

    Parameters
    ----------
    a, b : TopK
        Rankings of the same texts; the lists may differ in length.
    weight : float
        Weight of ``a``, between 0 and 1.
    k : int
        Length of the result.

    Returns
    -------
    TopK of kind ``probability``; a label of weight zero is still listed, behind all others.
    """
    if not 0 <= weight <= 1:
        raise DataError(f"ensemble: weight {weight}; wanted a number between 0 and 1")
    return _weighted(_union(a, b), weight, k)


class Ensemble(Fitted):
    """The weighted mean as a model folder: two names and one number."""

    def __init__(self, params: EnsembleParams) -> None:
        self.params = params
        self.weight_: float
        self.front_: list[dict[str, float]] = []
        self._fold: NDArray[np.int64] | None = None  # of the texts of fit
        self._gains: NDArray[np.float64] | None = None  # nDCG@5 of each by every weight tried

    def fit(self, a: TopK, b: TopK, Y: sp.csr_matrix) -> Ensemble:
        """Keep the weight given, or choose it on validation texts; ties go to the even mix."""
        self._fold = deal(a.n, self.params.folds, self.params.seed)
        self._gains = None
        if self.params.weight is not None:
            self.weight_, self.front_ = self.params.weight, []
            return self
        union = _union(a, b)
        weights = np.linspace(0, 1, self.params.steps + 1).tolist()
        gains = [_ndcg_at_5(_weighted(union, w, 5), Y) for w in weights]
        self._gains = np.stack(gains, axis=1)
        self.front_ = self._front(np.ones(a.n, bool))
        self.weight_ = _best(self.front_)
        return self

    def _front(self, rows: NDArray[np.bool_]) -> list[dict[str, float]]:
        """nDCG@5 of some of the texts of `fit` by every weight tried."""
        if self._gains is None:
            return []
        weights = np.linspace(0, 1, self.params.steps + 1).tolist()
        sums = 100 * self._gains[rows].sum(axis=0) / max(int(rows.sum()), 1)
        return [
            {"weight": weight, "ndcg_at_5": float(gain)}
            for weight, gain in zip(weights, sums, strict=True)
        ]

    def out_of_fold(self, a: TopK, b: TopK, k: int) -> TopK:
        """The rankings of `fit` as one, each text's by the weight that is best for other folds."""
        if self._fold is None:
            raise ModelError("a loaded ensemble has no validation texts; fit it and ask again")
        if self._gains is None or not a.n:
            return self.predict(a, b, k)
        parts = []
        for number in np.unique(self._fold):
            rows = self._fold == number
            weight = _best(self._front(~rows))
            parts.append((rows, combine(a.rows(rows), b.rows(rows), weight, k)))
        return together(parts)

    def predict(self, a: TopK, b: TopK, k: int) -> TopK:
        return combine(a, b, self.weight_, k)

    def save(self, folder: str | Path) -> None:
        content = {
            "params": self.params.model_dump(),
            "weight": self.weight_,
            "front": self.front_,
        }
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> Ensemble:
        path = Path(folder) / "params.json"
        try:
            content = json.loads(path.read_text())
            model = cls(parse(content["params"], EnsembleParams, str(path)))
            model.weight_, model.front_ = float(content["weight"]), content["front"]
        except (FileNotFoundError, KeyError, ValueError) as error:
            raise ModelError(f"{folder} is not a saved ensemble: {error}") from None
        return model


_Union = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.float32]]


def _union(a: TopK, b: TopK) -> _Union:
    """Labels (n, ka + kb) of both lists, each once, with the probability each list gives them.

    And (n, ka + kb, m): the parts of both, where a list without parts is one itself.
    """
    if a.n != b.n:
        raise DataError(
            f"ensemble: the first candidate ranks {a.n} texts, the second {b.n}; "
            "rank the same split with both"
        )
    labels = np.concatenate([a.labels, b.labels], axis=1).astype(np.int32)
    of_a, of_b = _said(a), _said(b)
    said = np.zeros((*labels.shape, of_a.shape[2] + of_b.shape[2]))  # columns: all of a, all of b
    said[:, : a.k, : of_a.shape[2]] = of_a
    said[:, a.k :, of_a.shape[2] :] = of_b
    order = np.argsort(labels, axis=1, kind="stable")
    labels = np.take_along_axis(labels, order, 1)
    said = np.take_along_axis(said, order[..., None], 1)
    # Stable sort: where a label stands in both lists, a's entry comes first and b's right after.
    twice = np.zeros(labels.shape, bool)
    twice[:, 1:] = (labels[:, 1:] == labels[:, :-1]) & (labels[:, 1:] >= 0)
    said[:, :-1] += np.where(twice[:, 1:, None], said[:, 1:], 0)
    labels = np.where(twice, np.int32(-1), labels)
    said[twice] = 0
    own_b = of_a.shape[2]
    parts = np.delete(said, [0, own_b], axis=2).astype(np.float32)
    return labels, said[..., 0], said[..., own_b], parts


def _said(topk: TopK) -> NDArray[np.float64]:
    """(n, k, 1 + m): the ranking's own probabilities, then its parts (itself if it has none)."""
    own = probabilities(topk)[..., None]
    return np.concatenate([own, own if topk.parts is None else topk.parts], axis=2)


def _weighted(union: _Union, weight: float, k: int) -> TopK:
    labels, from_a, from_b, parts = union
    scores = weight * from_a + (1 - weight) * from_b
    return best_first(labels, scores, k, "probability", parts)


def _ndcg_at_5(topk: TopK, Y: sp.csr_matrix) -> NDArray[np.float64]:
    """Of every text, (n,)."""
    return metrics.judge(topk, Y).ratio("ndcg", 5).numerator


def _best(front: list[dict[str, float]]) -> float:
    best = max(front, key=lambda p: (p["ndcg_at_5"], -abs(p["weight"] - 0.5)))
    return best["weight"]
