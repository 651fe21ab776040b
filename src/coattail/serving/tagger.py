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
from coattail.models import plugins
from coattail.models.kinds import ModelKind
from coattail.pipeline import registry
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
    def of_bundle(cls, folder: str | Path, with_code: bool = False) -> Tagger:
        """A bundle in a folder; ``with_code``: that of its plugins came along and is trusted."""
        folder = Path(folder)
        try:
            content = json.loads((folder / "bundle.json").read_text())
            chain = {
                name: Candidate(name, entry["stage"], "", (), (), tuple(entry["sources"]))
                for name, entry in content["chain"].items()
            }
            brought = {m: (p["kind"], p["package"]) for m, p in content.get("plugins", {}).items()}
        except (FileNotFoundError, KeyError, ValueError) as error:
            raise ModelError(f"{folder} is not a coattail bundle: {error}") from None
        for model, (kind, package) in brought.items():
            if with_code:
                plugins.bring(model, kind, package)
            elif plugins.kind(model) is None:
                raise plugins.missing(model, package)
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
        if sources := self.chain[name].sources:
            return np.any([self._knows(source, new) for source in sources], axis=0)
        return new.known_to(self.kind(name).reads)

    def _rank(self, name: str, new: NewTexts) -> TopK:
        sources = [self._rank(source, new) for source in self.chain[name].sources]
        reads, model = self.kind(name).reads, self.model(name)
        if not sources:
            return model.predict(getattr(new, reads), DEPTH)
        more = [new.texts] if "texts" in reads else []
        return model.predict(*sources, DEPTH, *more)

    def kind(self, name: str) -> ModelKind:
        """What the registry knows of a candidate of the chain."""
        return registry.kind_in(self.chain[name].stage, self._place(name))

    def model(self, name: str) -> Any:
        """The trained model of a candidate of the chain."""
        if name not in self._models:
            self._models[name] = registry.load(self.chain[name].stage, self._place(name))
        return self._models[name]

    def _place(self, name: str) -> Path:
        return self.folder / "models" / name
