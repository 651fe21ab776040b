"""Tag new texts with any candidate of the pipeline, from the workspace or from a bundle.

A bundle is one folder that holds everything a candidate needs: its models (also those it reranks or
combines), the words and labels, and bundle.json, which says how they hang together.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from coattail import text
from coattail.arrays import Ragged, TopK, atomic_folder
from coattail.errors import ConfigError, ModelError
from coattail.features import Features
from coattail.pipeline import Candidate, candidates

LISTED = 100
"""Labels ranked before reranking and averaging, as in the pipeline."""


class Featurizer:
    """Words of new texts as the pipeline would have counted them."""

    def __init__(self, features: Features) -> None:
        self._column = {word: i for i, word in enumerate(features.words)}
        self._token = {word: i for i, word in enumerate(features.vocabulary)}
        self._idf = features.idf
        self._ngrams = 1 + max((word.count(" ") for word in features.words), default=0)
        self._titles = any(word.startswith(text.IN_TITLE) for word in features.words)

    def tfidf(self, texts: list[str]) -> sp.csr_matrix:
        """L2-normalised tf-idf rows, (n, words)."""
        indptr, indices, counts = [0], [], []
        for document in texts:
            columns = self._columns(text.tokenize(document))
            if self._titles:
                columns += self._columns(text.title(document), text.IN_TITLE)
            found = Counter(columns)
            indices += sorted(found)
            counts += [found[column] for column in sorted(found)]
            indptr.append(len(indices))
        counted = sp.csr_matrix(
            (np.array(counts, np.float32), np.array(indices, np.int32), np.array(indptr)),
            shape=(len(texts), len(self._column)),
        )
        return text.tfidf(counted, self._idf)

    def _columns(self, words: list[str], before: str = "") -> list[int]:
        grams = list(words)
        for n in range(2, self._ngrams + 1):
            grams += [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
        found = (self._column.get(before + gram) for gram in grams)
        return [column for column in found if column is not None]

    def tokens(self, texts: list[str]) -> Ragged:
        """Token ids; an unknown word and an empty text become UNK."""
        rows = [
            [self._token.get(w, text.UNK) for w in text.tokenize(t)] or [text.UNK] for t in texts
        ]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Ragged(indptr, np.array([i for row in rows for i in row], np.int32))


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
        """A candidate of the project in this folder; the best one if no name is given."""
        from coattail.config import read_yaml, suggestion

        known = candidates(read_yaml("params.yaml"))
        if name is None:
            published = Path("data/published.json")
            if not published.exists():
                raise ModelError("no results yet; run make repro, or name a candidate")
            name = str(json.loads(published.read_text())["best"])
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
        from coattail.linear import build as linear

        return linear.load(folder)
    if stage == "train_deep":
        from coattail.deep import build as deep

        return deep.load(folder)
    if stage == "transfer":
        from coattail.deep import transfer_build

        return transfer_build.load(folder)
    if stage == "ensemble":
        from coattail.ensemble import Ensemble

        return Ensemble.load(folder)
    from coattail.rerank import Reranker

    return Reranker.load(folder)


def chain_of(name: str, known: dict[str, Candidate]) -> dict[str, Candidate]:
    """A candidate and, through its sources, everything it ranks with."""
    found = {name: known[name]}
    for source in known[name].sources:
        found |= chain_of(source, known)
    return found


def bundle(folder: str | Path, name: str, known: dict[str, Candidate], data: Path) -> Path:
    """Write the bundle of a candidate of ``data`` to ``folder``."""
    chain = chain_of(name, known)
    with atomic_folder(folder) as out:
        for part in chain:
            shutil.copytree(data / "models" / part, out / "models" / part)
        for path in (
            "tfidf/words.txt",
            "tfidf/idf.npy",
            "tokens/vocabulary.txt",
            "labels/names.txt",
        ):
            (out / "features" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(data / "features" / path, out / "features" / path)
        content = {
            "candidate": name,
            "chain": {
                part: {"stage": one.stage, "sources": list(one.sources)}
                for part, one in chain.items()
            },
        }
        (out / "bundle.json").write_text(json.dumps(content, indent=1) + "\n")
    return Path(folder)
