"""Best labels of texts under linear scores: by word, by dense blocks of labels, by beam search.

A heap is two rows (labels, scores) and a length; its root is the worst entry kept. Entry a is worse
than b if its score is lower, or equal with a larger label: the order of a TopK.
"""

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, above, lanes
from coattail.kernels.sparse import fma, lowest_bit


@njit(nogil=True, cache=True, inline="always")
def _worse(label_a, score_a, label_b, score_b):
    return score_a < score_b or (score_a == score_b and label_a > label_b)


@njit(nogil=True, cache=True)
def _sift_down(labels, scores, at, size):
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        right = child + 1
        if right < size and _worse(labels[right], scores[right], labels[child], scores[child]):
            child = right
        if not _worse(labels[child], scores[child], labels[at], scores[at]):
            return
        labels[at], labels[child] = labels[child], labels[at]
        scores[at], scores[child] = scores[child], scores[at]
        at = child


@njit(nogil=True, cache=True)
def push(labels, scores, size, label, score):
    """Offer an entry to a heap of capacity len(labels); returns the new size."""
    if size < labels.shape[0]:
        at = size
        labels[at], scores[at] = label, score
        while at > 0:
            up = (at - 1) // 2
            if not _worse(labels[at], scores[at], labels[up], scores[up]):
                break
            labels[at], labels[up] = labels[up], labels[at]
            scores[at], scores[up] = scores[up], scores[at]
            at = up
        return size + 1
    if _worse(labels[0], scores[0], label, score):
        labels[0], scores[0] = label, score
        _sift_down(labels, scores, 0, size)
    return size


@njit(nogil=True, cache=True)
def finish(labels, scores, size):
    """Turn a heap into a row of a TopK: best first, then -1 and -inf."""
    for last in range(size - 1, 0, -1):
        labels[0], labels[last] = labels[last], labels[0]
        scores[0], scores[last] = scores[last], scores[0]
        _sift_down(labels, scores, 0, last)
    labels[size:] = -1
    scores[size:] = -np.inf


@njit(nogil=True, cache=True)
def by_word(indptr, indices, values, begin, end, first, labels, weights, bias, top, scores):
    """Top labels of rows begin..end; word f adds ``weights[first[f]:first[f + 1]]`` to its labels.

    A label with bias -inf is never given. ``top`` and ``scores`` are (n, k).
    """
    margins = np.empty(bias.shape[0], np.float32)
    for i in range(begin, end):
        margins[:] = bias
        for p in range(indptr[i], indptr[i + 1]):
            x = values[p]
            f = indices[p]
            for q in range(first[f], first[f + 1]):
                label = labels[q]
                margins[label] = fma(x, weights[q], margins[label])
        size = 0
        worst = np.float32(-np.inf)
        for label in range(bias.shape[0]):
            # Labels come in order, so an equal score loses to what the heap holds.
            if margins[label] > worst:
                size = push(top[i], scores[i], size, label, margins[label])
                if size == top.shape[1]:
                    worst = scores[i, 0]
        finish(top[i], scores[i], size)


@njit(nogil=True, cache=True)
def by_block(indptr, indices, values, begin, end, first, words, weights, bias, W, top, scores):
    """The same answer, bit for bit, with LANES labels at a time made dense in W (words, LANES).

    Here the weights lie label by label: ``words[first[l]:first[l + 1]]``.
    """
    k = top.shape[1]
    size = np.zeros(end - begin, np.int64)
    out, offset = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for block in range(0, bias.shape[0], LANES):
        used = min(LANES, bias.shape[0] - block)
        offset[:] = -np.inf
        offset[:used] = bias[block : block + used]
        W[:] = 0
        for lane in range(used):
            for q in range(first[block + lane], first[block + lane + 1]):
                W[words[q], lane] = weights[q]
        for i in range(begin, end):
            lanes(indices, values, indptr[i], indptr[i + 1], W, offset, out)
            worst = scores[i, 0] if size[i - begin] == k else np.float32(-np.inf)
            mask = above(out, worst)
            while mask != 0:
                lane = lowest_bit(mask)
                mask &= mask - np.uint64(1)
                size[i - begin] = push(top[i], scores[i], size[i - begin], block + lane, out[lane])
    for i in range(begin, end):
        finish(top[i], scores[i], size[i - begin])
