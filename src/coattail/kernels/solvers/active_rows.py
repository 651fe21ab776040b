"""One pass over the rows for LANES labels at a time: which rows violate the margin?

The pass only finds rows, so rough margins do. It reads weights of 16 bits, with a scale per label:
half the bytes, and an error of less than a thousandth in the margins.
"""

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, above, narrow_column, narrow_lanes
from coattail.kernels.sparse import grown, lowest_bit

PROBE = 16  # every so many rows tell how many violators a full pass would list


@njit(nogil=True, cache=True)
def narrow(V, scale, Q):
    """Weights V (LANES, words + padding) as columns of Q (words, LANES), times ``scale``.

    The number of words is a multiple of LANES.
    """
    for first in range(0, Q.shape[0], LANES):
        for lane in range(LANES):
            narrow_column(V[lane], first, scale[lane], Q, lane)


@njit(nogil=True, cache=True)
def violators(rows, begin, stride, Q, scale, bias, floor):
    """Rows begin, begin + stride, ... with a margin above ``floor`` (LANES,), lane by lane.

    Returns (first (LANES + 1,), rows, margins); a lane has ``first[lane]:first[lane + 1]``.
    """
    indptr, indices, values = rows.indptr, rows.indices, rows.values
    n = indptr.shape[0] - 1
    thresholds, offset = floor * scale, bias * scale
    out = np.empty(LANES, np.float32)
    lane = np.empty(4096, np.uint8)
    row = np.empty(4096, np.int32)
    margin = np.empty(4096, np.float32)
    counts = np.zeros(LANES + 1, np.int64)
    found = 0
    for i in range(begin, n, stride):
        narrow_lanes(indices, values, indptr[i], indptr[i + 1], Q, offset, out)
        mask = above(out, thresholds)
        if mask == 0:
            continue
        if found + LANES > row.shape[0]:
            lane = grown(lane, found + LANES)
            row = grown(row, found + LANES)
            margin = grown(margin, found + LANES)
        while mask != 0:
            j = lowest_bit(mask)
            mask &= mask - np.uint64(1)
            lane[found] = j
            row[found] = i
            margin[found] = out[j] / scale[j]
            counts[j + 1] += 1
            found += 1
    return _by_lane(np.cumsum(counts), lane[:found], row, margin)


@njit(nogil=True, cache=True, inline="always")
def _by_lane(first, lane, row, margin):
    """Sort what was found by lane; rows keep their order."""
    at = first.copy()
    rows, margins = np.empty(lane.shape[0], np.int32), np.empty(lane.shape[0], np.float32)
    for k in range(lane.shape[0]):
        j = lane[k]
        rows[at[j]] = row[k]
        margins[at[j]] = margin[k]
        at[j] += 1
    return first, rows, margins


@njit(nogil=True, cache=True)
def raised(first, margins, room, floor):
    """Floors that about twice ``room`` (LANES,) rows exceed, estimated from a probe of the rows."""
    higher = floor.copy()
    for lane in range(LANES):
        own = margins[first[lane] : first[lane + 1]]
        wanted = 2 * room[lane] // PROBE + 1
        if own.shape[0] > wanted:
            higher[lane] = np.partition(own, own.shape[0] - wanted)[own.shape[0] - wanted]
    return higher


@njit(nogil=True, cache=True)
def outside(rows, margins, members, marked, c_neg):
    """Violators that are not members: their rows, margins and loss. ``marked`` is scratch."""
    for i in members:
        marked[i] = True
    kept = np.empty(rows.shape[0], np.int32)
    kept_margins = np.empty(rows.shape[0], np.float32)
    count = 0
    loss = 0.0
    for k in range(rows.shape[0]):
        if not marked[rows[k]]:
            kept[count] = rows[k]
            kept_margins[count] = margins[k]
            count += 1
            loss += c_neg * (1.0 + margins[k]) ** 2
    for i in members:
        marked[i] = False
    return kept[:count], kept_margins[:count], loss


@njit(nogil=True, cache=True)
def enlarged(members, alpha, rows, margins, room):
    """The set and the violators with the largest margins, about ``room`` of them at most."""
    cut = np.float32(-np.inf)
    if rows.shape[0] > room:
        cut = np.partition(margins, rows.shape[0] - room)[rows.shape[0] - room]
    m = members.shape[0]
    new_members = np.empty(m + rows.shape[0], np.int32)
    new_alpha = np.zeros(m + rows.shape[0], np.float32)
    new_members[:m] = members
    new_alpha[:m] = alpha
    for k in range(rows.shape[0]):
        if margins[k] >= cut:
            new_members[m] = rows[k]
            m += 1
    return new_members[:m], new_alpha[:m]
