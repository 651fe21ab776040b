"""Words behind a prediction and the size of classifiers, for candidates that can tell."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged
from coattail.data.features import Features
from coattail.errors import ModelError
from coattail.labels.frequency import bin_names, frequency_bin
from coattail.pipeline.candidates import Candidate

log = logging.getLogger("coattail")

Words = tuple[tuple[str, float], ...]


class Explainer:
    """Asks the models of a workspace, each loaded once; knows nothing of those it cannot ask.

    A reranked candidate has the words of what it reranks; an ensemble has none of its own.
    """

    def __init__(self, data: Path, candidates: Mapping[str, Candidate], words: int) -> None:
        self.folder, self.candidates, self.words = data / "models", candidates, words
        self.features = Features(data / "features")
        self._models: dict[str, Any] = {}
        self._mute: set[str] = set()  # candidates found to have no words

    def words_of(self, name: str, row: int, labels: list[int]) -> list[Words]:
        """For each label the words of a test text that spoke for it most; empty if unknown."""
        candidate = self.candidates[name]
        if candidate.stage == "rerank":
            return self.words_of(candidate.sources[0], row, labels)
        nothing: list[Words] = [() for _ in labels]
        if not labels or not self.words or name in self._mute:
            return nothing
        if candidate.stage == "train_linear":
            return self._linear(name, row, labels) or nothing
        if candidate.stage == "train_deep":
            return self._attention(name, row, labels)
        return nothing

    def norms(self, name: str) -> NDArray[np.float64] | None:
        """Norm of every label's classifier, (L,), of a linear model that has one per label."""
        if self.candidates[name].stage != "train_linear":
            return None
        from coattail.models.linear import explain

        return explain.norms(self._model(name))

    def _linear(self, name: str, row: int, labels: list[int]) -> list[Words] | None:
        from coattail.models.linear import explain

        x = self._tfidf[row]
        found = explain.contributions(self._model(name), x, labels, self.words)
        if found is None:
            return None
        words = self.features.words
        return [tuple((words[i], value) for i, value in one) for one in found]

    def _attention(self, name: str, row: int, labels: list[int]) -> list[Words]:
        tokens = self._tokens
        ids = np.asarray(tokens.values[tokens.indptr[row] : tokens.indptr[row + 1]])
        found: list[Words] = []
        for label in labels:
            try:
                weights = self._model(name).explain(ids, [label])[0]
            except (AttributeError, ModelError) as error:
                # A network without attention, or a label it has none for: others may have some.
                if not found:
                    log.info("report: no words from %s: %s", name, error)
                    self._mute.add(name)
                    return [() for _ in labels]
                found.append(())
            else:
                found.append(self._heaviest(ids[: len(weights)], weights))
        return found

    def _heaviest(self, ids: NDArray, weights: NDArray) -> Words:
        """A word that stands several times counts with the sum of its weights."""
        words, place = np.unique(ids, return_inverse=True)
        total = np.bincount(place, weights)
        order = np.lexsort((words, -np.round(total, 4)))[: self.words]
        return tuple((self.features.vocabulary[words[i]], float(total[i])) for i in order)

    @cached_property
    def _tfidf(self) -> sp.csr_matrix:
        return self.features.X("test")

    @cached_property
    def _tokens(self) -> Ragged:
        return self.features.tokens("test")

    def _model(self, name: str) -> Any:
        if name not in self._models:
            self._models[name] = _load(self.candidates[name].stage, self.folder / name)
        return self._models[name]


def _load(stage: str, folder: Path) -> Any:
    if stage == "train_linear":
        from coattail.models.linear import linear_models as linear

        return linear.load(folder)
    from coattail.models.deep import deep_models as deep

    return deep.load(folder)


def norm_table(explainer: Explainer, edges: tuple[int, ...]) -> list[dict[str, Any]]:
    """Mean norm of the classifiers by label frequency, one row per candidate and bin.

    ``relative`` is the mean over the bin divided by the mean over all labels with a classifier, so
    that candidates of different scale can stand in one picture.
    """
    counts = explainer.features.counts
    bin_of, rows = frequency_bin(counts, edges), []
    for name in explainer.candidates:
        norms = explainer.norms(name)
        if norms is None or not norms.any():
            continue
        overall = norms[norms > 0].mean()
        for b, title in enumerate(bin_names(edges)):
            own = norms[(bin_of == b) & (norms > 0)]
            if len(own):
                mean = float(own.mean())
                row = {"candidate": name, "bin": title, "order": b, "norm": mean}
                rows.append(row | {"relative": mean / overall, "labels": len(own)})
    return rows
