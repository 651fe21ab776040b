"""Rows that are copied, renumbered and set apart, and the scratch this is done in."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.arrays import parts
from coattail.kernels import rows
from coattail.kernels.scratch import kept, lasting, remember, scratch, whole
from tests.test_kernels import random_csr


def test_compacted_rows_are_the_same_rows():
    X = random_csr(30, 200, 0.05, 5)
    some = np.array([4, 15, 29, 4], np.int32)
    indptr, place = np.empty(5, np.int64), np.full(200, -1, np.int32)
    indices, values = np.empty(200, np.int32), np.empty(200, np.float32)
    words = np.empty(200, np.int32)
    found = rows.compact(*parts(X), some, place, indptr, indices, values, words)
    assert np.all(place == -1)
    small = sp.csr_matrix((values[: indptr[-1]], indices[: indptr[-1]], indptr), shape=(4, found))
    assert np.array_equal(small.toarray(), X[some].toarray()[:, words[:found]])
    assert found == len(np.unique(X[some].indices))


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(1, 40))
def test_words_of_one_row_are_set_apart_from_shared_ones(seed, n, d):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, rng.random(), "csr", np.float32, random_state=rng)
    indptr, indices, values = (array.copy() for array in parts(X))
    used, indices[:] = np.unique(indices, return_inverse=True)
    words, middle, own = used.astype(np.int32), np.empty(n, np.int64), np.empty(n, np.float32)
    n_shared = rows.set_apart(indptr, indices, values, words, middle, own)
    assert sorted(words) == used.tolist()
    again = sp.csr_matrix((values, indices, indptr), shape=(n, len(words))).toarray()
    assert np.array_equal(again, X.toarray()[:, words])
    times = np.bincount(X.indices, minlength=d)[words]
    if n_shared < len(words):
        assert np.all(times[:n_shared] > 1)
        assert np.all(times[n_shared:] == 1)
        # Own words are numbered row by row.
        assert [f for r in range(n) for f in indices[middle[r] : indptr[r + 1]]] == list(
            range(n_shared, len(words))
        )
    else:  # hardly any would be apart
        assert 8 * np.count_nonzero(times == 1) < len(times) or len(times) == 0
    for r in range(n):
        assert np.all(indices[indptr[r] : middle[r]] < n_shared)
        squares = values[middle[r] : indptr[r + 1]].astype(float) ** 2
        assert own[r] == pytest.approx(squares.sum(), rel=1e-5)


def test_rows_are_prepared_in_one_go():
    X = random_csr(30, 200, 0.05, 5)
    some, place = np.array([4, 15, 29, 7], np.int32), np.full(200, -1, np.int32)
    bits, groups = np.zeros(4, np.uint64), np.zeros(1, np.uint64)
    indptr, middle, own = np.empty(5, np.int64), np.empty(4, np.int64), np.empty(4, np.float32)
    indices, values = np.empty(200, np.int32), np.empty(200, np.float32)
    words, order = np.empty(200, np.int32), np.empty(200, np.int32)
    d, n_shared = rows.prepare(
        *parts(X), some, place, bits, groups, indptr, middle, indices, values, own, words, order
    )
    assert 0 < n_shared < d == len(np.unique(X[some].indices))
    small = sp.csr_matrix((values[: indptr[-1]], indices[: indptr[-1]], indptr), shape=(4, d))
    assert np.array_equal(small.toarray(), X[some].toarray()[:, words[:d]])
    assert np.array_equal(order[:d], np.argsort(words[:d]))
    assert np.all(place == -1)
    assert not bits.any()
    assert not groups.any()


@given(st.lists(st.integers(0, 9000), unique=True), st.integers(0, 2))
def test_numbers_are_put_in_order_without_sorting(numbers, repeats):
    numbers = np.array(numbers, np.int32)
    place, bits, groups = np.full(9001, -1, np.int32), np.zeros(141, "u8"), np.zeros(3, "u8")
    order = np.empty(len(numbers), np.int32)
    for _ in range(repeats + 1):
        rows.in_order(numbers, place, bits, groups, order)
        assert np.array_equal(order, np.argsort(numbers))
        assert np.all(place == -1)  # left as it was found
        assert not bits.any()
        assert not groups.any()


@pytest.mark.parametrize(("size", "dtype"), [(1, "f4"), (33, "i2"), (100_000, "f8")])
def test_scratch_is_used_again_and_begins_at_a_cache_line(size, dtype):
    first = scratch("test", size, dtype)
    assert first.ctypes.data % 64 == 0
    assert first.shape == (size,)
    assert first.dtype == dtype
    first[:] = 7
    assert np.shares_memory(scratch("test", 1, dtype), first)
    assert scratch("test", size, "u1").dtype == np.uint8


def test_what_is_kept_has_its_value_throughout_also_when_it_grows():
    assert kept("test", 3, np.int32, -1).tolist() == [-1] * 3
    assert kept("test", 5000, np.int32, -1).tolist() == [-1] * 5000
    assert not kept("other test", 9, np.float32).any()


def test_a_store_that_grew_is_remembered_and_room_that_stays_is_nobody_else_s():
    larger = np.empty(99, np.int32)
    assert len(whole("grown test", 10, np.int32)) == 10
    remember("grown test", larger)
    assert whole("grown test", 10, np.int32) is larger
    one, other = lasting("test", 10, np.int32), lasting("test", 20, np.int32)
    assert not np.shares_memory(one, other)
    assert one.base is other.base
