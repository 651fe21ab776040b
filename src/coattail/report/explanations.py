"""Words behind a prediction and the size of classifiers, for candidates that can tell."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import Ragged
from coattail.data.features import Features
from coattail.labels.frequency import bin_names, frequency_bin
from coattail.models.kinds import ModelKind
from coattail.pipeline import registry
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
        self._read: dict[str, Any] = {}  # test texts, by how models read them
        self._mute: set[str] = set()  # candidates found to have no words

    def words_of(self, name: str, row: int, labels: list[int]) -> list[Words]:
        """For each label the words of a test text that spoke for it most; empty if unknown."""
        candidate = self.candidates[name]
        if len(candidate.sources) == 1:
            return self.words_of(candidate.sources[0], row, labels)
        nothing: list[Words] = [() for _ in labels]
        if not labels or not self.words or name in self._mute:
            return nothing
        kind = self.kind(name)
        explain = kind.get("explain")
        found = None
        if explain is not None:
            found = explain(self._model(name), self._text(kind.reads, row), labels, self.words)
        if found is None:
            log.info("report: no words from %s: its model %s has none", name, kind.name)
            self._mute.add(name)
            return nothing
        return [
            tuple((self._word(kind.reads, word), value) for word, value in one) for one in found
        ]

    def norms(self, name: str) -> NDArray[np.float64] | None:
        """Norm of every label's classifier, (L,), of a linear model that has one per label."""
        norms = self.kind(name).get("norms")
        return norms(self._model(name)) if norms else None

    def explains(self, name: str) -> bool:
        """Whether words of a candidate may stand in the report."""
        sources = self.candidates[name].sources
        return self.explains(sources[0]) if len(sources) == 1 else bool(self.kind(name).explain)

    def kind(self, name: str) -> ModelKind:
        """What the registry knows of a candidate's model."""
        return registry.kind_in(self.candidates[name].stage, self.folder / name)

    def _text(self, reads: str, row: int) -> Any:
        """A test text as a model reads it: a row of tf-idf, token ids, or the text."""
        inputs = self._inputs(reads)
        if isinstance(inputs, Ragged):
            return np.asarray(inputs.values[inputs.indptr[row] : inputs.indptr[row + 1]])
        return inputs[row]

    def _word(self, reads: str, word: Any) -> str:
        """The word that a model means: it names it itself, or by its id."""
        if isinstance(word, str):
            return word
        return self._words(reads)[word]

    def _inputs(self, reads: str) -> Any:
        if reads not in self._read:
            self._read[reads] = self.features.inputs(reads, "test")
        return self._read[reads]

    def _words(self, reads: str) -> list[str]:
        return self.features.words if reads == "tfidf" else self.features.vocabulary

    def _model(self, name: str) -> Any:
        if name not in self._models:
            stage = self.candidates[name].stage
            self._models[name] = registry.load(stage, self.folder / name)
        return self._models[name]


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
