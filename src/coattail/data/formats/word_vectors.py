"""Pre-trained word vectors in GloVe's text format: a word and its numbers on each line."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coattail.data.formats.lines import fail, lines
from coattail.data.text import PAD, SPECIAL, spelling
from coattail.errors import DataError

log = logging.getLogger("coattail")

SPREAD = 0.1  # words without a vector start in the uniform distribution over [-SPREAD, SPREAD]


def read_vectors(
    path: str | Path, vocabulary: Sequence[str], seed: int, dimension: int | None = None
) -> tuple[NDArray[np.float32], int]:
    """Vectors of a vocabulary whose first entries are padding and the unknown word.

    Parameters
    ----------
    path : plain, .gz or .xz file; a first line of two whole numbers (word2vec's header) is skipped
    vocabulary : (V,)
    seed : of the rows the file does not have; such a row does not depend on which others are there
    dimension : numbers per line; that of the first line if not given

    Returns
    -------
    vectors : float32 (V, dimension), padding all zeros
    found : int, how many words the file has
    """
    path = Path(path)
    place = {word: i for i, word in enumerate(vocabulary) if i >= len(SPECIAL)}
    found: dict[int, NDArray[np.float32]] = {}
    for line, content in lines(path):
        text = content.rstrip(" ")
        if line == 1 and _is_header(text):
            continue
        if dimension is None:
            dimension = max(text.count(" "), 1)
        word, numbers = _parts(path, line, text, dimension)
        row = place.get(spelling(word))
        if row is not None and row not in found:
            found[row] = _values(path, line, word, numbers)
    if dimension is None:
        raise DataError(f"{path} is empty; wanted a word and its numbers on each line")
    shape = (len(vocabulary), dimension)
    vectors = np.random.default_rng(seed).uniform(-SPREAD, SPREAD, shape).astype(np.float32)
    vectors[PAD] = 0.0
    for row, values in found.items():
        vectors[row] = values
    log.info("%s: vectors for %d of %d words", path.name, len(found), len(place))
    return vectors, len(found)


def _is_header(text: str) -> bool:
    fields = text.split(" ")
    return len(fields) == 2 and all(field.isdecimal() for field in fields)


def _parts(path: Path, line: int, text: str, dimension: int) -> tuple[str, str]:
    """The word and its numbers; some published files have words with spaces in them."""
    spaces = text.count(" ")
    if spaces == dimension:
        word, _, numbers = text.partition(" ")
        return word, numbers
    fields = text.rsplit(" ", dimension)
    if spaces < dimension or _is_number(fields[0].rpartition(" ")[2]):
        fail(path, line, f"got {spaces} numbers after the word; wanted {dimension}")
    return fields[0], " ".join(fields[1:])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _values(path: Path, line: int, word: str, numbers: str) -> NDArray[np.float32]:
    try:
        values = np.array(numbers.split(" "), np.float32)
    except ValueError as error:
        fail(path, line, f"got {error} in the vector of {word!r}; wanted numbers")
    if not np.all(np.isfinite(values)):
        fail(path, line, f"got a vector of {word!r} with infinity or NaN; wanted finite numbers")
    return values
