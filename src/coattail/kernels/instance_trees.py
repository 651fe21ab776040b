"""Instance trees: split texts so that each side has labels that rank well for all of its texts."""

import numpy as np
from numba import njit

from coattail.kernels.best_labels import finish, push
from coattail.kernels.compact_rows import compact
from coattail.kernels.sparse import mix, step

ROUNDS = 50  # alternations between rankings and sides, at most
SWEEPS = 8  # coordinate passes per Newton step, at most


@njit(nogil=True, cache=True)
def _columns(indptr, indices, values, n_words):
    """CSR to CSC with one more column of ones, the bias."""
    n = indptr.shape[0] - 1
    first = np.zeros(n_words + 2, np.int64)
    for p in range(indptr[n]):
        first[indices[p] + 1] += 1
    first[n_words + 1] = n
    for f in range(n_words + 1):
        first[f + 1] += first[f]
    at = first[:n_words].copy()
    rows, data = np.empty(indptr[n] + n, np.int32), np.ones(indptr[n] + n, np.float32)
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            rows[at[f]], data[at[f]] = i, values[p]
            at[f] += 1
        rows[indptr[n] + i] = i
    return first, rows, data


@njit(nogil=True, cache=True)
def _sweep(first, rows, data, active, gradient, hessian, curve, w, change, moved):
    """One pass of coordinate descent on the quadratic model; returns the violation it met."""
    violation = 0.0
    for a in range(active.shape[0]):
        f = active[a]
        slope = gradient[f]
        for p in range(first[f], first[f + 1]):
            slope += data[p] * curve[rows[p]] * moved[rows[p]]
        at = w[f] + change[f]
        if at == 0.0:
            violation += max(0.0, abs(slope) - 1.0)
        else:
            violation += abs(slope + (1.0 if at > 0 else -1.0))
        if slope + 1.0 <= hessian[f] * at:
            z = -(slope + 1.0) / hessian[f]
        elif slope - 1.0 >= hessian[f] * at:
            z = -(slope - 1.0) / hessian[f]
        else:
            z = -at
        if abs(z) > 1e-12:
            z = min(max(z, -10.0), 10.0)
            change[f] += z
            for p in range(first[f], first[f + 1]):
                moved[rows[p]] += z * data[p]
    return violation


@njit(nogil=True, cache=True)
def _loss(side, c, margins, moved, length):
    total = 0.0
    for i in range(side.shape[0]):
        s = side[i] * (margins[i] + length * moved[i])
        total += c[i] * (np.log1p(np.exp(-s)) if s > 0 else np.log1p(np.exp(s)) - s)
    return total


@njit(nogil=True, cache=True)
def separate(first, rows, data, side, c, max_newton):
    """w minimising |w|_1 + sum_i c_i log(1 + exp(-side_i w.x_i)); columns as from _columns.

    Newton steps on a quadratic model solved by coordinate descent, with a line search.
    """
    n, d = side.shape[0], first.shape[0] - 1
    w, change = np.zeros(d), np.zeros(d)
    margins, moved, curve, pull = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    gradient, hessian = np.zeros(d), np.zeros(d)
    start = 0.0
    for newton in range(max_newton):
        for i in range(n):
            wrong = 1.0 / (1.0 + np.exp(side[i] * margins[i]))
            pull[i] = -side[i] * c[i] * wrong
            curve[i] = c[i] * wrong * (1.0 - wrong)
        active = np.empty(d, np.int64)
        count, violation = 0, 0.0
        for f in range(d):
            g, h = 0.0, 1e-12
            for p in range(first[f], first[f + 1]):
                g += data[p] * pull[rows[p]]
                h += data[p] * data[p] * curve[rows[p]]
            gradient[f], hessian[f] = g, h
            if w[f] != 0.0 or abs(g) > 1.0:  # a word at zero that nothing pulls away stays there
                active[count] = f
                count += 1
                violation += abs(g + np.sign(w[f])) if w[f] != 0.0 else abs(g) - 1.0
        if newton == 0:
            start = violation
        if violation <= 0.01 * start:
            break
        change[:] = 0.0
        moved[:] = 0.0
        reached = 0.0
        for sweep in range(SWEEPS):
            met = _sweep(
                first, rows, data, active[:count], gradient, hessian, curve, w, change, moved
            )
            if sweep == 0:
                reached = met
            elif met <= 0.1 * reached:
                break
        model, before = 0.0, 0.0
        for f in range(d):
            model += gradient[f] * change[f] + abs(w[f] + change[f]) - abs(w[f])
            before += abs(w[f])
        old = _loss(side, c, margins, moved, 0.0) + before
        length = 1.0
        for _ in range(20):
            norm = 0.0
            for f in range(d):
                norm += abs(w[f] + length * change[f])
            if _loss(side, c, margins, moved, length) + norm - old <= 0.01 * length * model:
                break
            length *= 0.5
        for f in range(d):
            w[f] += length * change[f]
        for i in range(n):
            margins[i] += length * moved[i]
    return w, margins


