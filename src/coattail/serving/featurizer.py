"""New texts as the pipeline would have counted them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import scipy.sparse as sp

from coattail.arrays import Ragged
from coattail.data import text
from coattail.data.features import Features


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
