"""ReRank: multiply a label's probability by a weight that favours rare labels, then sort again.

The weight follows from the label's frequency (`label_weights`) or is learned on validation
(`coattail.models.ranking.trade_off`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.config import parse
from coattail.errors import DataError, ModelError
from coattail.files import atomic_folder
from coattail.models.fitted import Fitted
from coattail.models.ranking.calibration import (
    READS_NAMES,
    Calibration,
    probabilities,
)
from coattail.models.ranking.cross_fit import together
from coattail.models.ranking.fits import Floats
from coattail.models.ranking.name_evidence import Names
from coattail.models.ranking.trade_off import Learned, RerankParams, Validation, learned
from coattail.models.ranking.walk import mixed

__all__ = ["RerankParams", "Reranker", "apply", "label_weights"]


def apply(topk: TopK, weights: NDArray, k: int) -> TopK:
    """Sort the list again by probability times weight.

    Parameters
    ----------
    topk : TopK
        Probabilities, or margins, which are mapped by ``exp(-max(0, 1 - s)^2)``.
    weights : float (L,)
        Not negative; a label of weight 0 is dropped.
    k : int
        Length of the result.

    Returns
    -------
    TopK of kind ``score``: the products, and beside them the probabilities as they were. Equal
    products keep the order of the list that came.
    """
    return _sort(topk, probabilities(topk), weights, weights, k)


def label_weights(counts: NDArray, inverse_propensity: Floats, params: RerankParams) -> Floats:
    """Weight of every label under the strategies that need no validation texts."""
    n = np.maximum(np.asarray(counts, np.float64), 1)
    match params.strategy:
        case "propensity":
            return np.asarray(inverse_propensity, np.float64)
        case "imbalance":
            return 1 + np.log(n.max(initial=1) / n)
        case "frequency":
            return 1 / n
        case "frequency_plus":
            return 1 + 1 / n
        case "power":
            return np.asarray(inverse_propensity, np.float64) ** params.power
    raise ValueError("learned weights come from learn")


class Reranker(Fitted):
    """A reranking as a model folder: weights for the first rank and the rest, and a calibration."""

    def __init__(self, params: RerankParams, label_names: list[str] | None = None) -> None:
        self.params = params
        self.names_ = Names(label_names or []) if params.calibration in READS_NAMES else None
        self.weights_: NDArray[np.float32]  # (2, L): first rank, other ranks
        self.frequency_: NDArray[np.int64]  # (L,) training texts
        self.calibration_ = Calibration("plain")
        self.learned_: Learned | None = None
        self._valid: Validation | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether fit and predict need the texts beside the ranking."""
        return self.names_ is not None

    def fit(
        self,
        topk: TopK,
        Y: sp.csr_matrix,
        counts: NDArray,
        inverse_propensity: Floats,
        texts: list[str] | None = None,
        train_inverse_propensity: Floats | None = None,
    ) -> Reranker:
        """From the base's ranking of the validation texts.

        Arguments as for `Validation`, and the texts for calibrations that read names.
        """
        if self.names_ and len(self.names_.names) != Y.shape[1]:
            raise DataError(
                f"{len(self.names_.names)} names for {Y.shape[1]} labels; run dvc repro preprocess"
            )
        evidence = self._evidence(topk, texts)
        q = np.asarray(inverse_propensity, np.float64)
        valid = Validation(topk, Y, counts, q, self.params, evidence, train_inverse_propensity)
        self._valid, self.frequency_, name = valid, valid.train, valid.cross.name
        if self.params.strategy == "learned":
            self.learned_ = valid.learn()
            name = self.learned_.chosen.calibration
        self.weights_ = self._weights(self.learned_, counts, q)
        self.calibration_ = Calibration(name).fit(topk, valid.hits, valid.frequency, evidence)
        return self

    def _weights(self, learned: Learned | None, counts: NDArray, q: Floats) -> NDArray[np.float32]:
        """(2, L): of the first rank and of the others."""
        if learned is None:
            return np.tile(label_weights(counts, q, self.params), (2, 1)).astype(np.float32)
        point = learned.chosen
        return np.stack([mixed(q, t, point.power) for t in (point.first, point.rest)])

    def out_of_fold(self, k: int) -> TopK:
        """The texts of `fit` ranked again, each by what the other folds of them have taught.

        Whatever is fitted on or chosen by validation must read this ranking: `predict` of the same
        texts has seen their labels.
        """
        valid = self._valid
        if valid is None:
            raise ModelError("a loaded reranker has no validation texts; fit it and ask again")
        parts = []
        for number in valid.cross.numbers or [0]:
            rows = valid.fold == number
            learned = valid.learn_without(number) if self.learned_ else None
            plain = learned is not None and learned.chosen.calibration == "plain"
            eta = (probabilities(valid.topk) if plain else valid.cross.eta)[rows]
            first, rest = self._masked(self._weights(learned, valid.train, valid.q), learned)
            parts.append((rows, _sort(valid.topk.rows(rows), eta, first, rest, k)))
        return together(parts)

    def _masked(self, weights: NDArray, learned: Learned | None) -> NDArray[np.float32]:
        """Weights without those of unseen labels; a base that is kept is kept with them."""
        if not self.params.mask_unseen or (learned and learned.keeps_base):
            return weights
        return np.where(self.frequency_ > 0, weights, np.float32(0))

    def refit(self, counts: NDArray) -> Reranker:
        """The base was trained again with validation: judge by what it has seen by now.

        A label's frequency tells how far its score can be trusted, and one that only validation
        texts have is no longer unseen. For rankings by the second training alone: among validation
        texts such a frequency would give away whether a label occurs there.
        """
        self.frequency_ = np.asarray(counts, np.int64)
        return self

    def _evidence(self, topk: TopK, texts: list[str] | None) -> Floats | None:
        if self.names_ is None or texts is None:
            return None
        return self.names_.evidence(texts, topk.labels)

    def predict(self, topk: TopK, k: int, texts: list[str] | None = None) -> TopK:
        """Sort a ranking of the same base again."""
        if topk.labels.size and topk.labels.max() >= self.weights_.shape[1]:
            raise ModelError(
                f"the ranking names label {topk.labels.max()} but the reranker was fitted for "
                f"{self.weights_.shape[1]} labels; run dvc repro"
            )
        evidence = self._evidence(topk, texts)
        eta = self.calibration_(topk, self.frequency_.astype(np.float64), evidence)
        first, rest = self._masked(self.weights_, self.learned_)
        return _sort(topk, eta, first, rest, k)

    def save(self, folder: str | Path) -> None:
        content = {
            "params": self.params.model_dump(),
            "calibration": self.calibration_.to_json(),
            "learned": asdict(self.learned_) if self.learned_ else None,
            "names": self.names_.names if self.names_ else None,
        }
        with atomic_folder(folder) as temporary:
            (temporary / "params.json").write_text(json.dumps(content, indent=1) + "\n")
            np.save(temporary / "weights.npy", self.weights_)
            np.save(temporary / "frequency.npy", self.frequency_)

    @classmethod
    def load(cls, folder: str | Path) -> Reranker:
        folder = Path(folder)
        try:
            content = json.loads((folder / "params.json").read_text())
            params: RerankParams = parse(
                content["params"], RerankParams, str(folder / "params.json")
            )
            model = cls(params, content.get("names"))
            model.weights_ = np.load(folder / "weights.npy", allow_pickle=False)
            model.frequency_ = np.load(folder / "frequency.npy", allow_pickle=False)
            model.calibration_ = Calibration.from_json(content["calibration"])
            model.learned_ = learned(content["learned"])
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder} is not a saved reranker: {error}") from None
        return model


