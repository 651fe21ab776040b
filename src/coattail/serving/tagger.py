"""Tag new texts with any candidate of the pipeline, from the workspace or from a bundle.

A bundle is one folder that holds everything a candidate needs: its models (also those it reranks or
combines), the words and labels, and bundle.json, which says how they hang together.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.errors import ConfigError, ModelError
from coattail.evaluation.champion import Champion
from coattail.pipeline.candidates import Candidate, candidates, chain_of
from coattail.serving.featurizer import Featurizer

LISTED = 100
"""Labels ranked before reranking and averaging, as in the pipeline."""


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

    @cached_property
    def _featurizer(self) -> Featurizer:
        return Featurizer(self._features)

    def rank(self, texts: list[str], k: int) -> TopK:
        """The k best labels of every text."""
        return self._rank(self.name, texts).head(k)

    def tag(self, texts: list[str], k: int) -> list[list[tuple[str, float]]]:
        """Names and scores of the k best labels of every text."""
        names, top = self._features.label_names, self.rank(texts, k)
        return [
            [
                (names[label], float(score))
                for label, score in zip(ls, ss, strict=True)
                if label >= 0
            ]
            for ls, ss in zip(top.labels, top.scores, strict=True)
        ]

    def _rank(self, name: str, texts: list[str]) -> TopK:
        candidate, model = self.chain[name], self.model(name)
        match candidate.stage:
            case "train_linear":
                top: TopK = model.predict(self._featurizer.tfidf(texts), LISTED)
            case "ensemble":
                first, second = (self._rank(source, texts) for source in candidate.sources)
                top = model.predict(first, second, LISTED)
            case "rerank":
                top = model.predict(self._rank(candidate.sources[0], texts), LISTED, texts)
            case _ if getattr(model, "reads", "tokens") == "texts":
                top = model.predict(texts, LISTED)
            case _:
                top = model.predict(self._featurizer.tokens(texts), LISTED)
        return top

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
