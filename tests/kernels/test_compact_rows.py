"""Rows that are copied, renumbered and set apart, and the scratch this is done in."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.arrays import parts
from coattail.kernels import compact_rows
from coattail.kernels.runtime.scratch import kept, lasting, remember, scratch, whole
from tests.kernels.test_kernels import random_csr


def test_compacted_rows_are_the_same_rows():
    X = random_csr(30, 200, 0.05, 5)
    some = np.array([4, 15, 29, 4], np.int32)
    indptr, place = np.empty(5, np.int64), np.full(200, -1, np.int32)
    indices, values = np.empty(200, np.int32), np.empty(200, np.float32)
    words = np.empty(200, np.int32)
    found = compact_rows.compact(*parts(X), some, place, indptr, indices, values, words)
    assert np.all(place == -1)
    small = sp.csr_matrix((values[: indptr[-1]], indices[: indptr[-1]], indptr), shape=(4, found))
    assert np.array_equal(small.toarray(), X[some].toarray()[:, words[:found]])
    assert found == len(np.unique(X[some].indices))


def apart(X, some):
    """Rows set apart, as (csr over new words, middle, own, words, order, n_shared)."""
    n, nnz = len(some), int(np.diff(X.indptr)[some].sum())
    table = np.zeros((X.shape[1] // 64 + 1, 4), np.uint64)
    indptr, middle, own = np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.float32)
    indices, values = np.full(nnz, -1, np.int32), np.full(nnz, np.nan, np.float32)
    words, order = np.full(X.shape[1], -1, np.int32), np.full(X.shape[1], -1, np.int32)
    d, n_shared = compact_rows.set_apart(
        *parts(X), some, table, indptr, middle, indices, values, own, words, order
    )
    assert not table.any()  # left as it was found
    assert np.all(words[d:] == -1)
    small = sp.csr_matrix((values, indices, indptr), shape=(n, d))
    return small, middle, own, words[:d], order[:d], n_shared


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(1, 200))
def test_words_of_one_row_are_set_apart_from_shared_ones(seed, n, d):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, rng.random(), "csr", np.float32, random_state=rng)
    some = rng.permutation(n)[: rng.integers(n + 1)].astype(np.int32)
    small, middle, own, words, order, n_shared = apart(X, some)
    times = np.bincount(X[some].indices, minlength=d)
    assert words[order].tolist() == np.flatnonzero(times).tolist()
    assert np.array_equal(small.toarray(), X[some].toarray()[:, words])
    if n_shared < len(words):
        assert np.all(times[words[:n_shared]] > 1)
        assert np.all(times[words[n_shared:]] == 1)
    else:  # hardly any would be apart
        assert 8 * np.count_nonzero(times == 1) < max(len(words), 1)
    assert np.all(np.diff(words[:n_shared]) > 0)
    assert np.all(np.diff(words[n_shared:]) > 0)
    for r in range(len(some)):
        begin, end = small.indptr[r], small.indptr[r + 1]
        assert np.all(small.indices[begin : middle[r]] < n_shared)
        assert np.all(small.indices[middle[r] : end] >= n_shared)
        squares = small.data[middle[r] : end].astype(float) ** 2
        assert own[r] == pytest.approx(squares.sum(), rel=1e-5)


def test_words_are_set_apart_at_the_borders():
    # Words 0, 63, 64 and 127 are the first and last of their 64; row 1 is empty, row 3 not asked.
    X = np.zeros((5, 128), np.float32)
    X[0, [0, 63, 64, 127]] = 1, 2, 3, 4
    X[2, [0, 127]] = 5, 6
    X[3, [63, 64]] = 7, 8
    X[4, [0, 1]] = 9, 10
    small, middle, own, words, order, n_shared = apart(
        sp.csr_matrix(X), np.array([0, 1, 2, 4], np.int32)
    )
    assert n_shared == 2
    assert words.tolist() == [0, 127, 1, 63, 64]
    assert order.tolist() == [0, 2, 3, 4, 1]
    assert (middle - small.indptr[:-1]).tolist() == [2, 0, 2, 1]
    assert own.tolist() == [4 + 9, 0, 0, 100]
    for nothing in ([], [1]):
        *_, own, words, _, n_shared = apart(sp.csr_matrix(X), np.array(nothing, np.int32))
        assert (len(words), n_shared, own.sum()) == (0, 0, 0)


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
    with kept("test", 3, np.int32, -1) as few:
        assert few.tolist() == [-1] * 3
    with kept("test", 5000, np.int32, -1) as many:
        assert many.tolist() == [-1] * 5000
    with kept("test", 3, np.int32, -1) as again, kept("other test", 9, np.float32) as other:
        assert np.shares_memory(again, many)
        assert not other.any()


def test_what_a_failing_block_leaves_is_not_lent_again():
    def fails():
        with kept("failing test", 4, np.int32, -1) as array:
            array[2] = 7
            raise MemoryError

    with pytest.raises(MemoryError):
        fails()
    with kept("failing test", 4, np.int32, -1) as array:
        assert array.tolist() == [-1] * 4


def test_a_store_that_grew_is_remembered_and_room_that_stays_is_nobody_else_s():
    larger = np.empty(99, np.int32)
    assert len(whole("grown test", 10, np.int32)) == 10
    remember("grown test", larger)
    assert whole("grown test", 10, np.int32) is larger
    one, other = lasting("test", 10, np.int32), lasting("test", 20, np.int32)
    assert not np.shares_memory(one, other)
    assert one.base is other.base
