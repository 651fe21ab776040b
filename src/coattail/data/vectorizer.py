"""How texts become rows of tf-idf and token ids: fitted on training texts, saved, asked by all.

The pipeline fits it and keeps its files among the features; the tagger, bundles and MLflow models
load those. A text gets the same bytes whoever asks.

vectorizer.json           its params: longest n-gram, weight of titles, fewest texts, limits
tokenizer.json            which rule cut the texts into words (text.TOKENIZER)
tfidf/words.txt, idf.npy  the terms of tf-idf and their weights
tokens/vocabulary.txt     the words of token ids
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field

from coattail.arrays import Ragged
from coattail.config import Params, parse
from coattail.data import text
from coattail.data.stored import SPLITS, Split, read_array, read_lines, write_lines
from coattail.errors import DataError, ModelError

FIRST_RULE = re.compile(r"\w+")
"""How words were cut before they kept their marks (text.TOKENIZER 1)."""

PARAMS, TOKENIZER = "vectorizer.json", "tokenizer.json"
WORDS, IDF, VOCABULARY = "tfidf/words.txt", "tfidf/idf.npy", "tokens/vocabulary.txt"
FILES = (PARAMS, TOKENIZER, WORDS, IDF, VOCABULARY)
LATER = (PARAMS, TOKENIZER)
"""Files that some former version did not write yet."""


class VectorizerParams(Params):
    """What a text is counted as."""

    min_df: int = Field(2, ge=1, description="a tf-idf term stands in at least so many train texts")
    max_words: int = Field(500_000, ge=1, description="tf-idf terms kept, most frequent first")
    ngrams: int = Field(1, ge=1, le=3, description="longest tf-idf term, in words")
    title_weight: float = Field(
        0.0,
        ge=0.0,
        description="weight of the first line's words as terms of their own, beside those of the "
        "whole text; 0: none",
    )
    max_tokens: int = Field(500, ge=1, description="token ids kept of a text (deep models)")
    vocabulary: int = Field(100_000, ge=1, description="words with a token id, frequent first")


FORMER = VectorizerParams(ngrams=3, title_weight=1.0, max_tokens=2**31 - 1)
"""For features without vectorizer.json: look for every term that there may be, and cut no text.

