"""What a label's frequency means: counts, propensities, bands, bins.

Everything here is a function of ``counts``, the number of texts of each label in train and
validation together, so that all stages agree on which labels are rare and how rare.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from coattail.errors import DataError

BANDS = ("head", "torso", "tail")
HEAD, TORSO, TAIL = 0, 1, 2

EDGES = (0, 2, 5, 10, 20, 50, 100, 1000)


def counts(Y: sp.csr_matrix) -> NDArray[np.int64]:
    """Texts per label, (L,), of a canonical texts x labels matrix; stored zeros count nothing."""
    labels = Y.indices if np.all(Y.data) else Y.indices[Y.data != 0]
    return np.bincount(labels, minlength=Y.shape[1]).astype(np.int64)


def inverse_propensity(
    counts: ArrayLike, n_texts: int, A: float = 0.55, B: float = 1.5
) -> NDArray[np.float64]:
    """``q = 1/p = 1 + C (n + B)^-A`` with ``C = (ln N - 1)(B + 1)^A`` (Jain et al. 2016).

    Parameters
    ----------
    counts : (L,)
        Texts per label, n; expected counts (fractions) are welcome too.
    n_texts : int
        Texts the counts were taken from, N. Below e texts C would be negative and q below 1;
        there C is 0, so every label counts as always observed.
    A, B : float
        Constants of the dataset.

    Returns
    -------
    float64 (L,), never below 1.
    """
    C = max(np.log(max(n_texts, 1)) - 1.0, 0.0) * (B + 1.0) ** A
    return 1.0 + C * (np.asarray(counts, np.float64) + B) ** -A


def bands(counts: ArrayLike, head_share: float = 0.6, tail_share: float = 0.1) -> NDArray[np.int8]:
    """Band of every label, (L,): 0 head, 1 torso, 2 tail, as in ``BANDS``.

    Labels are sorted by count, most frequent first, equal counts by id. The head is the shortest
    run of first labels that carries at least ``head_share`` of all positives; the tail is the
    longest run of last labels that carries at most ``tail_share``. Labels never seen are tail.
    """
    if head_share < 0 or tail_share < 0 or head_share + tail_share > 1:
        raise DataError(
            f"bands: head_share {head_share} and tail_share {tail_share} overlap; "
            "wanted two shares of the positives with a sum of at most 1"
        )
    n = np.asarray(counts, np.int64)
    order = np.argsort(-n, kind="stable")
    total = int(n.sum())
    before = np.cumsum(n[order]) - n[order]  # positives of all labels more frequent than this one
    sorted_bands = np.full(len(n), TORSO, np.int8)
    # Shares are decimal fractions, so a product may miss a whole number by a rounding error.
    sorted_bands[before < head_share * total - 1e-9 * total] = HEAD
    sorted_bands[before >= total - tail_share * total - 1e-9 * total] = TAIL
    out = np.empty(len(n), np.int8)
    out[order] = sorted_bands
    out[n == 0] = TAIL
    return out


def bin_names(edges: tuple[int, ...] = EDGES) -> tuple[str, ...]:
    """``0``, ``1-2``, ``3-5``, ... and ``>=1001``: one name per frequency bin."""
    names, low = [], 0
    for edge in edges:
        names.append(f"{low}" if low == edge else f"{low}-{edge}")
        low = edge + 1
    return (*names, f">={low}")


BINS = bin_names()


def frequency_bin(counts: ArrayLike, edges: tuple[int, ...] = EDGES) -> NDArray[np.int8]:
    """Bin of every label, (L,): bin j holds counts above ``edges[j - 1]`` up to ``edges[j]``."""
    return np.searchsorted(np.asarray(edges), np.asarray(counts), side="left").astype(np.int8)
