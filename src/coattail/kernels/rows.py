"""Some rows of a matrix, renumbered so that what belongs together lies together."""

import numpy as np
from numba import njit

from coattail.kernels.sparse import lowest_bit, prefetch


@njit(nogil=True, cache=True)
def compact(indptr, indices, values, rows, place, sub_indptr, sub_indices, sub_values, words):
    """Copy some rows and renumber their words by first occurrence; returns the number of words.

    ``place`` (words,) is scratch filled with -1, and left so. ``words`` receives the old numbers.
    """
    found = 0
    k = 0
    sub_indptr[0] = 0
    for r in range(rows.shape[0]):
        # In steps: where a row begins, then its words. Each is a wait for main memory.
        if r + 8 < rows.shape[0]:
            prefetch(indptr, rows[r + 8])
        if r + 4 < rows.shape[0]:
            ahead = rows[r + 4]
            for p in range(indptr[ahead], indptr[ahead + 1], 16):  # a cache line
                prefetch(indices, p)
                prefetch(values, p)
        i = rows[r]
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            if place[f] < 0:
                place[f] = found
                words[found] = f
                found += 1
            sub_indices[k] = place[f]
            sub_values[k] = values[p]
            k += 1
        sub_indptr[r + 1] = k
    for w in range(found):
        place[words[w]] = -1
    return found


@njit(nogil=True, cache=True)
def set_apart(indptr, indices, values, words, middle, own):
    """Reorder the words of compacted rows: shared ones first, then those that no other row has.

    Shared words of row r end at ``middle[r]``, and ``own[r]`` is the sum of squares of the others.
    Words are numbered anew in ``indices`` and ``words``: shared ones, then own ones row by row.
    Returns the number of shared words. Where hardly a word would be apart all count as shared.
    """
    n, d = indptr.shape[0] - 1, words.shape[0]
    times = np.zeros(d, np.uint8)
    for p in range(indptr[n]):
        times[indices[p]] = times[indices[p]] << 1 | 1
    number, n_shared = np.empty(d, np.int32), 0
    for f in range(d):
        number[f] = n_shared if times[f] > 1 else -1
        n_shared += times[f] > 1
    if 8 * (d - n_shared) < d:
        middle[:] = indptr[1:]
        own[:] = 0
        return d
    old, alone = words.copy(), n_shared
    for f in range(d):
        if number[f] >= 0:
            words[number[f]] = old[f]
    longest = 0
    for r in range(n):
        longest = max(longest, indptr[r + 1] - indptr[r])
    aside, aside_values = np.empty(longest + 1, np.int32), np.empty(longest + 1, np.float32)
    for r in range(n):
        k, count, square = indptr[r], 0, np.float32(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            f, x = indices[p], values[p]
            # Which of the two it is cannot be guessed: both are written, one of them stays.
            aside[count], aside_values[count] = f, x
            indices[k], values[k] = number[f], x
            own_word = number[f] < 0
            count += own_word
            k += not own_word
        middle[r] = k
        for c in range(count):
            indices[k + c], values[k + c] = alone, aside_values[c]
            words[alone] = old[aside[c]]
            square += aside_values[c] * aside_values[c]
            alone += 1
        own[r] = square
    return n_shared


@njit(nogil=True, cache=True)
def in_order(numbers, place, bits, groups, order):
    """Places of distinct numbers in increasing order of these, into ``order``.

    A number is a bit of ``bits``, whose words are bits of ``groups``: far cheaper than sorting, and
    the cost is that of the numbers. ``place`` is scratch of -1, the others of zeros; left so.
    """
    six, low = np.uint64(6), np.uint64(63)
    for k in range(numbers.shape[0]):
        word = np.uint64(numbers[k])
        place[numbers[k]] = k
        bits[word >> six] |= np.uint64(1) << (word & low)
        word >>= six
        groups[word >> six] |= np.uint64(1) << (word & low)
    found = 0
    for g in range(groups.shape[0]):
        while groups[g]:
            w = 64 * g + lowest_bit(groups[g])
            groups[g] &= groups[g] - np.uint64(1)
            while bits[w]:
                number = 64 * w + lowest_bit(bits[w])
                bits[w] &= bits[w] - np.uint64(1)
                order[found] = place[number]
                place[number] = -1
                found += 1


@njit(nogil=True, cache=True)
def prepare(
    indptr, indices, values, rows, place, bits, groups, sub_indptr, middle, sub_indices, sub_values,
    own, words, order,
):  # fmt: skip
    """``compact``, ``set_apart`` and ``in_order`` in one.

    ``words`` and ``order`` have room enough. Returns the numbers of words and of shared ones.
    """
    d = compact(indptr, indices, values, rows, place, sub_indptr, sub_indices, sub_values, words)
    n_shared = set_apart(sub_indptr, sub_indices, sub_values, words[:d], middle, own)
    in_order(words[:d], place, bits, groups, order[:d])
    return d, n_shared
