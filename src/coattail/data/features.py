"""What `preprocess` leaves in data/features, read lazily and by memory map.

tfidf/{train,valid,test}/     CSR folder, unit rows         tfidf/words.txt, idf.npy
tokens/{train,valid,test}/    ragged token ids              tokens/vocabulary.txt, [vectors.npy]
labels/{train,valid,test}/    CSR folder of ones            labels/names.txt, counts.npy,
                              inverse_propensity.npy, propensity.json, bands.npy
labels/complete/{...}/        the complete labels, only of a generated corpus
tokenizer.json                which rule cut the texts into words (text.TOKENIZER)
texts/{train,valid,test}.jsonl.gz   id and text, for the report, for explanation, and for
                              models with a pre-trained encoder
stats.json
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged, load_csr, load_ragged, save_csr
from coattail.errors import DataError
from coattail.labels import frequency

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class Features:
    """One preprocessed dataset on disk."""

    def __init__(self, folder: str | Path = "data/features") -> None:
        self.folder = Path(folder)

    def X(self, split: Split) -> sp.csr_matrix:
        return load_csr(self.folder / "tfidf" / split)

    def Y(self, split: Split) -> sp.csr_matrix:
        return load_csr(self.folder / "labels" / split)

    def tokens(self, split: Split) -> Ragged:
        return load_ragged(self.folder / "tokens" / split)

    def texts(self, split: Split) -> list[str]:
        """The texts themselves, for models that read them with words of their own."""
        path = self.folder / "texts" / f"{split}.jsonl.gz"
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                return [str(json.loads(line)["text"]) for line in file]
        except FileNotFoundError:
            raise DataError(f"{path} is missing; run dvc repro preprocess") from None

    def inputs(self, reads: str, split: Split) -> Any:
        """What a model says it reads: "tfidf", "tokens" or "texts"."""
        return {"tfidf": self.X, "tokens": self.tokens, "texts": self.texts}[reads](split)

    def complete(self, split: Split) -> sp.csr_matrix | None:
        """Y*: the complete labels, known only for a generated corpus."""
        folder = self.folder / "labels" / "complete" / split
        return load_csr(folder) if folder.exists() else None

    @cached_property
    def label_names(self) -> list[str]:
        return _lines(self.folder / "labels" / "names.txt")

    @cached_property
    def words(self) -> list[str]:
        return _lines(self.folder / "tfidf" / "words.txt")

    @cached_property
    def idf(self) -> NDArray[np.float64]:
        """Inverse document frequency of every word of tf-idf, from the training texts."""
        return _array(self.folder / "tfidf" / "idf.npy")

    @cached_property
    def vocabulary(self) -> list[str]:
        """Words of the token ids; 0 is padding and 1 the unknown word."""
        return _lines(self.folder / "tokens" / "vocabulary.txt")

    @cached_property
    def tokenizer(self) -> int:
        """Which rule cut the texts into words; the first one left no note."""
        path = self.folder / "tokenizer.json"
        return int(json.loads(path.read_text())["version"]) if path.exists() else 1

    @property
    def n_labels(self) -> int:
        return len(self.label_names)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Texts per label in train and validation together."""
        return _array(self.folder / "labels" / "counts.npy")

    @cached_property
    def inverse_propensity(self) -> NDArray[np.float64]:
        return _array(self.folder / "labels" / "inverse_propensity.npy")

    @cached_property
    def train_inverse_propensity(self) -> NDArray[np.float64]:
        """By the counts of the training texts alone: what validation is judged with.

        Counts of validation texts among them would tell which labels those texts have: labels that
        they have would weigh less than among test texts.
        """
        train = self.Y("train")
        counts, n = frequency.counts(train), int(train.shape[0])
        return frequency.inverse_propensity(counts, n, *self.propensity)

    @cached_property
    def propensity(self) -> tuple[float, float]:
        """The dataset's propensity constants A and B."""
        path = self.folder / "labels" / "propensity.json"
        try:
            constants = json.loads(path.read_text())
        except FileNotFoundError:
            raise DataError(f"{path} is missing; run dvc repro preprocess") from None
        return float(constants["A"]), float(constants["B"])

    @cached_property
    def bands(self) -> NDArray[np.int8]:
        """0 head, 1 torso, 2 tail (labels.BANDS)."""
        return _array(self.folder / "labels" / "bands.npy")

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """Pre-trained word vectors, one row per vocabulary entry, if there are any."""
        path = self.folder / "tokens" / "vectors.npy"
        return np.load(path, mmap_mode="r", allow_pickle=False) if path.exists() else None

    @cached_property
    def stats(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.folder / "stats.json").read_text())
        return result


@dataclass(frozen=True)
class Block:
    """A training problem over some of the labels: column j of Y is label ``labels[j]``."""

    name: str
    X: sp.csr_matrix
    Y: sp.csr_matrix
    labels: NDArray[np.int32]


def load_training(folder: str | Path, features: Features) -> list[Block]:
    """The training blocks of a folder: plain tf-idf (one block of all labels) or augmented ones."""
    folder = Path(folder)
    index = folder / "blocks.json"
    if not index.exists():
        labels = np.arange(features.n_labels, dtype=np.int32)
        return [Block("all", load_csr(folder), features.Y("train"), labels)]
    return [
        Block(
            name,
            load_csr(folder / name / "X"),
            load_csr(folder / name / "Y"),
            _array(folder / name / "labels.npy"),
        )
        for name in json.loads(index.read_text())
    ]


def save_training(folder: str | Path, blocks: list[Block]) -> None:
    """Write blocks so that load_training reads them back."""
    folder = Path(folder)
    for block in blocks:
        save_csr(folder / block.name / "X", block.X)
        save_csr(folder / block.name / "Y", block.Y)
        np.save(folder / block.name / "labels.npy", np.asarray(block.labels, np.int32))
    (folder / "blocks.json").write_text(json.dumps([block.name for block in blocks]) + "\n")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        raise DataError(f"{path} is missing; run dvc repro preprocess") from None


def _array(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
        return array
    except FileNotFoundError:
        raise DataError(f"{path} is missing; run dvc repro") from None
