"""What `preprocess` leaves in data/features: the one place that knows where each thing lies there.

It is written once and read lazily, by memory map.

tfidf/{train,valid,test}/     CSR folder, unit rows
tokens/{train,valid,test}/    ragged token ids              tokens/[vectors.npy]
labels/{train,valid,test}/    CSR folder of ones            labels/names.txt, counts.npy,
                              inverse_propensity.npy, propensity.json, bands.npy
labels/complete/{...}/        the complete labels, only of a generated corpus
texts/{train,valid,test}.jsonl.gz   id and text, for the report, for explanation, and for
                              models with a pre-trained encoder
stats.json
and the files of the vectorizer (vectorizer.py)
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged, load_csr, load_ragged, save_csr, save_ragged
from coattail.data.stored import SPLITS, Split, read_array, read_lines, write_lines
from coattail.data.vectorizer import Vectorizer
from coattail.errors import DataError
from coattail.labels import frequency


class Features:
    """One preprocessed dataset on disk, or the part of one that a bundle holds."""

    def __init__(self, folder: str | Path = "data/features") -> None:
        self.folder = Path(folder)
        self.vectorizer = Vectorizer.load(folder)

    # --- texts -----------------------------------------------------------------------------------

    def X(self, split: Split) -> sp.csr_matrix:
        return load_csr(self._tfidf(split))

    def Y(self, split: Split) -> sp.csr_matrix:
        return load_csr(self._labels / split)

    def tokens(self, split: Split) -> Ragged:
        return load_ragged(self._tokens / split)

    def texts(self, split: Split) -> list[str]:
        """The texts themselves, for models that read them with words of their own."""
        return [text for _, text in self._documents(split)]

    def some_documents(self, split: Split, rows: Sequence[int]) -> dict[int, tuple[str, str]]:
        """Id and text of some rows."""
        wanted = set(rows)
        first = islice(self._documents(split), max(wanted, default=-1) + 1)
        found = {row: document for row, document in enumerate(first) if row in wanted}
        if missing := sorted(wanted - set(found)):
            path = self._texts(split)
            raise DataError(f"{path} has no text {missing[0]}; run dvc repro preprocess")
        return found

    def has_texts(self, split: Split) -> bool:
        return self._texts(split).exists()

    def inputs(self, reads: str, split: Split) -> Any:
        """What a model says it reads: "tfidf", "tokens" or "texts"."""
        return {"tfidf": self.X, "tokens": self.tokens, "texts": self.texts}[reads](split)

    def complete(self, split: Split) -> sp.csr_matrix | None:
        """Y*: the complete labels, known only for a generated corpus."""
        folder = self._labels / "complete" / split
        return load_csr(folder) if folder.exists() else None

    @property
    def words(self) -> list[str]:
        return self.vectorizer.words

    @property
    def vocabulary(self) -> list[str]:
        """Words of the token ids; 0 is padding and 1 the unknown word."""
        return self.vectorizer.vocabulary

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """Pre-trained word vectors, one row per vocabulary entry, if there are any."""
        path = self._tokens / "vectors.npy"
        return np.load(path, mmap_mode="r", allow_pickle=False) if path.exists() else None

    # --- labels ----------------------------------------------------------------------------------

    @cached_property
    def label_names(self) -> list[str]:
        return read_lines(self._label_names)

    @property
    def n_labels(self) -> int:
        return len(self.label_names)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Texts per label in train and validation together."""
        return read_array(self._labels / "counts.npy")

    @cached_property
    def inverse_propensity(self) -> NDArray[np.float64]:
        return read_array(self._labels / "inverse_propensity.npy")

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
        path = self._labels / "propensity.json"
        try:
            constants = json.loads(path.read_text())
        except FileNotFoundError:
            raise DataError(f"{path} is missing; run dvc repro preprocess") from None
        return float(constants["A"]), float(constants["B"])

    @cached_property
    def bands(self) -> NDArray[np.int8]:
        """0 head, 1 torso, 2 tail (labels.BANDS)."""
        return read_array(self._labels / "bands.npy")

    @cached_property
    def stats(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self._stats.read_text())
        return result

    # --- writing ---------------------------------------------------------------------------------

    def write_texts(self) -> TextWriter:
        """``with features.write_texts() as texts: texts.write("train", "id", "text")``."""
        return TextWriter({split: self._texts(split) for split in SPLITS})

    def save_split(
        self,
        split: Split,
        X: sp.csr_matrix,
        tokens: Ragged,
        Y: sp.csr_matrix,
        complete: sp.csr_matrix | None,
    ) -> None:
        save_csr(self._tfidf(split), X)
        save_ragged(self._tokens / split, tokens)
        save_csr(self._labels / split, Y)
        if complete is not None:
            save_csr(self._labels / "complete" / split, complete)

    def save_labels(
        self,
        names: Sequence[str],
        counts: NDArray[np.int64],
        bands: NDArray[np.int8],
        inverse_propensity: NDArray[np.float64],
        propensity: Mapping[str, float],
    ) -> None:
        self.save_label_names(names)
        np.save(self._labels / "counts.npy", counts)
        np.save(self._labels / "bands.npy", bands)
        np.save(self._labels / "inverse_propensity.npy", inverse_propensity)
        constants = json.dumps(propensity, sort_keys=True) + "\n"
        (self._labels / "propensity.json").write_text(constants, encoding="utf-8")

    def save_label_names(self, names: Sequence[str]) -> None:
        self._labels.mkdir(parents=True, exist_ok=True)
        write_lines(self._label_names, names)

    def save_vectors(self, vectors: NDArray[np.float32]) -> None:
        np.save(self._tokens / "vectors.npy", vectors)

    def save_stats(self, stats: Mapping[str, Any]) -> None:
        self._stats.write_text(json.dumps(stats, indent=2) + "\n", encoding="utf-8")

    def save_for_tagging(self, folder: str | Path, names: Sequence[str] | None = None) -> None:
        """What tagging needs of it to another folder; with other names of labels, if given."""
        self.vectorizer.copy(folder)
        Features(folder).save_label_names(self.label_names if names is None else names)

    # --- where each thing lies -------------------------------------------------------------------

    def _tfidf(self, split: Split) -> Path:
        return self.folder / "tfidf" / split

    def _texts(self, split: Split) -> Path:
        return self.folder / "texts" / f"{split}.jsonl.gz"

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens"

    @property
    def _labels(self) -> Path:
        return self.folder / "labels"

    def _documents(self, split: Split) -> Iterator[tuple[str, str]]:
        path = self._texts(split)
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    content = json.loads(line)
                    yield str(content["id"]), str(content["text"])
        except FileNotFoundError:
            raise DataError(f"{path} is missing; run dvc repro preprocess") from None
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise DataError(f"{path} is damaged ({error}); run dvc repro preprocess") from None

    @property
    def _label_names(self) -> Path:
        return self._labels / "names.txt"

    @property
    def _stats(self) -> Path:
        return self.folder / "stats.json"


class TextWriter:
    """Ids and texts of each split as JSON lines; the bytes hold no time and no file name."""

    def __init__(self, paths: Mapping[Split, Path]) -> None:
        self._paths = paths

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._files = {}
        for split, path in self._paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            raw = self._stack.enter_context(open(path, "wb"))
            packed = gzip.GzipFile("", "wb", compresslevel=4, fileobj=raw, mtime=0)
            self._files[split] = self._stack.enter_context(packed)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, split: Split, id: str, text: str) -> None:
        line = json.dumps({"id": id, "text": text}, ensure_ascii=False) + "\n"
        self._files[split].write(line.encode())


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
            read_array(folder / name / "labels.npy"),
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
