"""Many L2-regularised logistic problems on the same rows: truncated Newton, LANES labels at a time.

For every label: minimise 1/2 |(w, b)|^2 + sum_i C_i (log(1 + exp(s_i)) - t_i s_i) with the scores
s_i = w.x_i + b and targets t_i: 0, or 1 for a positive, which is the usual loss. A larger target q
makes it q l(1, s) - (q - 1) l(0, s), the unbiased estimate for a positive that is recorded with
probability 1/q; it is as convex, for its curvature is the same.

Every negative keeps some weight, so there is no small active set as for the hinge. Instead LANES
labels walk in step: their margins, gradients and Hessian products share each read of the rows. The
Newton system is solved by conjugate gradients with a diagonal preconditioner, the step by a search
on the slope. A lane that has converged stays as it is; no lane depends on its neighbours.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from coattail.kernels.lanes import LANES, lanes
from coattail.kernels.solvers.problems import nothing_solved, with_weights

CG_STEPS = 30
CG_SHARE = np.float32(0.1)  # residual at which a Newton system is solved well enough
LINE_STEPS = 12


class Targets(NamedTuple):
    """Which rows are positive for LANES labels, and what rows weigh."""

    bits: np.ndarray  # uint32 (n,), bit j: the row is positive for lane j
    c_pos: np.ndarray  # float32 (LANES,), 0 in a lane without a label
    c_neg: np.ndarray  # float32 (LANES,)
    target: np.ndarray  # float32 (LANES,), of the positive rows


@njit(nogil=True, cache=True, fastmath=True)
def sigmoid(margins, bits, out):
    """out = 1 / (1 + exp(-margins)) for LANES floats; ``bits`` is int32 scratch.

    exp by splitting off powers of two and a polynomial: it vectorises, the library's does not.
    """
    powers = bits.view(np.float32)
    for j in range(LANES):
        t = min(max(-margins[j], np.float32(-87.0)), np.float32(87.0)) * np.float32(1.44269504)
        whole = np.floor(t + np.float32(0.5))
        r = (t - whole) * np.float32(0.693147181)
        p = np.float32(1.0) + r * (
            np.float32(1.0)
            + r
            * (
                np.float32(0.5)
                + r
                * (
                    np.float32(1 / 6)
                    + r * (np.float32(1 / 24) + r * (np.float32(1 / 120) + r * np.float32(1 / 720)))
                )
            )
        )
        bits[j] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        out[j] = p
    for j in range(LANES):
        out[j] = np.float32(1.0) / (np.float32(1.0) + out[j] * powers[j])


@njit(nogil=True, cache=True)
def _margins(rows, W, bias, out):
    """out (n, LANES) = X W + bias."""
    indptr, indices, values, _ = rows
    for i in range(out.shape[0]):
        lanes(indices, values, indptr[i], indptr[i + 1], W, bias, out[i])


@njit(nogil=True, cache=True, fastmath=True)
def _scatter(rows, coefficients, square, G, G_bias):
    """G += X^T coefficients, or (X * X)^T coefficients; the bias is a word all rows have."""
    indptr, indices, values, _ = rows
    for i in range(coefficients.shape[0]):
        c = coefficients[i]
        for j in range(LANES):
            G_bias[j] += c[j]
        for p in range(indptr[i], indptr[i + 1]):
            x = values[p]
            if square:
                x *= x
            g = G[indices[p]]
            for j in range(LANES):
                g[j] += x * c[j]


@njit(nogil=True, cache=True, fastmath=True)
def _products(A, A_bias, B, B_bias):
    """Inner product of every lane, float64 (LANES,)."""
    total = np.zeros(LANES, np.float64)
    part = np.empty(LANES, np.float32)
    for start in range(0, A.shape[0], 256):  # float32 sums only over short stretches
        part[:] = 0
        for f in range(start, min(start + 256, A.shape[0])):
            for j in range(LANES):
                part[j] += A[f, j] * B[f, j]
        for j in range(LANES):
            total[j] += part[j]
    for j in range(LANES):
        total[j] += A_bias[j] * B_bias[j]
    return total


@njit(nogil=True, cache=True, fastmath=True)
def _add(A, A_bias, B, B_bias, scale):
    """A += scale * B, lane by lane."""
    for f in range(A.shape[0]):
        for j in range(LANES):
            A[f, j] += scale[j] * B[f, j]
    for j in range(LANES):
        A_bias[j] += scale[j] * B_bias[j]


@njit(nogil=True, cache=True)
def _gradient(rows, targets, margins, W, bias, slope, curve, G, G_bias):
    """Gradient into G; per row, slope C (sigma - t) and curve C sigma (1 - sigma)."""
    bits_of, c_pos, c_neg, target = targets
    sigma, bits = np.empty(LANES, np.float32), np.empty(LANES, np.int32)
    for i in range(margins.shape[0]):
        sigmoid(margins[i], bits, sigma)
        for j in range(LANES):
            positive = (bits_of[i] >> np.uint32(j)) & np.uint32(1)
            c = c_pos[j] if positive else c_neg[j]
            slope[i, j] = c * (sigma[j] - (target[j] if positive else np.float32(0.0)))
            curve[i, j] = c * sigma[j] * (np.float32(1.0) - sigma[j])
    G[:] = W
    G_bias[:] = bias
    _scatter(rows, slope, False, G, G_bias)


@njit(nogil=True, cache=True)
def _newton(rows, curve, G, G_bias, going, P, P_bias, work):
    """Direction P with (I + X^T D X) P = -G, to a tenth of its residual."""
    R, Z, V, M, H = work[0], work[1], work[2], work[3], work[4]
    n, d = curve.shape[0], G.shape[0]
    biases = np.zeros((5, LANES), np.float32)
    R_b, Z_b, V_b, M_b, H_b = biases[0], biases[1], biases[2], biases[3], biases[4]
    M[:] = 1
    M_b[:] = 1
    _scatter(rows, curve, True, M, M_b)
    P[:] = 0
    P_bias[:] = 0
    R[:] = -G
    R_b[:] = -G_bias
    Z[:] = R / M
    Z_b[:] = R_b / M_b
    V[:] = Z
    V_b[:] = Z_b
    rho = _products(R, R_b, Z, Z_b)
    goal = rho * CG_SHARE**2
    active = going & (rho > 0)
    products = np.empty((n, LANES), np.float32)
    step = np.zeros(LANES, np.float32)
    for _ in range(CG_STEPS):
        if not active.any():
            break
        _margins(rows, V, V_b, products)
        for i in range(n):
            for j in range(LANES):
                products[i, j] *= curve[i, j]
        H[:] = V
        H_b[:] = V_b
        _scatter(rows, products, False, H, H_b)
        curvature = _products(V, V_b, H, H_b)
        for j in range(LANES):
            step[j] = rho[j] / curvature[j] if active[j] and curvature[j] > 0 else 0.0
        _add(P, P_bias, V, V_b, step)
        _add(R, R_b, H, H_b, -step)
        for f in range(d):
            for j in range(LANES):
                Z[f, j] = R[f, j] / M[f, j]
        Z_b[:] = R_b / M_b
        new = _products(R, R_b, Z, Z_b)
        for j in range(LANES):
            step[j] = new[j] / rho[j] if active[j] else 0.0
            rho[j] = new[j]
            active[j] = active[j] and new[j] > goal[j]
        for f in range(d):
            for j in range(LANES):
                V[f, j] = Z[f, j] + step[j] * V[f, j]
        V_b[:] = Z_b + step * V_b


@njit(nogil=True, cache=True)
def _step_lengths(margins, change, targets, curve_w, slope_w, slope_0, going):
    """Step of every lane: 1, or less where the slope along the direction has turned upwards.

    The slope at t is slope_w + t curve_w plus the loss's part; the function is convex, so a slope
    that is not positive, or small, means the minimum along the direction is not far behind.
    """
    bits_of, c_pos, c_neg, target = targets
    step = np.where(going, 1.0, 0.0).astype(np.float32)
    searching = going.copy()
    sigma, bits = np.empty(LANES, np.float32), np.empty(LANES, np.int32)
    at = np.empty(LANES, np.float32)
    for _ in range(LINE_STEPS):
        total = slope_w + step * curve_w
        for i in range(margins.shape[0]):
            for j in range(LANES):
                at[j] = margins[i, j] + step[j] * change[i, j]
            sigmoid(at, bits, sigma)
            for j in range(LANES):
                positive = (bits_of[i] >> np.uint32(j)) & np.uint32(1)
                c = c_pos[j] if positive else c_neg[j]
                goal = target[j] if positive else np.float32(0.0)
                total[j] += c * (sigma[j] - goal) * change[i, j]
        for j in range(LANES):
            if searching[j]:
                if total[j] <= 0.1 * abs(slope_0[j]):
                    searching[j] = False
                else:  # where the straight line between the two slopes meets zero
                    share = abs(slope_0[j]) / (abs(slope_0[j]) + total[j])
                    step[j] *= min(max(share, 0.1), 0.9)
        if not searching.any():
            break
    return step


@njit(nogil=True, cache=True)
def _train_block(rows, targets, n_pos, eps, max_steps, W, bias):
    """Train LANES labels; W (words, LANES) and bias hold the answer.

    Returns steps per lane, and which lanes would have needed more.
    """
    n, d = rows.squares.shape[0], W.shape[0]
    work = np.empty((7, d, LANES), np.float32)
    G, P = work[5], work[6]
    margins, change = np.zeros((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    slope, curve = np.empty((n, LANES), np.float32), np.empty((n, LANES), np.float32)
    G_bias, P_bias = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    steps = np.zeros(LANES, np.int64)
    W[:] = 0
    bias[:] = 0
    _gradient(rows, targets, margins, W, bias, slope, curve, G, G_bias)
    norm = np.sqrt(_products(G, G_bias, G, G_bias))
    goal = np.empty(LANES)
    for j in range(LANES):
        goal[j] = eps * max(min(n_pos[j], n - n_pos[j]), 1) / n * norm[j]
    going = (targets.c_pos > 0) & (norm > goal)
    for _ in range(max_steps):
        if not going.any():
            break
        _newton(rows, curve, G, G_bias, going, P, P_bias, work)
        _margins(rows, P, P_bias, change)
        slope_0 = _products(G, G_bias, P, P_bias)
        slope_w, curve_w = _products(W, bias, P, P_bias), _products(P, P_bias, P, P_bias)
        step = _step_lengths(margins, change, targets, curve_w, slope_w, slope_0, going)
        _add(W, bias, P, P_bias, step)
        _margins(rows, W, bias, margins)  # afresh: no drift
        _gradient(rows, targets, margins, W, bias, slope, curve, G, G_bias)
        norm = np.sqrt(_products(G, G_bias, G, G_bias))
        for j in range(LANES):
            if going[j]:
                steps[j] += 1
                going[j] = norm[j] > goal[j]
    return steps, going


@njit(nogil=True, cache=True)
def train(rows, labels, eps, max_steps, prune, W):
    """Train ``labels`` on ``rows``; returns `problems.Answer`.

    A label is done when its gradient is no more than ``eps`` times what it was at zero. W (words,
    LANES) is float32 scratch.
    """
    n, g = rows.squares.shape[0], labels.keys.shape[0]
    solved, lane_bias = nothing_solved(g), np.zeros(LANES, np.float32)
    for block in range(0, g, LANES):
        used = min(LANES, g - block)
        targets = np.zeros(n, np.uint32)
        c_pos, c_neg = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
        target = np.ones(LANES, np.float32)
        n_pos = np.zeros(LANES, np.int64)
        for lane in range(used):
            j = block + lane
            c_pos[lane], c_neg[lane] = labels.c_pos[j], labels.c_neg[j]
            target[lane] = labels.target[j]
            own = labels.positives[labels.first[j] : labels.first[j + 1]]
            n_pos[lane] = own.shape[0]
            for i in own:
                targets[i] |= np.uint32(1) << np.uint32(lane)
        wanted = Targets(targets, c_pos, c_neg, target)
        steps, going = _train_block(rows, wanted, n_pos, eps, max_steps, W, lane_bias)
        for lane in range(used):
            stats = solved.stats[block + lane]
            stats[0], stats[1], stats[2], stats[4] = steps[lane], steps[lane] * n, n, going[lane]
            solved = with_weights(solved, block + lane, W[:, lane], lane_bias[lane], prune)
    return solved
