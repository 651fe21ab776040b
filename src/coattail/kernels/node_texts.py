"""What a label tree gathers from all texts: sums of labels' rows, texts of nodes, labels of leaves.

All walk the texts as they lie in memory; nothing is sorted, no matrices are multiplied.
"""

import numpy as np
from numba import njit

from coattail.kernels.sparse import grown, prefetch


@njit(nogil=True, cache=True)
def unit_sums(indptr, indices, values, first, texts, weights, begin, end, n_words, least):
    """Weighted sums of the texts of labels begin..end, scaled to length 1.

    Texts of label l are ``texts[first[l]:first[l + 1]]``; their rows are CSR. Entries below
    ``least`` in size are left out. Returns (lengths (labels,), words, sums), words in the order of
    their first occurrence.
    """
    place = np.full(n_words, -1, np.int32)
    lengths = np.empty(end - begin, np.int64)
    words, sums, kept = np.empty(4096, np.int32), np.empty(4096, np.float32), 0
    for label in range(begin, end):
        used = kept
        for t in range(first[label], first[label + 1]):
            # Texts of the next labels lie behind, so one may look beyond this label's.
            if t + 12 < texts.shape[0]:
                prefetch(indptr, texts[t + 12])
                prefetch(indices, indptr[texts[t + 6]])
                prefetch(values, indptr[texts[t + 6]])
            room = used + indptr[texts[t] + 1] - indptr[texts[t]]
            words, sums = grown(words, room), grown(sums, room)
            for p in range(indptr[texts[t]], indptr[texts[t] + 1]):
                word = indices[p]
                if place[word] < 0:
                    place[word] = used
                    words[used] = word
                    sums[used] = 0
                    used += 1
                sums[place[word]] += weights[t] * values[p]
        square = 0.0
        for p in range(kept, used):
            place[words[p]] = -1
            square += np.float64(sums[p]) * np.float64(sums[p])
        scale = np.float32(1.0 / np.sqrt(square)) if square > 0 else np.float32(1.0)
        start = kept
        for p in range(start, used):
            sums[kept] = scale * sums[p]
            words[kept] = words[p]
            kept += abs(sums[kept]) >= least
        lengths[label - begin] = kept - start
    return lengths, words[:kept].copy(), sums[:kept].copy()


@njit(nogil=True, cache=True)
def count_texts(indptr, labels, present, leaf, parent):
    """Texts with a label below each node, (m,): ``present`` tells which entries of Y count."""
    counts = np.zeros(parent.shape[0], np.int64)
    last = np.full(parent.shape[0], -1, np.int64)  # text that reached the node last
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            node = leaf[labels[p]] if present[p] else -1
            while node >= 0 and last[node] != i:  # above such a node the text has been, too
                last[node] = i
                counts[node] += 1
                node = parent[node]
    return counts


@njit(nogil=True, cache=True)
def list_texts(indptr, labels, present, leaf, parent, start, texts):
    """Those texts, in order: node v owns ``texts[start[v]:start[v + 1]]``."""
    used = start[:-1].copy()
    last = np.full(parent.shape[0], -1, np.int64)
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            node = leaf[labels[p]] if present[p] else -1
            while node >= 0 and last[node] != i:
                last[node] = i
                texts[used[node]] = i
                used[node] += 1
                node = parent[node]


@njit(nogil=True, cache=True)
def _ask_ahead(first, texts, indptr, reaches, order, k):
    """Bring near what the labels after the k-th will read; each look-up needs the one before."""
    n = order.shape[0]
    if k + 12 < n:
        prefetch(first, order[k + 12])
    if k + 9 < n:
        prefetch(texts, first[order[k + 9]])
    for ahead, rows in ((6, False), (3, True)):
        if k + ahead < n:
            begin = first[order[k + ahead]]
            for t in range(begin, min(begin + 8, first[order[k + ahead] + 1])):
                if rows:
                    prefetch(reaches, indptr[texts[t]])
                else:
                    prefetch(indptr, texts[t])


@njit(nogil=True, cache=True)
def move_labels(first, texts, places, indptr, order, room, reaches, leaf, size):
    """Every label of ``order``, in turn, to the leaf that most of its texts reach without it.

    Texts of label l are ``texts[first[l]:first[l + 1]]``; text i reaches the leaves of its labels,
    ``reaches[indptr[i]:indptr[i + 1]]`` (-1: none), that of l at ``places[first[l]:...]``. A label
    leaves only for a leaf with fewer than ``room`` labels that more of its texts reach; of equal
    ones the first. ``reaches``, ``leaf`` (L,) and ``size`` (nodes,) change.
    """
    reached = np.zeros(size.shape[0], np.int64)  # texts of the label at hand, by leaf
    last = np.full(size.shape[0], -1, np.int64)  # visit that reached the leaf last
    found = np.empty(size.shape[0], np.int64)
    visit = 0
    for k in range(order.shape[0]):
        label = order[k]
        _ask_ahead(first, texts, indptr, reaches, order, k)
        own, n_found = leaf[label], 0
        for t in range(first[label], first[label + 1]):
            if t + 12 < first[label + 1]:
                prefetch(indptr, texts[t + 12])
            if t + 6 < first[label + 1]:
                prefetch(reaches, indptr[texts[t + 6]])
            for p in range(indptr[texts[t]], indptr[texts[t] + 1]):
                node = reaches[p]
                if p != places[t] and node >= 0 and last[node] != visit:
                    last[node] = visit
                    if reached[node] == 0:
                        found[n_found] = node
                        n_found += 1
                    reached[node] += 1
            visit += 1
        best, most = own, reached[own]
        for node in found[:n_found]:
            better = reached[node] > most or (reached[node] == most and own != best > node)
            if better and size[node] < room:
                best, most = node, reached[node]
        for node in found[:n_found]:
            reached[node] = 0
        if best != own:
            size[own] -= 1
            size[best] += 1
            leaf[label] = best
            for t in range(first[label], first[label + 1]):
                reaches[places[t]] = best
