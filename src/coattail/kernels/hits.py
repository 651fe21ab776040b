"""Compiled loops of the metrics: hits of a ranking, ideal gains, sums over resamples."""

import numpy as np
from numba import njit, prange

# Rows per parallel task; tasks write disjoint rows, so the thread count never changes a byte.
CHUNK = 2048

# What judge found wrong with a row.
FINE, OUT_OF_RANGE, PADDING_FIRST, SAME_LABEL_TWICE = 0, 1, 2, 3


@njit(cache=True)
def _lower_bound(indices, low, high, label):
    """Where ``label`` stands, or would stand, in the sorted ``indices[low:high]``."""
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _complaint(row, n_labels, scratch):
    """Why a row of predictions cannot be scored, or FINE; ``scratch`` has the length of the row."""
    size = 0
    for j in range(row.shape[0]):
        label = row[j]
        if label >= n_labels or label < -1:
            return OUT_OF_RANGE
        if label >= 0:
            if size < j:
                return PADDING_FIRST
            scratch[size] = label
            size += 1
    scratch[:size].sort()
    for j in range(1, size):
        if scratch[j] == scratch[j - 1]:
            return SAME_LABEL_TWICE
    return FINE


@njit(cache=True, parallel=True)
def judge(labels, indptr, indices, n_labels, hits, complaints):
    """Mark which predictions are true labels of their row.

    labels (n, k) int32, -1 for none; indptr and indices: CSR with sorted rows; out: hits (n, k)
    bool and complaints (n,) uint8, FINE for every row that can be scored.
    """
    n, k = labels.shape
    for chunk in prange((n + CHUNK - 1) // CHUNK):
        scratch = np.empty(k, np.int32)
        for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
            complaints[i] = _complaint(labels[i], n_labels, scratch)
            low, high = indptr[i], indptr[i + 1]
            for j in range(k):
                place = _lower_bound(indices, low, high, labels[i, j])
                hits[i, j] = place < high and indices[place] == labels[i, j]


@njit(cache=True, parallel=True)
def ideal_gains(indptr, indices, weight, ideal):
    """The largest weights among each row's labels, descending, zeros after the last.

    weight (L,) float64; out: ideal (n, k) float64.
    """
    n, k = ideal.shape
    for chunk in prange((n + CHUNK - 1) // CHUNK):
        for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
            ideal[i, :] = 0.0
            size = 0
            for position in range(indptr[i], indptr[i + 1]):
                gain = weight[indices[position]]
                if size == k and gain <= ideal[i, k - 1]:
                    continue
                j = min(size, k - 1)
                while j > 0 and ideal[i, j - 1] < gain:
                    ideal[i, j] = ideal[i, j - 1]
                    j -= 1
                ideal[i, j] = gain
                size = min(size + 1, k)


@njit(cache=True, parallel=True)
def resampled_sums(times, values, sums):
    """Column sums of ``values`` with row i counted ``times[r, i]`` times, for every resample r.

    times (r, n) int32; values (n, m) float64; out: sums (r, m) float64. A resample adds its rows
    in order whatever thread it runs on (a BLAS product would not promise that).
    """
    n, m = values.shape
    for r in prange(times.shape[0]):
        total = np.zeros(m)
        for i in range(n):
            count = times[r, i]
            if count > 0:
                for j in range(m):
                    total[j] += count * values[i, j]
        sums[r] = total
