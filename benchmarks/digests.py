"""Processor time of the digests by which an interrupted training knows what it was begun with.

    python benchmarks/digests.py

Random arrays of the size of EURLEX57K: 45,000 texts to train on, 6,000 of validation.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from coattail.arrays import Ragged
from coattail.models import begun_with
from coattail.models.deep.fit_data import FitData

TEXTS, VALID, WORDS, LABELS = 45_000, 6_000, 170_000, 4_271
LENGTH, TERMS, VOCABULARY = 480, 230, 39_272  # words of a text; terms of tf-idf, and of a text


def main() -> None:
    rng = np.random.default_rng(0)
    tokens, valid = (
        Ragged(np.arange(n + 1) * LENGTH, rng.integers(0, WORDS, n * LENGTH).astype(np.int32))
        for n in (TEXTS, VALID)
    )
    Y, valid_Y = sparse(rng, TEXTS, 5, LABELS), sparse(rng, VALID, 5, LABELS)
    vectors = rng.random((WORDS, 300), np.float32)
    X = sparse(rng, TEXTS, TERMS, VOCABULARY)
    deep = FitData(tokens, Y, (valid, valid_Y), WORDS, vectors).named()
    linear = {"texts": X, "labels": Y, "tail": None}
    for name, things in (("network over words", deep), ("linear model", linear)):
        seconds = processor_seconds(
            lambda things=things: [*map(begun_with.digest, things.values())]
        )
        print(f"{name}: {seconds:.3f} s of processor time, the least of 5")


def sparse(rng: np.random.Generator, n: int, per_row: int, width: int) -> sp.csr_matrix:
    """Random rows with as many entries each."""
    columns = rng.integers(0, width, n * per_row).astype(np.int32)
    values = rng.random(n * per_row, np.float32)
    return sp.csr_matrix((values, columns, np.arange(n + 1) * per_row), shape=(n, width))


def processor_seconds(work: Callable[[], object]) -> float:
    """The least of five runs."""
    found = []
    for _ in range(5):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    main()