@njit(nogil=True, cache=True)
def _discounts(mass):
    """1/log2(1 + rank) of labels ranked by mass; 0 for a label without any."""
    order = np.argsort(-mass, kind="mergesort")
    out = np.zeros(mass.shape[0])
    for rank in range(order.shape[0]):
        if mass[order[rank]] > 0:
            out[order[rank]] = 1.0 / np.log2(2.0 + rank)
    return out


@njit(nogil=True, cache=True)
def sides_by_ndcg(indptr, labels, gains, norm, n_labels, state):
    """Sides (+1, -1) of texts such that one ranking per side serves its texts well.

    ``gains`` are the label weights of each text, ``norm`` one over its ideal DCG. Returns the sides
    and the mean nDCG reached.
    """
    n = indptr.shape[0] - 1
    side = np.empty(n, np.float32)
    for i in range(n):
        state = step(state)
        side[i] = 1.0 if (state >> np.uint64(40)) & np.uint64(1) else -1.0
    value = -1.0
    for _ in range(ROUNDS):
        plus, minus = np.zeros(n_labels), np.zeros(n_labels)
        for i in range(n):
            for p in range(indptr[i], indptr[i + 1]):
                if side[i] > 0:
                    plus[labels[p]] += gains[p] * norm[i]
                else:
                    minus[labels[p]] += gains[p] * norm[i]
        plus, minus = _discounts(plus), _discounts(minus)
        new = 0.0
        for i in range(n):
            left, right = 0.0, 0.0
            for p in range(indptr[i], indptr[i + 1]):
                left += gains[p] * plus[labels[p]]
                right += gains[p] * minus[labels[p]]
            if left > right:
                side[i] = 1.0
            elif right > left:
                side[i] = -1.0  # equal: stays where it is
            new += max(left, right) * norm[i]
        new /= n
        if new - value < 1e-6:
            break
        value = new
    return side, value


@njit(nogil=True, cache=True)
def _some_rows(indptr, indices, values, rows, place, n_columns):
    """Rows with only the columns they have: (indptr, indices, values, old numbers)."""
    nnz = 0
    for i in rows:
        nnz += indptr[i + 1] - indptr[i]
    sub_indptr = np.empty(rows.shape[0] + 1, np.int64)
    sub_indices, sub_values = np.empty(nnz, np.int32), np.empty(nnz, np.float32)
    columns = np.empty(min(nnz, n_columns), np.int32)
    found = compact(
        indptr, indices, values, rows, place, sub_indptr, sub_indices, sub_values, columns
    )
    return sub_indptr, sub_indices, sub_values, columns[:found]


@njit(nogil=True, cache=True)
def _more(array, size, new):
    """Append ``new`` at ``size``; the array grows by doubling."""
    needed = size + new.shape[0]
    if needed > array.shape[0]:
        larger = np.empty(max(needed, 2 * array.shape[0]), array.dtype)
        larger[:size] = array[:size]
        array = larger
    array[size:needed] = new
    return array


@njit(nogil=True, cache=True)
def _leaf(indptr, labels, gains, rows, place, n_labels, keep):
    """Mean label vector of some texts, the ``keep`` largest entries, sorted by label."""
    _, sub_labels, sub_gains, names = _some_rows(indptr, labels, gains, rows, place, n_labels)
    mass = np.zeros(names.shape[0])
    for p in range(sub_labels.shape[0]):
        mass[sub_labels[p]] += sub_gains[p]
    top, scores = np.empty(keep, np.int32), np.empty(keep, np.float32)
    size = 0
    for j in range(names.shape[0]):
        size = push(top, scores, size, names[j], np.float32(mass[j] / rows.shape[0]))
    finish(top, scores, size)
    order = np.argsort(top[:size])
    return top[:size][order], scores[:size][order]


