"""Traces of a label's name in a text: evidence that needs no training text of the label.

A rare label has few texts to learn from, but often a name that people chose to describe it. The
figures for a text and a label are

    cover        share of the name's words that occur in the text; words of few names weigh more
    strength     the same, each word times the logarithm of how often it occurs
    stems        share of the words that occur in this or another form (with the same beginning)
    phrase       logarithm of how often the whole name occurs
    title_cover, title_stems, title_phrase   the same for the title (text.title); phrase: whether
                 the whole name occurs in it
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coattail.data.text import title, tokenize
from coattail.errors import DataError

STEM = 5  # letters that two forms of a word share
EVIDENCE = (
    "cover", "strength", "stems", "phrase", "title_cover", "title_stems", "title_phrase",
)  # fmt: skip


class Names:
    """Label names ready to be looked up in texts."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._words = [tokenize(name.replace("_", " ")) for name in names]
        uses = Counter(word for words in self._words for word in set(words))
        weight = {word: 1 + math.log(len(names) / count) for word, count in uses.items()}
        self._weights = [[weight[word] for word in words] for words in self._words]
        self._phrases = [f" {' '.join(words)} " for words in self._words]

    def evidence(self, texts: list[str], labels: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """(n, k, len(EVIDENCE)) for the labels (n, k) of a ranking; 0 where a label is -1."""
        if len(texts) != len(labels):
            raise DataError(f"the ranking has {len(labels)} texts, but {len(texts)} were given")
        out = np.zeros((*labels.shape, len(EVIDENCE)))
        for text, listed, row in zip(texts, labels.tolist(), out, strict=True):
            seen = _Seen(text)
            for place, label in enumerate(listed):
                if label >= 0 and self._words[label]:
                    row[place] = self._look(label, seen)
        return out

    def _look(self, label: int, text: _Seen) -> tuple[float, ...]:
        words, weights = self._words[label], self._weights[label]
        found, cover, strength, stems, title_cover, title_stems = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        for word, weight in zip(words, weights, strict=True):
            stem = word[:STEM]
            if stem not in text.stems:
                continue
            stems += weight
            title_stems += weight * (stem in text.title_stems)
            if count := text.counts.get(word, 0):
                found += 1
                cover += weight
                strength += weight * math.log1p(count)
                title_cover += weight * (word in text.title_words)
        total = sum(weights)
        phrase = title_phrase = 0.0
        if found == len(words):  # rarely, so most texts are not searched
            phrase = math.log1p(text.whole.count(self._phrases[label]))
            title_phrase = float(self._phrases[label] in text.title)
        return (
            *(cover / total, strength / total, stems / total, phrase),
            *(title_cover / total, title_stems / total, title_phrase),
        )


class _Seen:
    """A text, taken apart for many look-ups."""

    def __init__(self, text: str) -> None:
        words = tokenize(text)
        first = title(text)
        self.counts = Counter(words)
        self.stems = {word[:STEM] for word in self.counts}
        self.title_words = set(first)
        self.title_stems = {word[:STEM] for word in first}
        self.whole = f" {' '.join(words)} "
        self.title = f" {' '.join(first)} "
