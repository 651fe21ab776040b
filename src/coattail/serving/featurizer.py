"""New texts as the pipeline would have counted them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged
from coattail.data import text
from coattail.data.features import Features
from coattail.errors import ModelError

FIRST_RULE = re.compile(r"\w+")
"""How words were cut before they kept their marks (text.TOKENIZER 1)."""


class Featurizer:
    """Words of new texts as the pipeline would have counted them; lists are read when needed."""

    def __init__(self, features: Features) -> None:
        if features.tokenizer > text.TOKENIZER:
            raise ModelError(
                f"{features.folder} was made by a newer coattail (tokenizer "
                f"{features.tokenizer}, here {text.TOKENIZER}); install that version"
            )
        self._features, self._by_first_rule = features, features.tokenizer == 1

    @cached_property
    def _column(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._features.words)}

    @cached_property
    def _token(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._features.vocabulary)}

    @cached_property
    def _ngrams(self) -> int:
        return 1 + max((word.count(" ") for word in self._features.words), default=0)

    @cached_property
    def _titles(self) -> bool:
        return any(word.startswith(text.IN_TITLE) for word in self._features.words)

    def tfidf(self, texts: list[str]) -> sp.csr_matrix:
        """L2-normalised tf-idf rows, (n, words)."""
        indptr, indices, counts = [0], [], []
        for document in texts:
            columns = self._columns(self._words(document))
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
        return text.tfidf(counted, self._features.idf)

    def _words(self, document: str) -> list[str]:
        """The words of a text, unless the features have been made of other ones."""
        words = text.tokenize(document)
        if self._by_first_rule and words != FIRST_RULE.findall(document.lower()):
            raise ModelError(
                f"{self._features.folder} was made when words were cut at combining marks, and "
                f"this text would now be cut otherwise: {document[:60]!r}; run dvc repro, and make "
                "the bundle again if it is one"
            )
        return words

    def _columns(self, words: list[str], before: str = "") -> list[int]:
        grams = list(words)
        for n in range(2, self._ngrams + 1):
            grams += [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
        found = (self._column.get(before + gram) for gram in grams)
        return [column for column in found if column is not None]

    def tokens(self, texts: list[str]) -> Ragged:
        """Token ids; an unknown word and an empty text become UNK."""
        rows = [[self._token.get(w, text.UNK) for w in self._words(t)] or [text.UNK] for t in texts]
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Ragged(indptr, np.array([i for row in rows for i in row], np.int32))


class NewTexts:
    """Some texts and what models read of them, each counted once however many models ask."""

    def __init__(self, texts: list[str], featurizer: Featurizer) -> None:
        self.texts, self._featurizer = texts, featurizer

    @cached_property
    def tfidf(self) -> sp.csr_matrix:
        return self._featurizer.tfidf(self.texts)

    @cached_property
    def tokens(self) -> Ragged:
        return self._featurizer.tokens(self.texts)

    def known_to(self, reads: str) -> NDArray[np.bool_]:
        """Of which texts a model knows a word at all, if it reads tfidf, tokens or texts."""
        if reads == "tfidf":
            return np.diff(self.tfidf.indptr) > 0
        if reads == "tokens":
            known = np.concatenate([[0], np.cumsum(self.tokens.values != text.UNK)])
            return np.diff(known[self.tokens.indptr]) > 0
        # Word pieces: there is one for nearly everything.
        return np.array([bool(one.strip()) for one in self.texts], np.bool_)
