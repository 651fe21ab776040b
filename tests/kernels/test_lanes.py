"""Primitives for many labels side by side, beside one lane after the other."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from coattail.arrays import parts
from coattail.kernels import lanes, sparse
from coattail.kernels.lanes import LANES
from tests.kernels.test_kernels import random_csr

KINDS = (np.uint8, np.uint32)  # of signs: 8 and 32 lanes


@njit
def call_lanes(indptr, indices, values, W, bias, out):
    for i in range(out.shape[0]):
        lanes.lanes(indices, values, indptr[i], indptr[i + 1], W, bias, out[i])


@njit
def call_fma(indptr, indices, values, W, bias, out):
    for i in range(out.shape[0]):
        out[i] = bias
        for p in range(indptr[i], indptr[i + 1]):
            for j in range(out.shape[1]):
                out[i, j] = sparse.fma(values[p], W[indices[p], j], out[i, j])


@njit
def call_bits(values, thresholds, out):
    mask = lanes.above(values, thresholds)
    count = 0
    while mask != 0:
        out[count] = sparse.lowest_bit(mask)
        mask &= mask - np.uint64(1)
        count += 1
    return count


@njit
def call_masks(values, first, level, scale, least, signs):
    far = lanes.large(values, first, scale, least, signs)
    return lanes.above(values, level), far, sparse.count_bits(far)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_one_level_and_of_sizes(kind):
    width = 8 * np.dtype(kind).itemsize
    values = np.random.default_rng(3).normal(size=3 * LANES).astype(np.float32)
    values[:3], values[LANES : LANES + 3] = (0.5, -0.5, np.nan), (0.5, -0.5, np.nan)
    level = np.float32(0.5)
    for first, scale in ((0, 1), (LANES, 1), (5, 1), (LANES, -2), (5, 0)):
        above, far, count = call_masks(values, first, level, np.float32(scale), level, kind(0))
        own = scale * values[first : first + width]
        assert [j for j in range(LANES) if int(above) >> j & 1] == [
            j for j in range(LANES) if values[j] > level
        ]
        expected = [j for j in range(width) if abs(own[j]) >= level]
        assert [j for j in range(LANES) if int(far) >> j & 1] == expected
        assert count == len(expected)


@njit
def call_visit(signs, margins, square, own, half_pos, half_neg, small, moving, alpha, first,
               extremes, change, bias):  # fmt: skip
    return lanes.visit_lanes(
        signs, margins, square, own, half_pos, half_neg, small, moving, alpha, first, extremes,
        change, bias,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_visit_of_all_lanes_equals_one_lane_after_the_other(seed, kind):
    rng, LANES = np.random.default_rng(seed), 8 * np.dtype(kind).itemsize
    number = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    margins, bias = number(LANES), number(LANES)
    half_pos, half_neg = abs(number(LANES)), abs(number(LANES))
    dual = np.maximum(number(2 * LANES), 0)
    moving = (rng.random(LANES) < 0.8).astype(np.float32)
    if seed == 3:
        moving[:] = 0  # nobody may move
    extremes = np.stack([number(LANES) - 1, number(LANES) + 1])
    signs, square, small = kind(rng.integers(2**LANES)), np.float32(1.7), np.float32(0.3)
    own = np.float32(0.4 * (seed > 0))
    sign_of = np.array([1 if int(signs) >> j & 1 else -1 for j in range(LANES)], np.float32)
    alpha = dual * np.tile(sign_of, 2)
    new = [array.copy() for array in (alpha, extremes, bias)]
    change = np.empty(LANES, np.float32)
    moved = call_visit(
        signs, margins, square, own, half_pos, half_neg, small, moving, new[0], LANES, new[1],
        change, new[2],
    )  # fmt: skip
    for j in range(LANES):
        sign, old = sign_of[j], dual[LANES + j]
        half = half_pos[j] if sign > 0 else half_neg[j]
        margin = margins[j] + own * sign * old  # own words weigh sign * old times their value
        gradient = sign * margin - 1 + old * half
        projected = gradient if old > 0 else min(gradient, 0)
        step = max(old - gradient / (square + half), 0) - old
        step = step if moving[j] and abs(projected) > small else 0
        assert new[0][LANES + j] == pytest.approx(sign * (old + step), abs=1e-5)
        assert change[j] == pytest.approx(sign * step, abs=1e-5)
        assert new[2][j] == pytest.approx(bias[j] + sign * step, abs=1e-5)
        assert new[1][0, j] == pytest.approx(max(extremes[0, j], projected), abs=1e-5)
        assert new[1][1, j] == pytest.approx(min(extremes[1, j], projected), abs=1e-5)
    assert np.array_equal(new[0][:LANES], alpha[:LANES])  # another row's
    assert moved is bool(change.any())
    assert moved is (seed != 3)


@njit
def call_sums(indptr, indices, values, W, bias, out, signs):
    for i in range(out.shape[0]):
        lanes.sum_lanes(indices, values, indptr[i], indptr[i + 1], W, bias, out[i], signs)


@njit
def call_add(indptr, indices, values, change, W, signs):
    for i in range(change.shape[0]):
        lanes.add_lanes(indices, values, indptr[i], indptr[i + 1], change[i], W, signs)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_lanes_have_the_bits_of_all_lanes(kind):
    X, rng, n = random_csr(30, 40, 0.3, 2), np.random.default_rng(3), 8 * np.dtype(kind).itemsize
    W = rng.normal(size=(40, LANES)).astype(np.float32)
    bias = rng.normal(size=LANES).astype(np.float32)
    out, all_out = np.empty((30, n), np.float32), np.empty((30, LANES), np.float32)
    some = W[:, :n].flatten()
    call_sums(*parts(X), some, bias[:n], out, kind(0))
    call_lanes(*parts(X), W, bias, all_out)
    assert np.array_equal(out, all_out[:, :n])
    change = rng.normal(size=(30, n)).astype(np.float32)
    call_add(*parts(X), change, some, kind(0))
    np.testing.assert_allclose(some.reshape(40, n), W[:, :n] + X.T @ change, rtol=1e-4, atol=1e-5)


def test_lanes_equal_dense_algebra_and_a_loop_of_fma_to_the_bit():
    X = random_csr(30, 40, 0.3, 2)
    rng = np.random.default_rng(3)
    W = rng.normal(size=(40, LANES)).astype(np.float32)
    bias = rng.normal(size=LANES).astype(np.float32)
    fast, slow = (np.empty((30, LANES), np.float32) for _ in range(2))
    call_lanes(*parts(X), W, bias, fast)
    call_fma(*parts(X), W, bias, slow)
    assert np.array_equal(fast, slow)
    np.testing.assert_allclose(fast, X @ W + bias, rtol=1e-4, atol=1e-5)
    assert np.array_equal(fast[15], bias)  # the empty row


def test_mask_lists_lanes_above_their_threshold():
    rng = np.random.default_rng(4)
    values = rng.normal(size=LANES).astype(np.float32)
    thresholds = rng.normal(size=LANES).astype(np.float32)
    thresholds[3], thresholds[31] = values[3], -np.inf  # equal is not above
    out = np.empty(LANES, np.int64)
    count = call_bits(values, thresholds, out)
    assert out[:count].tolist() == np.flatnonzero(values > thresholds).tolist()


@pytest.mark.parametrize("half", [True, False])
def test_narrow_margins_are_near_the_exact_ones(half):
    if half and not lanes._has_half():
        pytest.skip("this processor does not convert half precision")
    narrow, column = lanes._narrow_lanes(half), lanes._narrow_column(half)
    largest = np.float32(1024.0 if half else 32767.0)

    @njit
    def margins(indptr, indices, values, w, scale, Q, bias, out):
        for first in range(0, Q.shape[0], 32):
            for lane in range(32):
                column(w[lane], first, scale[lane], Q, lane)
        narrow(indices, values, indptr[0], indptr[1], Q, bias * scale, out)

    rng = np.random.default_rng(3)
    X = random_csr(1, 64, 0.5, 4)
    sizes = 10.0 ** rng.integers(-6, 6, (32, 1))  # labels of very different size
    w = (rng.normal(size=(32, 64)) * sizes).astype(np.float32)
    scale = largest / np.abs(w).max(axis=1)
    Q, bias, out = np.zeros((64, 32), np.int16), w[:, 0].copy(), np.zeros(32, np.float32)
    margins(*parts(X), w, scale.astype(np.float32), Q, bias, out)
    exact = (X @ w.T.astype(np.float64)).ravel() + bias
    assert np.all(np.abs(out / scale - exact) < 2e-3 * np.abs(w).max(axis=1))