@njit(nogil=True, cache=True)
def grow(
    x_indptr, x_indices, x_values, n_words, y_indptr, y_labels, gains, norm, n_labels,
    leaf_size, leaf_labels, C, max_newton, key,
):  # fmt: skip
    """Grow one tree; returns its nodes as flat arrays.

    (right, split_first, split_words, split_weights, bias, leaf_first, leaf_label, leaf_score):
    the left child of an inner node is the next node, ``right`` is -1 for a leaf.
    """
    n = x_indptr.shape[0] - 1
    order = np.arange(n).astype(np.int32)
    word_place, label_place = np.full(n_words, -1, np.int32), np.full(n_labels, -1, np.int32)
    right, bias = np.empty(64, np.int32), np.empty(64, np.float32)
    split_first, leaf_first = np.zeros(64, np.int64), np.zeros(64, np.int64)
    words, weights = np.empty(256, np.int32), np.empty(256, np.float32)
    found, scores = np.empty(256, np.int32), np.empty(256, np.float32)
    n_split, n_found, node = 0, 0, 0
    # Texts begin..end of ``order`` and the node whose right child this is (-1: none).
    stack = [(0, n, -1)]
    while len(stack) > 0:
        begin, end, parent = stack.pop()
        if parent >= 0:
            right[parent] = node
        rows = order[begin:end]
        middle = begin
        own_words, own_weights = np.empty(0, np.int32), np.empty(0, np.float32)
        own_bias = np.float32(0.0)
        if end - begin > leaf_size:
            xp, xi, xv, names = _some_rows(x_indptr, x_indices, x_values, rows, word_place, n_words)
            yp, yl, yg, own = _some_rows(y_indptr, y_labels, gains, rows, label_place, n_labels)
            side, _ = sides_by_ndcg(yp, yl, yg, norm[rows], own.shape[0], mix(key, node))
            share = (side > 0).mean()
            if 0 < share < 1:
                c = np.where(side > 0, C / share, C / (1.0 - share))
                first, column_rows, data = _columns(xp, xi, xv, names.shape[0])
                w, margins = separate(first, column_rows, data, side, c, max_newton)
                goes_left = margins > 0
                left_rows, right_rows = rows[goes_left].copy(), rows[~goes_left].copy()
                if left_rows.shape[0] > 0 and right_rows.shape[0] > 0:
                    middle = begin + left_rows.shape[0]
                    order[begin:middle] = left_rows
                    order[middle:end] = right_rows
                    used = np.flatnonzero(w[:-1])
                    own_words, own_weights = names[used], w[:-1][used].astype(np.float32)
                    own_bias = np.float32(w[-1])
        right = _more(right, node, np.full(1, -1, np.int32))
        bias = _more(bias, node, np.full(1, own_bias, np.float32))
        words, weights = _more(words, n_split, own_words), _more(weights, n_split, own_weights)
        n_split += own_words.shape[0]
        if middle == begin:
            labels, label_scores = _leaf(
                y_indptr, y_labels, gains, rows, label_place, n_labels, leaf_labels
            )
            found, scores = _more(found, n_found, labels), _more(scores, n_found, label_scores)
            n_found += labels.shape[0]
        else:
            stack.append((middle, end, node))
            stack.append((begin, middle, -1))
        split_first = _more(split_first, node + 1, np.full(1, n_split, np.int64))
        leaf_first = _more(leaf_first, node + 1, np.full(1, n_found, np.int64))
        node += 1
    return (
        right[:node], split_first[: node + 1], words[:n_split], weights[:n_split], bias[:node],
        leaf_first[: node + 1], found[:n_found], scores[:n_found],
    )  # fmt: skip


@njit(nogil=True, cache=True)
def add_leaves(
    indptr, indices, values, begin, end,
    right, split_first, split_words, split_weights, bias, leaf_first, leaf_label, leaf_score,
    x, out_first, out_label, out_score,
):  # fmt: skip
    """Route rows begin..end down one tree; append their leaf's labels from out_first[r] on.

    ``x`` (words,) is scratch of zeros. ``out_first`` is advanced by what was written.
    """
    for i in range(begin, end):
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = values[p]
        node = 0
        while right[node] >= 0:
            margin = np.float64(bias[node])
            for s in range(split_first[node], split_first[node + 1]):
                margin += split_weights[s] * x[split_words[s]]
            node = node + 1 if margin > 0 else right[node]
        at = out_first[i - begin]
        for s in range(leaf_first[node], leaf_first[node + 1]):
            out_label[at], out_score[at] = leaf_label[s], leaf_score[s]
            at += 1
        out_first[i - begin] = at
        for p in range(indptr[i], indptr[i + 1]):
            x[indices[p]] = 0
