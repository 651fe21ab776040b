"""Tag new texts with any candidate of the pipeline, from the workspace or from a bundle.

A bundle is one folder that holds everything a candidate needs: its models (also those it reranks or
combines), the words and labels, and bundle.json, which says how they hang together.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import DEPTH, TopK
from coattail.data.features import Features
from coattail.errors import ConfigError, ModelError
from coattail.evaluation.champion import Champion
from coattail.pipeline.candidates import Candidate, candidates, chain_of
from coattail.serving.new_texts import NewTexts


class Tag(NamedTuple):
    """A label of a text.

    Labels come by falling score. The probability is the confidence to read; it may be in another
    order (a reranked candidate), or not be there (a candidate whose scores are margins).
    """

    label: str
    score: float
    probability: float | None


class Tagged(NamedTuple):
    """The labels of a text, best first; none if the candidate knows no word of it."""

    tags: list[Tag]
    known: bool


class Tagger:
    """A candidate ready to tag texts.

    Parameters
    ----------
    folder : Path
        Holds ``models/`` and ``features/``: data/ of a workspace, or a bundle.
    name : str
        The candidate.
    chain : dict
        That candidate and those it is made from.
    """

    def __init__(self, folder: Path, name: str, chain: dict[str, Candidate]) -> None:
        self.folder, self.name, self.chain = folder, name, chain
        self._features = Features(folder / "features")
        self._models: dict[str, Any] = {}

    @classmethod
    def of_workspace(cls, name: str | None = None) -> Tagger:
        """A candidate of the project in this folder; the champion if no name is given."""
        from coattail.config import read_yaml, suggestion

        known = candidates(read_yaml("params.yaml"))
        if name is None:
            summary = Path("data/evaluation/summary.json")
            if not summary.exists():
                raise ModelError("no results yet; run make repro, or name a candidate")
            name = Champion.of(json.loads(summary.read_text())).name
        if name not in known:
            raise ConfigError(f"there is no candidate {name!r}{suggestion(name, list(known))}")
        return cls(Path("data"), name, chain_of(name, known))

    @classmethod
    def of_bundle(cls, folder: str | Path) -> Tagger:
        folder = Path(folder)
        try:
            content = json.loads((folder / "bundle.json").read_text())
            chain = {
                name: Candidate(name, entry["stage"], "", (), (), tuple(entry["sources"]))
                for name, entry in content["chain"].items()
            }
        except (FileNotFoundError, KeyError, ValueError) as error:
            raise ModelError(f"{folder} is not a coattail bundle: {error}") from None
        return cls(folder, content["candidate"], chain)

    def rank(self, texts: list[str], k: int) -> TopK:
        """The k best labels of every text."""
        return self._rank(self.name, NewTexts(texts, self._features.vectorizer)).head(k)

    def tag(self, texts: list[str], k: int) -> list[Tagged]:
        """The k best labels of every text by name."""
        new = NewTexts(texts, self._features.vectorizer)
        known, top = self._knows(self.name, new), self._rank(self.name, new).head(k)
        rows = (top.rows(slice(row, row + 1)) for row in range(len(texts)))
        return [
            Tagged(self._tags(row) if knows else [], knows)
            for row, knows in zip(rows, known.tolist(), strict=True)
        ]

    @property
    def unknown_words(self) -> str:
        """What to say of a text without a known word, and what helps."""
        return (
            f"{self.name} knows no word of it and gives no labels; write more of it, in the words "
            f"of the training texts ({self._features.vectorizer.vocabulary_path})"
        )

    def _tags(self, one: TopK) -> list[Tag]:
        names = self._features.label_names
        likely = [None] * one.k if one.confidence is None else one.confidence[0].tolist()
        columns = zip(one.labels[0].tolist(), one.scores[0].tolist(), likely, strict=True)
        return [Tag(names[label], score, p) for label, score, p in columns if label >= 0]

    def _knows(self, name: str, new: NewTexts) -> NDArray[np.bool_]:
        """Of which texts a candidate knows a word: one of those it is made from has to."""
        candidate = self.chain[name]
        if candidate.stage in ("ensemble", "rerank"):
            known = [self._knows(source, new) for source in candidate.sources]
            return np.any(known, axis=0)
        return new.known_to(self._reads(name))

    def _rank(self, name: str, new: NewTexts) -> TopK:
        candidate, model = self.chain[name], self.model(name)
        sources = [self._rank(source, new) for source in candidate.sources]
        match candidate.stage:
            case "ensemble":
                top: TopK = model.predict(*sources, DEPTH)
            case "rerank":
                top = model.predict(*sources, DEPTH, new.texts)
            case _:
                top = model.predict(getattr(new, self._reads(name)), DEPTH)
        return top

    def _reads(self, name: str) -> str:
        """What a model reads that is not made from others: tfidf, tokens or texts."""
        if self.chain[name].stage == "train_linear":
            return "tfidf"
        return getattr(self.model(name), "reads", "tokens")

    def model(self, name: str) -> Any:
        """The trained model of a candidate of the chain."""
        if name not in self._models:
            self._models[name] = _load(self.chain[name].stage, self.folder / "models" / name)
        return self._models[name]


def _load(stage: str, folder: Path) -> Any:
    if stage == "train_linear":
        from coattail.models.linear import linear_models as linear

        return linear.load(folder)
    if stage == "train_deep":
        from coattail.models.deep import deep_models as deep

        return deep.load(folder)
    if stage == "transfer":
        from coattail.models.deep.transfer import transfer_models

        return transfer_models.load(folder)
    if stage == "ensemble":
        from coattail.models.ranking.ensemble import Ensemble

        return Ensemble.load(folder)
    from coattail.models.ranking.rerank import Reranker

    return Reranker.load(folder)