def _sort(topk: TopK, eta: Floats, first: NDArray, rest: NDArray, k: int) -> TopK:
    """Best by ``eta * first`` at rank one, the others by ``eta * rest``; equals as they came."""
    place = np.maximum(topk.labels, 0)
    labels = np.where((rest[place] > 0) & (topk.labels >= 0), topk.labels, -1)
    gain = np.where(labels >= 0, eta * rest[place], -np.inf)
    key = gain.copy()
    if not np.array_equal(first, rest) and labels.size:
        winner = np.argmax(np.where(labels >= 0, eta * first[place], -1.0), axis=1)
        key[np.arange(topk.n), winner] = np.inf
    order = np.argsort(-key, axis=1, kind="stable")
    labels, gain, eta = (np.take_along_axis(a, order, 1) for a in (labels, gain, eta))
    found = TopK(
        labels,
        _falling(gain, labels >= 0),
        "score",
        probability=np.where(labels >= 0, eta, 0).astype(np.float32),
    )
    return found.head(k)


def _falling(gain: Floats, real: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Scores that keep the order of the columns: the gain, or a step below the one before."""
    scores = gain.astype(np.float32)
    if not scores.size:
        return scores
    scores[:, 0] = scores.max(axis=1)  # of the winner of rank one, whatever its gain
    for column in range(1, scores.shape[1]):
        below = np.nextafter(scores[:, column - 1], np.float32(-np.inf))
        scores[:, column] = np.minimum(scores[:, column], below)
    return np.where(real, scores, np.float32(-np.inf))