What is no term is not counted, so rows of tf-idf are those of the true params.
"""


class Numbered(NamedTuple):
    """Texts as numbers of their words; ``titles`` is empty unless the params weigh titles."""

    words: Sequence[str]
    tokens: Mapping[Split, Ragged]
    titles: Mapping[Split, Ragged]


class Vectorised(NamedTuple):
    """Unit rows of tf-idf, and token ids."""

    X: dict[Split, sp.csr_matrix]
    tokens: dict[Split, Ragged]


class Vectorizer:
    """Texts to rows; a loaded one reads a list when it is needed."""

    def __init__(self, params: VectorizerParams | None = None, folder: Path = Path()) -> None:
        """Without params those of the folder, as `load` has it."""
        self._folder = folder
        if params is not None:
            self.params, self.tokenizer = params, text.TOKENIZER

    @classmethod
    def given(cls, words: Sequence[str], max_tokens: int) -> Self:
        """Of a dataset that comes as matrices: names of its columns, all of the same weight."""
        made = cls(VectorizerParams(min_df=1, max_tokens=max_tokens))
        made.words, made.idf = list(words), np.ones(len(words))
        made.vocabulary = [*text.SPECIAL, *words]
        return made

    def fit(self, texts: Numbered) -> Vectorised:
        """Choose terms, weights and vocabulary by what stands in train; the rows of all splits."""
        df, words, idf, counts = self._terms(texts.tokens, texts.words)
        if not words:
            raise DataError(
                f"no word stands in at least {self.params.min_df} training texts, so there are no "
                "features; lower preprocess.min_df or look at the texts"
            )
        if texts.titles:
            _, own, own_idf, own_counts = self._terms(texts.titles, texts.words)
            words += [text.IN_TITLE + term for term in own]
            idf = np.concatenate([idf, self.params.title_weight * own_idf])
            for split in SPLITS:
                counts[split] = sp.hstack([counts[split], own_counts[split]], format="csr")
        known = text.by_frequency(texts.words, df, 1, self.params.vocabulary)
        self.words, self.idf = words, idf
        self.vocabulary = [*text.SPECIAL, *(texts.words[i] for i in known.tolist())]
        X, ids = {}, {}
        for split in SPLITS:
            X[split] = text.tfidf(sp.csr_matrix(counts.pop(split)), idf)
            ids[split] = text.token_ids(
                texts.tokens[split], known, len(texts.words), self.params.max_tokens
            )
        return Vectorised(X, ids)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Rows of tf-idf of length 1, (n, words), of any texts."""
        indptr, indices, counts = [0], [], []
        for one in texts:
            found = Counter(self._columns(one))
            indices += sorted(found)
            counts += [found[column] for column in sorted(found)]
            indptr.append(len(indices))
        counted = sp.csr_matrix(
            (np.array(counts, np.float32), np.array(indices, np.int32), np.array(indptr)),
            shape=(len(texts), len(self._column)),
        )
        return text.tfidf(counted, self.idf)

    def token_ids(self, texts: Sequence[str]) -> Ragged:
        """The first ``max_tokens`` words of texts; an unknown one and an empty text become UNK."""
        rows = text.RaggedBuilder()
        for one in texts:
            words = self._cut(one)[: self.params.max_tokens]
            rows.add([self._token.get(word, text.UNK) for word in words] or [text.UNK])
        return rows.build()

    # --- on disk ---------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the files named above, some of them in folders of their own."""
        folder = Path(folder)
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / PARAMS).write_text(self.params.model_dump_json(indent=1) + "\n")
        (folder / TOKENIZER).write_text(json.dumps({"version": self.tokenizer}) + "\n")
        write_lines(folder / WORDS, self.words)
        np.save(folder / IDF, self.idf)
        write_lines(folder / VOCABULARY, self.vocabulary)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """What `save` left in a folder; what a former version left will do."""
        return cls(folder=Path(folder))

    def copy(self, folder: str | Path) -> None:
        """Give another folder the files of a loaded vectorizer."""
        for name in FILES:
            if name in LATER and not (self._folder / name).exists():
                continue
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._folder / name, Path(folder) / name)

    @cached_property
    def params(self) -> VectorizerParams:
        path = self._folder / PARAMS
        if not path.exists():
            return FORMER
        return parse(json.loads(path.read_text()), VectorizerParams, f"{path}: ")

    @cached_property
    def tokenizer(self) -> int:
        """Which rule cut the texts that it was fitted on; the first one left no note."""
        path = self._folder / TOKENIZER
        return int(json.loads(path.read_text())["version"]) if path.exists() else 1

    @cached_property
    def words(self) -> list[str]:
        """The terms of tf-idf, column by column."""
        return read_lines(self._folder / WORDS)

    @cached_property
    def idf(self) -> NDArray[np.float64]:
        """The weight of every term, from the training texts."""
        return read_array(self._folder / IDF)

    @property
    def vocabulary_path(self) -> Path:
        """Where a person may look which words are known."""
        return self._folder / VOCABULARY

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words of token ids; 0 is padding and 1 the unknown word."""
        return read_lines(self.vocabulary_path)

    # --- parts -----------------------------------------------------------------------------------

    def _terms(
        self, tokens: Mapping[Split, Ragged], seen: Sequence[str]
    ) -> tuple[NDArray[np.int64], list[str], NDArray[np.float64], dict[Split, sp.csr_matrix]]:
        """Document frequency of all words in train; terms chosen, their idf and their counts."""
        in_order = [tokens[split] for split in SPLITS]
        bags = [text.bag(part, len(seen)) for part in in_order]
        counted = text.count_terms(in_order, bags, seen, self.params.ngrams, self.params.min_df)
        df = text.document_frequency(counted.splits[0])
        chosen = text.by_frequency(counted.terms, df, self.params.min_df, self.params.max_words)
        idf = text.inverse_document_frequency(df[chosen], bags[0].shape[0])
        counts = {
            split: sp.csr_matrix(part[:, chosen])
            for split, part in zip(SPLITS, counted.splits, strict=True)
        }
        in_train = text.document_frequency(bags[0])
        return in_train, [counted.terms[i] for i in chosen.tolist()], idf, counts

    @cached_property
    def _column(self) -> dict[str, int]:
        return {word: column for column, word in enumerate(self.words)}

    @cached_property
    def _token(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary)}

    def _columns(self, one: str) -> list[int]:
        """The columns of all terms in a text, one that stands several times as often."""
        terms = self._grams(self._cut(one))
        if self.params.title_weight:
            terms += [text.IN_TITLE + term for term in self._grams(text.title(one))]
        found = map(self._column.get, terms)
        return [column for column in found if column is not None]

    def _grams(self, words: list[str]) -> list[str]:
        grams = list(words)
        for n in range(2, self.params.ngrams + 1):
            grams += [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
        return grams

    def _cut(self, one: str) -> list[str]:
        """The words of a text, unless those of the fit were cut by another rule."""
        if self.tokenizer > text.TOKENIZER:
            raise ModelError(
                f"{self._folder} was made by a newer coattail (tokenizer {self.tokenizer}, here "
                f"{text.TOKENIZER}); install that version"
            )
        words = text.tokenize(one)
        if self.tokenizer == 1 and words != FIRST_RULE.findall(one.lower()):
            raise ModelError(
                f"{self._folder} was made when words were cut at combining marks, and this text "
                f"would now be cut otherwise: {one[:60]!r}; run dvc repro, and make the bundle "
                "again if it is one"
            )
        return words
