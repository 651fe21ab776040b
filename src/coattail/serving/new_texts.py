"""New texts and what models read of them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged
from coattail.data.text import UNK
from coattail.data.vectorizer import Vectorizer


class NewTexts:
    """Some texts and what models read of them, each counted once however many models ask."""

    def __init__(self, texts: list[str], vectorizer: Vectorizer) -> None:
        self.texts, self._vectorizer = texts, vectorizer

    @cached_property
    def tfidf(self) -> sp.csr_matrix:
        return self._vectorizer.transform(self.texts)

    @cached_property
    def tokens(self) -> Ragged:
        return self._vectorizer.token_ids(self.texts)

    def known_to(self, reads: str) -> NDArray[np.bool_]:
        """Of which texts a model knows a word at all, if it reads tfidf, tokens or texts."""
        if reads == "tfidf":
            return np.diff(self.tfidf.indptr) > 0
        if reads == "tokens":
            known = np.concatenate([[0], np.cumsum(self.tokens.values != UNK)])
            return np.diff(known[self.tokens.indptr]) > 0
        # Word pieces: there is one for nearly everything.
        return np.array([bool(one.strip()) for one in self.texts], np.bool_)
