"""Copies of some rows of a matrix, with words renumbered so that they fit the cache."""

import numpy as np
from numba import njit

from coattail.kernels.sparse import count_bits, lowest_bit, prefetch

LINE = 16  # four-byte values in a cache line
AHEAD = 4  # rows ahead at which one is asked for
OWN, SHARED, OWN_BEFORE, SHARED_BEFORE = range(4)  # columns of the table of ``set_apart``


@njit(nogil=True, cache=True)
def _ask_ahead(indptr, indices, values, rows, r):
    """Bring near the rows after the r-th; no effect on any value."""
    # In steps: where a row begins, then its words. Each is a wait for main memory.
    if r + 2 * AHEAD < rows.shape[0]:
        prefetch(indptr, rows[r + 2 * AHEAD])
    if r + AHEAD < rows.shape[0]:
        ahead = rows[r + AHEAD]
        for p in range(indptr[ahead], indptr[ahead + 1], LINE):
            prefetch(indices, p)
            prefetch(values, p)


@njit(nogil=True, cache=True)
def compact(indptr, indices, values, rows, place, sub_indptr, sub_indices, sub_values, words):
    """Copy some rows and renumber their words by first occurrence; returns the number of words.

    ``place`` (words,) is scratch filled with -1, and left so. ``words`` receives the old numbers.
    """
    found = 0
    k = 0
    sub_indptr[0] = 0
    for r in range(rows.shape[0]):
        _ask_ahead(indptr, indices, values, rows, r)
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
def set_apart(
    indptr, indices, values, rows, table, sub_indptr, middle, sub_indices, sub_values, own, words,
    order,
):  # fmt: skip
    """Copy some rows so that words used by several of them come before words used by one.

    The shared words of row r end at ``middle[r]``; ``own[r]`` is the sum of squares of the others.
    Words get new numbers, shared ones first, each kind in the order of the old numbers. ``words``
    receives the old number of each; ``order`` receives the new numbers, sorted by the old ones. If
    few words would be set apart, all count as shared. Returns how many words there are, and how
    many of them are shared.

    ``table`` (words // 64 + 1, 4) of uint64 is scratch of zeros, and left so. Each of its rows is
    about 64 words, one bit each: which are used by one row, which by more, and how many words of
    each kind come before. It fits the nearest cache, which a number for every word would not, and
    it is read without branches that the processor would have to guess.
    """
    one, two, six, low = np.uint64(1), np.uint64(2), np.uint64(6), np.uint64(63)
    sub_indptr[0] = 0
    for r in range(rows.shape[0]):
        _ask_ahead(indptr, indices, values, rows, r)
        i = rows[r]
        sub_indptr[r + 1] = sub_indptr[r] + indptr[i + 1] - indptr[i]
        for p in range(indptr[i], indptr[i + 1]):
            f = np.uint64(indices[p])
            w, bit = f >> six, one << (f & low)
            known = table[w, OWN]
            table[w, SHARED] |= known & bit
            table[w, OWN] = known | bit
    n_shared, n_own = 0, 0
    for w in range(table.shape[0]):
        n_shared += count_bits(table[w, SHARED])
        n_own += count_bits(table[w, OWN] ^ table[w, SHARED])
    if 7 * n_own < n_shared:
        n_shared, n_own = n_shared + n_own, 0
        table[:, SHARED] = table[:, OWN]
    k, shared, alone = 0, 0, n_shared
    for w in range(table.shape[0]):
        left = table[w, OWN]
        table[w, OWN] ^= table[w, SHARED]
        table[w, SHARED_BEFORE], table[w, OWN_BEFORE] = shared, alone
        while left:
            bit = left & (~left + one)
            is_own = table[w, OWN] & bit != 0
            number = alone if is_own else shared
            words[number], order[k] = 64 * w + lowest_bit(left), number
            alone += is_own
            shared += not is_own
            left ^= bit
            k += 1
    for r in range(rows.shape[0]):
        _ask_ahead(indptr, indices, values, rows, r)
        # Shared words from the row's begin on, own ones from its end back. Which of the two it is
        # cannot be guessed: a word is written to both places, and one of them is written again.
        front, back = np.uint64(sub_indptr[r]), np.uint64(sub_indptr[r + 1] - 1)
        i, square = rows[r], np.float32(0.0)
        for p in range(indptr[i], indptr[i + 1]):
            f, x = np.uint64(indices[p]), values[p]
            w, place = f >> six, f & low
            is_own = table[w, OWN] >> place & one
            kind = is_own ^ one
            before = np.uint64(count_bits(table[w, kind] & ((one << place) - one)))
            number = table[w, kind + two] + before
            sub_indices[front], sub_values[front] = number, x
            sub_indices[back], sub_values[back] = number, x
            square += np.float32(is_own) * x * x
            front += kind
            back -= is_own
        middle[r], own[r] = front, square
    table[:] = 0
    return n_shared + n_own, n_shared
