"""Beam search down a label tree, node by node over a batch of texts."""

import numpy as np
from numba import njit

from coattail.kernels.best_labels import finish, push
from coattail.kernels.sparse import fma

HINGE, SIGMOID = 0, 1  # how a margin becomes a log-score
SEARCH = 1000  # words laid out in the time a text looks all of its words up


@njit(nogil=True, cache=True)
def log_score(margin, transform):
    """log of exp(-max(0, 1 - s)^2) or of sigmoid(s)."""
    s = np.float64(margin)
    if transform == HINGE:
        slack = max(0.0, 1.0 - s)
        return -slack * slack
    return -np.log1p(np.exp(-s)) if s > 0 else s - np.log1p(np.exp(s))


@njit(nogil=True, cache=True)
def _slot(words, begin, end, word):
    """Where a word stands in words[begin:end], which is sorted; -1 if it does not."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and words[low] == word else -1


@njit(nogil=True, cache=True)
def _node_margins(
    indptr, indices, values, row, node_words, words, slots, entry_first, entry_child, entry_weight,
    margins,
):  # fmt: skip
    """Add the weights of a text's words to the margins (biases before) of a node's children.

    ``node_words`` is the range of the node's words, or empty if they are laid out in ``slots``.
    """
    begin, end = node_words
    for p in range(indptr[row], indptr[row + 1]):
        slot = _slot(words, begin, end, indices[p]) if begin < end else slots[indices[p]]
        if slot >= 0:
            x = values[p]
            for e in range(entry_first[slot], entry_first[slot + 1]):
                child = entry_child[e]
                margins[child] = fma(x, entry_weight[e], margins[child])


@njit(nogil=True, cache=True)
def search(
    indptr, indices, values, begin, end,
    node_word, words, entry_first, entry_child, entry_weight, bias, output, first_child,
    first_label, labels, beam, discount, transform, slots,
):  # fmt: skip
    """All labels under the beam's leaves, for rows begin..end.

    Node v scores its child nodes, then its labels: outputs ``output[v]:output[v + 1]`` of ``bias``.
    Its words are ``words[node_word[v]:node_word[v + 1]]``; word slot s adds to the children
    ``entry_child[entry_first[s]:entry_first[s + 1]]``. ``slots`` (all words,) is scratch of -1.

    Returns (first, found, scores): labels and path scores, exp(log-score), of every row.
    """
    n = end - begin
    nodes = np.zeros((n, beam), np.int32)  # the beam of every row, as a heap by log-score
    paths = np.zeros((n, beam), np.float64)
    sizes = np.ones(n, np.int64)
    out_row = np.empty(1024, np.int32)
    out_label = np.empty(1024, np.int32)
    out_path = np.empty(1024, np.float64)
    found = 0
    margins = np.empty(0, np.float32)
    while sizes.sum() > 0:
        # (row, place in its beam) sorted by node, so that a node's words are laid out once.
        total = sizes.sum()
        pair_row, pair_at = np.empty(total, np.int32), np.empty(total, np.int32)
        pair_node = np.empty(total, np.int32)
        t = 0
        for r in range(n):
            for b in range(sizes[r]):
                pair_row[t], pair_at[t], pair_node[t] = r, b, nodes[r, b]
                t += 1
        order = np.argsort(pair_node, kind="mergesort")
        next_nodes, next_paths = np.zeros((n, beam), np.int32), np.zeros((n, beam), np.float64)
        next_sizes = np.zeros(n, np.int64)
        t = 0
        while t < total:
            v = pair_node[order[t]]
            n_children = first_child[v + 1] - first_child[v]
            n_outputs = output[v + 1] - output[v]
            if n_outputs > margins.shape[0]:
                margins = np.empty(n_outputs, np.float32)
            last = t
            while last < total and pair_node[order[last]] == v:
                last += 1
            # For a few texts looking words up is cheaper than laying them all out.
            laid_out = (last - t) * SEARCH > node_word[v + 1] - node_word[v]
            node_words = (node_word[v], node_word[v] if laid_out else node_word[v + 1])
            if laid_out:
                for s in range(node_word[v], node_word[v + 1]):
                    slots[words[s]] = s
            while t < last:
                r, at = pair_row[order[t]], pair_at[order[t]]
                t += 1
                margins[:n_outputs] = bias[output[v] : output[v + 1]]
                _node_margins(
                    indptr, indices, values, begin + r, node_words, words, slots, entry_first,
                    entry_child, entry_weight, margins,
                )  # fmt: skip
                above = discount * paths[r, at]
                for c in range(n_children):
                    path = above + log_score(margins[c], transform)
                    child = first_child[v] + c
                    next_sizes[r] = push(next_nodes[r], next_paths[r], next_sizes[r], child, path)
                if found + n_outputs > out_row.shape[0]:
                    room = 2 * (found + n_outputs)
                    out_row = np.concatenate((out_row[:found], np.empty(room, np.int32)))
                    out_label = np.concatenate((out_label[:found], np.empty(room, np.int32)))
                    out_path = np.concatenate((out_path[:found], np.empty(room, np.float64)))
                for c in range(n_children, n_outputs):
                    out_row[found] = r
                    out_label[found] = labels[first_label[v] + c - n_children]
                    out_path[found] = above + log_score(margins[c], transform)
                    found += 1
            if laid_out:
                for s in range(node_word[v], node_word[v + 1]):
                    slots[words[s]] = -1
        nodes, paths, sizes = next_nodes, next_paths, next_sizes
    return _by_row(n, found, out_row, out_label, out_path)


@njit(nogil=True, cache=True)
def _by_row(n, found, row, label, path):
    first = np.zeros(n + 1, np.int64)
    for e in range(found):
        first[row[e] + 1] += 1
    first = np.cumsum(first)
    at = first.copy()
    labels, scores = np.empty(found, np.int32), np.empty(found, np.float32)
    for e in range(found):
        labels[at[row[e]]] = label[e]
        scores[at[row[e]]] = np.exp(path[e])
        at[row[e]] += 1
    return first, labels, scores


@njit(nogil=True, cache=True)
def by_word(start, stop, words, weights, place, child, weight):
    """Weights of outputs, ``words[start[j]:stop[j]]`` of output j, turned to lie word by word.

    ``place`` (all words,) is scratch of -1, and left so: the cost is that of the weights, not of
    the vocabulary. ``child`` and ``weight``, as long as ``words``, receive outputs and weights.
    Returns (words used, sorted; entries of each).
    """
    used = np.empty(words.shape[0], np.int32)
    count = 0
    for k in range(words.shape[0]):
        if place[words[k]] < 0:
            place[words[k]] = 0
            used[count] = words[k]
            count += 1
    used = np.sort(used[:count])
    for s in range(count):
        place[used[s]] = s
    length = np.zeros(count, np.int32)
    for k in range(words.shape[0]):
        length[place[words[k]]] += 1
    at = np.cumsum(length) - length
    for j in range(start.shape[0]):
        for k in range(start[j], stop[j]):
            slot = place[words[k]]
            child[at[slot]] = j
            weight[at[slot]] = weights[k]
            at[slot] += 1
    for s in range(count):
        place[used[s]] = -1
    return used, length


@njit(nogil=True, cache=True)
def merge(first, labels, scores, total, touched, n_trees, begin, top, top_scores):
    """Add one tree's answer to the running sums, or, at the last tree, rank the average.

    Called once per row batch with the answers of all trees behind one another: ``first`` is
    (n_trees, n + 1) into ``labels`` and ``scores``. ``total`` (L,) is scratch of zeros and
    ``touched`` (L,) scratch of False.
    """
    n = first.shape[1] - 1
    for r in range(n):
        size = 0
        for t in range(n_trees):
            for e in range(first[t, r], first[t, r + 1]):
                total[labels[e]] += scores[e]
        for t in range(n_trees):
            for e in range(first[t, r], first[t, r + 1]):
                label = labels[e]
                if not touched[label]:
                    touched[label] = True
                    mean = np.float32(total[label] / n_trees)
                    size = push(top[begin + r], top_scores[begin + r], size, label, mean)
        for t in range(n_trees):
            for e in range(first[t, r], first[t, r + 1]):
                total[labels[e]] = 0.0
                touched[labels[e]] = False
        finish(top[begin + r], top_scores[begin + r], size)
