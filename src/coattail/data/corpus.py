"""A raw dataset as arrays in memory: texts or ready matrices become splits over one vocabulary."""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field, model_validator

from coattail.arrays import Ragged, unit_rows
from coattail.data import text
from coattail.data.features import Features, TextWriter
from coattail.data.formats import documents, xmc
from coattail.data.stored import SPLITS, Split
from coattail.data.vectorizer import Numbered, Vectorizer, VectorizerParams
from coattail.errors import DataError

log = logging.getLogger("coattail")


class PreprocessParams(VectorizerParams):
    """Section ``preprocess``: how texts become arrays and which labels are rare."""

    valid_share: float = Field(
        0.1, gt=0, lt=1, description="share of train, where no valid is given"
    )
    valid_max: int = Field(4000, ge=1, description="most texts that such a split takes")
    seed: int = Field(42, ge=0, description="seed of that split and of words without a vector")
    head_share: float = Field(0.6, gt=0, lt=1, description="positives carried by the head labels")
    tail_share: float = Field(0.1, gt=0, lt=1, description="positives carried by the tail labels")

    @property
    def vectorizer(self) -> VectorizerParams:
        """Those of them that say what a text is counted as."""
        return VectorizerParams(**self.model_dump(include=set(VectorizerParams.model_fields)))

    @model_validator(mode="after")
    def _shares_leave_room(self) -> Self:
        if self.head_share + self.tail_share > 1:
            raise ValueError("head_share and tail_share add up to more than 1")
        return self


@dataclass(frozen=True)
class CorpusSplit:
    """One split: tf-idf, token ids, observed labels, complete labels if known, words per text."""

    X: sp.csr_matrix
    tokens: Ragged
    Y: sp.csr_matrix
    complete: sp.csr_matrix | None
    words_per_text: NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """A dataset: ``labels`` are the columns of Y."""

    vectorizer: Vectorizer
    labels: list[str]
    splits: dict[Split, CorpusSplit]
    notes: dict[str, int] = field(default_factory=dict)


def read(raw: Path, manifest: dict[str, Any], to: Features, params: PreprocessParams) -> Corpus:
    """The dataset of a manifest; ids and texts are kept among the features on the way."""
    files = {role: raw / name for role, name in manifest["files"].items()}
    with to.write_texts() as copies:
        if manifest["format"] == "xmc":
            corpus = _from_matrices(files, copies, params)
        else:
            source = _Source(
                manifest["format"],
                manifest.get("label_separator", "|"),
                tuple(manifest.get("columns", ("text", "labels"))),
                files,
            )
            corpus = _from_texts(source, copies, params)
    if "label_names" in files:
        names = _readable(corpus.labels, documents.label_names(files["label_names"]))
        corpus = replace(corpus, labels=names)
    return corpus


def _readable(labels: list[str], names: dict[str, str]) -> list[str]:
    """Names for people; where two labels have the same one, the label is added to both."""
    shown = [" ".join(names.get(label, label).split()) or label for label in labels]
    uses: defaultdict[str, int] = defaultdict(int)
    for name in shown:
        uses[name] += 1
    return [
        name if uses[name] == 1 else f"{name} ({label})"
        for name, label in zip(shown, labels, strict=True)
    ]


def validation_rows(n: int, params: PreprocessParams) -> NDArray[np.bool_]:
    """Which of ``n`` training texts become the validation split, (n,): a seeded random share."""
    if n < 2:
        raise DataError(f"train has {n} text; wanted at least 2 to take a validation split from")
    size = min(max(round(params.valid_share * n), 1), params.valid_max, n - 1)
    chosen = np.zeros(n, bool)
    chosen[np.random.default_rng(params.seed).choice(n, size, replace=False)] = True
    return chosen


# --- texts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    format: str
    separator: str
    columns: tuple[str, str]
    files: dict[str, Path]

    def read(self, split: Split) -> Iterator[documents.Document]:
        return documents.documents(self.files[split], self.format, self.separator, self.columns)

    def routed(self, params: PreprocessParams) -> Iterator[tuple[Split, documents.Document]]:
        """Every text with its split; without a validation file some of train go there."""
        if "valid" in self.files:
            for split in SPLITS:
                yield from ((split, document) for document in self.read(split))
            return
        # Reading train twice is cheaper than keeping its texts.
        to_valid = validation_rows(sum(1 for _ in self.read("train")), params)
        for chosen, document in zip(to_valid, self.read("train"), strict=True):
            yield "valid" if chosen else "train", document
        yield from (("test", document) for document in self.read("test"))


class _Rows:
    """Word numbers, words of titles and label numbers of the texts of one split."""

    def __init__(self) -> None:
        self.words, self.observed, self.complete = (text.RaggedBuilder() for _ in range(3))
        self.titles: list[int] = []


class _Ids:
    """Counts texts whose id was seen before, here or in another split."""

    def __init__(self) -> None:
        self._first: dict[str, Split] = {}
        self.across = self.within = 0
        self._example = ""

    def add(self, id: str, split: Split) -> None:
        first = self._first.setdefault(id, split)
        if first != split:
            self.across += 1
            self._example = self._example or f"{id!r} in {first} and {split}"

    def note(self, texts: int) -> dict[str, int]:
        self.within = texts - len(self._first) - self.across
        if self.across:
            log.warning(
                "%d texts have the id of a text of another split (%s); scores on them may flatter",
                self.across,
                self._example,
            )
        if self.within:
            log.warning("%d texts have the id of another text of their split", self.within)
        return {
            "duplicate_ids_across_splits": self.across,
            "duplicate_ids_within_splits": self.within,
        }


