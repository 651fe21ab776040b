"""From text to arrays: tokens, vocabulary by document frequency, tf-idf with n-grams, token ids."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import Ragged, unit_rows

# Which rule cuts texts into words: a new number whenever some text is cut otherwise than before.
TOKENIZER = 2

_WORD = re.compile(r"\w+")
# Joiners and variation selectors change how a word looks, not which word it is.
_UNSEEN_CLASS = "\u034f\u180b-\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef"
_UNSEEN = re.compile(f"[{_UNSEEN_CLASS}]")
# Where Unicode has marks: on the first plane from here on, and on the second.
_NEAR, _FAR = range(0x300, 0x10000), range(0x10000, 0x20000)
_BEYOND = "\U00010000-\U0010ffff"  # all planes but the first
_ASCII = bytes(range(128))

PAD, UNK = 0, 1
SPECIAL = ("<pad>", "<unk>")  # no token can be called so: < is no word character
TITLE = 64  # words of a title, at most
IN_TITLE = "title:"  # begins the terms of titles; no word holds a colon

_BLOCK = 1 << 22  # tokens handled at once


def tokenize(text: str) -> list[str]:
    """Lower-case words of a text, in order.

    A word is a run of letters, digits and underscores of any script, with the combining marks that
    follow them (vowel signs, points, accents). Composed and decomposed spellings are one word
    (NFC), with joiners or without; what stands between words is dropped.
    """
    text = text.lower()
    if text.isascii() or _is_simple(text):
        return _WORD.findall(text)
    return _word_with_marks().findall(spelling(text))


def spelling(text: str) -> str:
    """The one spelling of what looks the same: composed (NFC), without what only joins letters."""
    return text if text.isascii() else unicodedata.normalize("NFC", _UNSEEN.sub("", text))


def _is_simple(text: str) -> bool:
    """Whether the text is in NFC and holds no mark, joiner or variation selector.

    That goes for most texts. Only what is not ASCII is looked at, so it costs next to nothing.
    """
    beyond = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    rest = beyond.decode("utf-8", "surrogatepass")
    return not _special().search(rest) and unicodedata.is_normalized("NFC", rest)


@cache
def _special() -> re.Pattern[str]:
    """Marks and what is unseen; of characters beyond the first plane any, to be quick."""
    return re.compile(f"[{_marks(_NEAR)}{_UNSEEN_CLASS}{_BEYOND}]")


@cache
def _word_with_marks() -> re.Pattern[str]:
    near, far = _marks(_NEAR), _marks(_FAR)
    # `re` finds a character of the first plane in a table, but tries ranges of others one by one.
    # So these wait behind a look ahead.
    return re.compile(rf"\w[\w{near}]*(?:(?=[{_BEYOND}])[{far}]+[\w{near}]*)*")


def is_mark(character: str) -> bool:
    """Whether a character combines with the one before it and belongs to its word."""
    # Enclosing marks (a circle, a keycap) make symbols, not words.
    return unicodedata.category(character) in ("Mn", "Mc")


def _marks(codes: range) -> str:
    """The marks of a part of Unicode as ranges of a character class."""
    found = [code for code in codes if is_mark(chr(code))]
    starts = [code for code in found if not is_mark(chr(code - 1))]
    ends = [code for code in found if not is_mark(chr(code + 1))]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


def title(text: str) -> list[str]:
    """Lower-case words of the first line that is not empty, at most TITLE of them."""
    return tokenize(text.lstrip().partition("\n")[0])[:TITLE]


class Numbering:
    """Numbers names in order of first sight."""

    def __init__(self) -> None:
        self._number: defaultdict[str, int] = defaultdict()
        self._number.default_factory = self._number.__len__

    def numbers(self, names: Iterable[str]) -> list[int]:
        return list(map(self._number.__getitem__, names))

    @property
    def names(self) -> list[str]:
        return list(self._number)

    def sorted(self) -> tuple[list[str], NDArray[np.int32]]:
        """The names in order, and the place of each number in that order."""
        names = self.names
        order = sorted(range(len(names)), key=names.__getitem__)
        place = np.empty(len(names), np.int32)
        place[order] = np.arange(len(names))
        return [names[i] for i in order], place


class Encoder:
    """Texts as numbers of their words; memory is that of the numbers, never that of the texts."""

    def __init__(self) -> None:
        self._numbering = Numbering()

    def encode(self, text: str) -> list[int]:
        return self._numbering.numbers(tokenize(text))

    @property
    def words(self) -> list[str]:
        """Word i is the one numbered i."""
        return self._numbering.names


class RaggedBuilder:
    """Collects rows of whole numbers into a Ragged."""

    def __init__(self) -> None:
        self._values, self._lengths = array("i"), array("q")

    def add(self, row: Sequence[int]) -> None:
        self._values.extend(row)
        self._lengths.append(len(row))

    def build(self) -> Ragged:
        """What was added so far; the memory is shared, so this comes last."""
        lengths = np.frombuffer(self._lengths, np.int64)
        return Ragged(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.frombuffer(self._values, np.int32),
        )


# --- counting ------------------------------------------------------------------------------------


def bag(tokens: Ragged, n_words: int) -> sp.csr_matrix:
    """How often each word stands in each text, float32 (n, n_words); ids below 0 are skipped."""
    blocks = []
    for begin, end in _row_blocks(tokens):
        values = tokens.values[tokens.indptr[begin] : tokens.indptr[end]]
        indptr = tokens.indptr[begin : end + 1] - tokens.indptr[begin]
        known = values >= 0
        if not known.all():
            indptr = np.concatenate([[0], np.cumsum(known)])[indptr]
            values = values[known]
        ones = np.ones(len(values), np.float32)
        block = sp.csr_matrix((ones, values, indptr), shape=(end - begin, n_words), copy=True)
        block.sum_duplicates()
        blocks.append(block)
    return sp.csr_matrix(sp.vstack(blocks, format="csr")) if len(blocks) > 1 else blocks[0]


def first_words(tokens: Ragged, lengths: NDArray[np.int64]) -> Ragged:
    """The first ``lengths[i]`` words of every text i, which has at least so many."""
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(indptr[-1]) + np.repeat(tokens.indptr[:-1] - indptr[:-1], lengths)
    return Ragged(indptr, tokens.values[places])


def _row_blocks(tokens: Ragged) -> Iterator[tuple[int, int]]:
    """Runs of texts with about _BLOCK tokens together; there is at least one run."""
    begin, end = 0, -1
    while end < tokens.n:
        limit = tokens.indptr[begin] + _BLOCK
        end = max(begin + 1, int(np.searchsorted(tokens.indptr, limit, "right")) - 1)
        end = min(end, tokens.n)
        yield begin, end
        begin = end


def document_frequency(counts: sp.csr_matrix) -> NDArray[np.int64]:
    """In how many texts each word stands, (n_words,)."""
    return np.bincount(counts.indices, minlength=counts.shape[1]).astype(np.int64)


def by_frequency(
    words: Sequence[str], df: NDArray[np.int64], min_df: int = 1, limit: int | None = None
) -> NDArray[np.int64]:
    """Positions of the words in at least ``min_df`` texts, most frequent first, equals by name."""
    kept = np.flatnonzero(df >= max(min_df, 1)).tolist()
    kept.sort(key=lambda i: (-df[i], words[i]))
    return np.asarray(kept[:limit], np.int64)


# --- n-grams -------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """Term counts of several splits over the same columns."""

    terms: list[str]
    splits: list[sp.csr_matrix]


def count_terms(
    splits: Sequence[Ragged],
    bags: Sequence[sp.csr_matrix],
    words: Sequence[str],
    ngrams: int,
    min_df: int,
) -> Counted:
    """Words and n-grams in at least ``min_df`` texts of the first split (train), in all splits.

    ``bags`` are the word counts of ``splits``. A text with an n-gram has its parts too, so only
    n-grams whose parts are frequent are looked at.
    """
    kept = document_frequency(bags[0]) >= min_df
    terms = [word for word, keep in zip(words, kept.tolist(), strict=True) if keep]
    counts = [sp.csr_matrix(M[:, kept]) for M in bags]
    number = np.where(kept, np.arange(len(words)), -1).astype(np.int32)
    singles = [Ragged(tokens.indptr, number[tokens.values]) for tokens in splits]
    grams, spelled = singles, list(words)
    for n in range(2, ngrams + 1):
        grams, spelled, level = _longer(grams, singles, spelled, words, n, min_df)
        terms += spelled
        stacked = [sp.hstack(pair, format="csr") for pair in zip(counts, level, strict=True)]
        counts = [sp.csr_matrix(M) for M in stacked]
    return Counted(terms, counts)


def _longer(
    grams: list[Ragged],
    singles: list[Ragged],
    spelled: list[str],
    words: Sequence[str],
    n: int,
    min_df: int,
) -> tuple[list[Ragged], list[str], list[sp.csr_matrix]]:
    """From the (n-1)-gram that begins at each token to the n-gram, or -1 if it is too rare."""
    keys = [_keys(g, s, n, len(words)) for g, s in zip(grams, singles, strict=True)]
    known, total = np.unique(keys[0][keys[0] >= 0], return_counts=True)
    known = known[total >= min_df]
    numbered = [_look_up(k, known, s.indptr) for k, s in zip(keys, singles, strict=True)]
    counts = [bag(tokens, len(known)) for tokens in numbered]
    kept = document_frequency(counts[0]) >= min_df
    number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    number = np.append(number, np.int32(-1))  # so that -1 looks up -1
    longer = [Ragged(tokens.indptr, number[tokens.values]) for tokens in numbered]
    first, last = np.divmod(known[kept], max(len(words), 1))
    names = [f"{spelled[a]} {words[b]}" for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return longer, names, [counted[:, kept] for counted in counts]


def _keys(grams: Ragged, singles: Ragged, n: int, n_words: int) -> NDArray[np.int64]:
    keys = np.full(len(grams.values), -1, np.int64)
    if len(keys) < n:
        return keys
    start, last = grams.values[: -(n - 1)], singles.values[n - 1 :]
    row_end = np.repeat(grams.indptr[1:], grams.lengths)[: -(n - 1)]
    fits = (start >= 0) & (last >= 0) & (np.arange(len(start)) + n <= row_end)
    keys[: len(start)][fits] = start[fits].astype(np.int64) * n_words + last[fits]
    return keys


def _look_up(
    keys: NDArray[np.int64], known: NDArray[np.int64], indptr: NDArray[np.int64]
) -> Ragged:
    numbers = np.full(len(keys), -1, np.int32)
    if len(known):
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found = known[place] == keys
        numbers[found] = place[found]
    return Ragged(indptr, numbers)


# --- tf-idf --------------------------------------------------------------------------------------


def inverse_document_frequency(df: NDArray[np.int64], n_texts: int) -> NDArray[np.float64]:
    """``ln((1 + N) / (1 + df)) + 1``: as if one more text held every word."""
    return np.log((1.0 + n_texts) / (1.0 + df)) + 1.0


def tfidf(counts: sp.csr_matrix, idf: NDArray[np.float64]) -> sp.csr_matrix:
    """``(1 + ln tf) idf``, every row of length 1; float32, sorted indices."""
    values = (1.0 + np.log(counts.data.astype(np.float64))) * idf[counts.indices]
    weighted = sp.csr_matrix((values, counts.indices, counts.indptr), shape=counts.shape)
    out = unit_rows(weighted)
    out.sort_indices()
    return out


# --- token ids -----------------------------------------------------------------------------------


def token_ids(tokens: Ragged, order: NDArray[np.int64], n_words: int, max_tokens: int) -> Ragged:
    """The first ``max_tokens`` words of each text as ids of the vocabulary.

    Word ``order[i]`` becomes 2 + i and every other word UNK; a text without words becomes [UNK].
    """
    ids = np.full(n_words + 1, UNK, np.int32)
    ids[order] = len(SPECIAL) + np.arange(len(order))
    ids[n_words] = UNK
    lengths = np.clip(tokens.lengths, 1, max_tokens)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.empty(indptr[-1], np.int32)
    for begin, end in _row_blocks(Ragged(indptr, values)):
        inside = np.arange(indptr[begin], indptr[end]) - np.repeat(
            indptr[begin:end], lengths[begin:end]
        )
        source = np.repeat(tokens.indptr[begin:end], lengths[begin:end]) + inside
        empty = np.repeat(tokens.lengths[begin:end] == 0, lengths[begin:end])
        words = np.full(len(source), n_words, np.int64)
        words[~empty] = tokens.values[source[~empty]]
        values[indptr[begin] : indptr[end]] = ids[words]
    return Ragged(indptr, values)