def _from_texts(source: _Source, copies: TextWriter, params: PreprocessParams) -> Corpus:
    encoder, numbering = text.Encoder(), text.Numbering()
    rows = {split: _Rows() for split in SPLITS}
    ids, total, with_complete = _Ids(), 0, 0
    for split, document in source.routed(params):
        total += 1
        with_complete += document.complete is not None
        ids.add(document.id, split)
        copies.write(split, document.id, document.text)
        rows[split].words.add(encoder.encode(document.text))
        if params.title_weight:
            rows[split].titles.append(len(text.title(document.text)))
        rows[split].observed.add(numbering.numbers(document.labels))
        rows[split].complete.add(numbering.numbers(document.complete or ()))
    if 0 < with_complete < total:
        raise DataError(
            f"{with_complete} of {total} texts have complete labels; wanted all or none of them"
        )
    log.info("read %s texts, %s different words", f"{total:,}", f"{len(encoder.words):,}")
    names, number = numbering.sorted()
    tokens = {split: rows[split].words.build() for split in SPLITS}
    titles = {
        split: text.first_words(tokens[split], np.array(rows[split].titles, np.int64))
        for split in SPLITS
        if params.title_weight
    }
    vectorizer = Vectorizer(params.vectorizer)
    rows_of = vectorizer.fit(Numbered(encoder.words, tokens, titles))
    splits: dict[Split, CorpusSplit] = {}
    for split in SPLITS:
        complete = _ones(rows[split].complete.build(), number) if with_complete else None
        observed = _ones(rows[split].observed.build(), number)
        splits[split] = CorpusSplit(
            rows_of.X[split], rows_of.tokens[split], observed, complete, tokens[split].lengths
        )
    notes = ids.note(total) | _repeated(tokens)
    return Corpus(vectorizer, names, splits, notes)


def _repeated(tokens: dict[Split, Ragged]) -> dict[str, int]:
    """Counts texts, of one word or more, that have the words of a text of an earlier split."""
    earlier: set[bytes] = set()
    repeated = {}
    for split in SPLITS:
        part = tokens[split]
        texts = (part.row(i).tobytes() for i in np.flatnonzero(part.lengths).tolist())
        keys = [hashlib.blake2b(text, digest_size=16).digest() for text in texts]
        repeated[split] = sum(key in earlier for key in keys)
        earlier.update(keys)
    across = repeated["valid"] + repeated["test"]
    if across:
        log.warning(
            "%d texts of validation and %d of test are word for word a text of an earlier split; "
            "scores on them may flatter",
            *(repeated["valid"], repeated["test"]),
        )
    return {"identical_texts_across_splits": across}


def _ones(rows: Ragged, number: NDArray[np.int32]) -> sp.csr_matrix:
    """Rows of labels, renumbered, as a canonical matrix of ones."""
    ones = np.ones(len(rows.values), np.float32)
    shape = (rows.n, len(number))
    Y = sp.csr_matrix((ones, number[rows.values], rows.indptr), shape=shape)
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


# --- matrices ------------------------------------------------------------------------------------


def _from_matrices(files: dict[str, Path], copies: TextWriter, params: PreprocessParams) -> Corpus:
    """Features are given and word order is unknown: a text is its features in ascending order."""
    given = {split: xmc.read_xmc(files[split]) for split in SPLITS if split in files}
    _same_width(files, given)
    rows = {split: np.arange(X.shape[0]) for split, (X, _) in given.items()}
    if "valid" not in given:
        to_valid = validation_rows(given["train"][0].shape[0], params)
        given["valid"] = given["train"]
        rows["train"], rows["valid"] = np.flatnonzero(~to_valid), np.flatnonzero(to_valid)
    words = [f"f{i}" for i in range(given["train"][0].shape[1])]
    splits: dict[Split, CorpusSplit] = {}
    for split in SPLITS:
        X, Y = (sp.csr_matrix(M[rows[split]]) for M in given[split])
        X.eliminate_zeros()
        X.sort_indices()
        features = Ragged(X.indptr.astype(np.int64), X.indices)
        ids = text.token_ids(features, np.arange(len(words)), len(words), params.max_tokens)
        splits[split] = CorpusSplit(unit_rows(X), ids, Y, None, features.lengths)
        origin = split if split in files else "train"
        for row, cut in zip(rows[split].tolist(), _rows_of(features, params), strict=True):
            copies.write(split, f"{origin}:{row}", " ".join([words[i] for i in cut]))
    labels = [str(i) for i in range(given["train"][1].shape[1])]
    return Corpus(Vectorizer.given(words, params.max_tokens), labels, splits)


def _rows_of(features: Ragged, params: PreprocessParams) -> Iterable[list[int]]:
    return (features.row(i)[: params.max_tokens].tolist() for i in range(features.n))


def _same_width(
    files: dict[str, Path], given: dict[Split, tuple[sp.csr_matrix, sp.csr_matrix]]
) -> None:
    wanted = tuple(M.shape[1] for M in given["train"])
    for split, matrices in given.items():
        got = tuple(M.shape[1] for M in matrices)
        if got != wanted:
            raise DataError(
                f"{files[split].name}, line 1: got {got[0]} features and {got[1]} labels; "
                f"wanted {wanted[0]} and {wanted[1]} as in {files['train'].name}"
            )
