"""The XMC format against Python's float and scikit-learn, and every kind of broken file."""

from __future__ import annotations

import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.data.formats import xmc
from coattail.data.formats.xmc import read_xmc, write_xmc
from coattail.errors import DataError
from coattail.kernels import xmc_lines as kernel

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
few = settings(max_examples=50, deadline=None)


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content.encode()))
    return path


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def matrices(draw):
    n, d, n_labels = draw(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 5)))
    X = [draw(st.dictionaries(st.integers(0, d - 1), floats)) for _ in range(n)]
    Y = [draw(st.sets(st.integers(0, n_labels - 1))) for _ in range(n)]
    return d, n_labels, X, Y


def to_csr(rows: list[dict[int, float]], width: int) -> sp.csr_matrix:
    indptr = np.cumsum([0] + [len(row) for row in rows])
    indices = [i for row in rows for i in sorted(row)]
    data = np.array([row[i] for row in rows for i in sorted(row)], np.float32)
    return sp.csr_matrix((data, indices, indptr), shape=(len(rows), width))


def same(A: sp.csr_matrix, B: sp.csr_matrix) -> bool:
    """Equal structure and bits: -0 differs from 0, a stored zero is stored."""
    return (
        A.shape == B.shape
        and np.array_equal(A.indptr, B.indptr)
        and np.array_equal(A.indices, B.indices)
        and A.data.astype(np.float32).tobytes() == B.data.astype(np.float32).tobytes()
    )


@few
@given(matrices(), st.sampled_from(["a.txt", "a.txt.gz", "a.txt.xz"]))
def test_xmc_comes_back_bit_for_bit(tmp_path_factory, content, name):
    d, n_labels, x_rows, y_rows = content
    X, Y = to_csr(x_rows, d), to_csr([dict.fromkeys(row, 1.0) for row in y_rows], n_labels)
    path = tmp_path_factory.mktemp("xmc") / name
    write_xmc(path, X, Y)
    X2, Y2 = read_xmc(path)
    assert same(X, X2)
    assert same(Y, Y2)


def test_random_bits_of_float32_survive(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    X = sp.csr_matrix((values, np.arange(len(values)), [0, len(values)]), shape=(1, len(values)))
    write_xmc(tmp_path / "a.txt", X, sp.csr_matrix((1, 1), dtype=np.float32))
    again, _ = read_xmc(tmp_path / "a.txt")
    assert again.data.tobytes() == values.tobytes()


decimals = st.one_of(
    st.floats(-1e30, 1e30).map(repr),
    floats.map(lambda value: f"{value:.9g}"),
    floats.map(lambda value: f"{value:.30f}"),
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-3]?[0-9])?", fullmatch=True),
    st.from_regex(r"-?\.[0-9]{1,25}(e-[0-9]{1,3})?", fullmatch=True),
    # Exactly between two float32 values, and a hair beside it.
    st.integers(2**23, 2**24 - 1).map(lambda m: f"{2 * m + 1}"),
    st.integers(2**23, 2**24 - 1).map(lambda m: f"{2 * m + 1}.00000000000000000000001"),
    st.integers(2**23, 2**24 - 1).map(lambda m: f"{2 * m}.99999999999999999999999"),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(decimals, min_size=1, max_size=30))
def test_decimals_are_read_as_python_reads_them(tmp_path_factory, numbers):
    with np.errstate(over="ignore"):
        wanted = np.array([np.float32(float(number)) for number in numbers], np.float32)
    numbers = [n for n, value in zip(numbers, wanted, strict=True) if np.isfinite(value)]
    row = " ".join(f"{i}:{number}" for i, number in enumerate(numbers))
    path = put(tmp_path_factory.mktemp("xmc"), "a.txt", f"1 {len(numbers) + 1} 1\n0 {row}\n")
    X, _ = read_xmc(path)
    assert X.data.tobytes() == wanted[np.isfinite(wanted)].tobytes()


def test_decimals_too_close_to_call_go_to_python_however_many(tmp_path):
    rng = np.random.default_rng(1)
    middles = 2 * rng.integers(2**23, 2**24, 3000) + 1
    numbers = [f"{m}.{'0' * 20}1" for m in middles.tolist()]  # just above the middle: round up
    order = rng.permutation(len(numbers))  # unsorted features, so that entries move
    row = " ".join(f"{i}:{numbers[i]}" for i in order)
    X, _ = read_xmc(put(tmp_path, "a.txt", f"2 {len(numbers)} 1\n0:1\n0 {row}\n"))
    wanted = np.array([float(number) for number in numbers]).astype(np.float32)
    assert kernel._decimal(int(middles[0]) * 10**9, -9, True)[1] == kernel.SLOW
    assert np.array_equal(X[1].toarray().ravel(), wanted)


def test_rows_without_labels_blank_rows_and_loose_spacing(tmp_path):
    text = "6 4 3\n2,0,2 3:1.5 0:-2\r\n 1:1\n1:1e-3\n\n1\n0\t2:.5  3:2. \n\n\n"
    X, Y = read_xmc(put(tmp_path, "a.txt", text))
    wanted = [[-2, 0, 0, 1.5], [0, 1, 0, 0], [0, 1e-3, 0, 0], [0] * 4, [0] * 4, [0, 0, 0.5, 2]]
    assert np.array_equal(X.toarray(), np.array(wanted, np.float32))
    ones = [[1, 0, 1], [0] * 3, [0] * 3, [0] * 3, [0, 1, 0], [1, 0, 0]]
    assert np.array_equal(Y.toarray(), ones)
    assert X.has_sorted_indices
    assert X.dtype == Y.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 0, "is empty; wanted a header"),
        ("0,1 0:1\n", 1, "wanted three whole numbers"),
        ("1 2\n0 0:1\n", 1, "wanted three whole numbers"),
        ("1 2 -3\n0 0:1\n", 1, "wanted three whole numbers"),
        ("1 2 3000000000\n0 0:1\n", 1, "a number beyond"),
        ("3 2 2\n0 0:1\n1 1:1\n", 0, "ends after 2 rows; its header promises 3"),
        ("1 2 2\n0 0:1\n1 1:1\n", 3, "got a row more than the 1 of the header"),
        ("2 2 2\n0 0:1\n2 1:1\n", 3, "got label 2; wanted 0 to 1"),
        ("2 2 2\n0 0:1\n0 2:1\n", 3, r"got feature 2; wanted 0 to 1.*first feature is 0"),
        ("1 2 2\n0 99999999999999999999:1\n", 2, "got feature 99999999999999999999; wanted"),
        ("1 2 2\n-1 0:1\n", 2, "got '-1'; wanted indices that are not negative"),
        ("1 2 2\n0 -1:1\n", 2, "got '-1:1'; wanted indices that are not negative"),
        ("1 2 2\n0 0:nan\n", 2, "got '0:nan'; wanted a finite value"),
        ("1 2 2\n0 0:-inf\n", 2, "got '0:-inf'; wanted a finite value"),
        ("1 2 2\n0 0:1e39\n", 2, "got '0:1e39'; wanted a value that fits into float32"),
        ("1 2 2\n0 0:1e999\n", 2, "got '0:1e999'; wanted a finite value"),
        ("1 2 2\n0 0:\n", 2, "got '0:'; wanted a decimal number"),
        ("1 2 2\n0 0:1x\n", 2, "got '0:1x'; wanted a decimal number"),
        ("1 2 2\n0 0:1e\n", 2, "got '0:1e'; wanted a decimal number"),
        ("1 2 2\n0 0:1:2\n", 2, "got '0:1:2'; wanted a decimal number"),
        ("1 2 2\n0 0:.\n", 2, "got '0:.'; wanted a decimal number"),
        ("1 2 2\n0 1\n", 2, "got '1'; wanted `feature:value`"),
        ("1 2 2\n0 a:1\n", 2, "got 'a:1'; wanted `feature:value`"),
        ("1 2 2\n0, 1:1\n", 2, "wanted labels as `3,17`"),
        ("1 2 2\n0,x 1:1\n", 2, "wanted labels as `3,17`"),
        ("1 2 2\nx 1:1\n", 2, "got 'x'; wanted labels as"),
        ("1 2 2\n0 1:1 0:2 1:3\n", 2, "got feature 1 twice"),
        ("1 2 2\n0 1:1 1:1\n", 2, "got feature 1 twice"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_bad_xmc_file_is_located(tmp_path, text, line, message, suffix):
    path = put(tmp_path, f"train.txt{suffix}", text)
    with pytest.raises(DataError, match=message) as error:
        read_xmc(path)
    where = f"{path}, line {line}: " if line else f"{path} "
    assert str(error.value).startswith(where)


def test_lines_are_counted_across_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(xmc, "CHUNK", 16)
    rng = np.random.default_rng(2)
    X = sp.random(50, 30, 0.4, "csr", np.float32, rng=rng)
    Y = sp.random(50, 9, 0.2, "csr", np.float32, rng=rng)
    Y.data[:] = 1
    path = tmp_path / "a.txt"
    write_xmc(path, X, Y)
    again, labels = read_xmc(path)
    assert same(X, again)
    assert same(Y, labels)
    lines = path.read_text().splitlines()
    lines[40] += " 30:1"
    with pytest.raises(DataError, match="line 41: got feature 30"):
        read_xmc(put(tmp_path, "b.txt", "\n".join(lines)))


def test_many_blocks_of_rows_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(xmc, "ENTRIES", 7)
    rng = np.random.default_rng(3)
    X = sp.random(40, 30, 0.3, "csr", np.float32, rng=rng)
    Y = sp.csr_matrix((40, 3), dtype=np.float32)
    write_xmc(tmp_path / "a.txt", X, Y)
    assert same(X, read_xmc(tmp_path / "a.txt")[0])


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(xmc, "CHUNK", 16)
    monkeypatch.setattr(xmc, "LONGEST_LINE", 64)
    with pytest.raises(DataError, match="got a line of more than 64 bytes"):
        read_xmc(put(tmp_path, "a.txt", "1 2 3\n" + "1" * 100))


def test_a_truncated_xmc_stream_is_refused(tmp_path):
    path = put(tmp_path, "a.txt.gz", "1 1 1\n" + " " * 100_000 + "0:1\n")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match="ends in the middle"):
        read_xmc(path)


def test_writing_refuses_what_cannot_be_read_back_and_leaves_nothing(tmp_path):
    X, Y = sp.csr_matrix([[1.0], [np.nan]]), sp.csr_matrix((2, 1), dtype=np.float32)
    with pytest.raises(DataError, match="row 1 holds a value that is not finite"):
        write_xmc(tmp_path / "a.txt", X, Y)
    with pytest.raises(DataError, match="X has 2 rows but Y has 1"):
        write_xmc(tmp_path / "a.txt", Y, Y[:1])
    assert list(tmp_path.iterdir()) == []


def test_stored_zeros_of_labels_are_no_labels(tmp_path):
    Y = sp.csr_matrix((np.array([0.0, 1.0], np.float32), [0, 1], [0, 2]), shape=(1, 2))
    write_xmc(tmp_path / "a.txt", sp.csr_matrix((1, 1), dtype=np.float32), Y)
    assert read_xmc(tmp_path / "a.txt")[1].indices.tolist() == [1]
    assert Y.nnz == 2, "the input stays as it was"


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["bibtex", "delicious"])
def test_repository_files_equal_sklearn_and_are_written_back_byte_for_byte(tmp_path, name):
    if not SHARED.exists():
        pytest.skip("../shared/data is absent")
    from sklearn.datasets import load_svmlight_file

    path = SHARED / name / "test.txt"
    X, Y = read_xmc(path)
    body = path.read_bytes().split(b"\n", 1)[1]
    reference, labels = load_svmlight_file(
        io.BytesIO(body), n_features=X.shape[1], dtype=np.float32, multilabel=True, zero_based=True
    )
    assert same(X, reference)
    found = [Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist() for i in range(Y.shape[0])]
    assert found == [sorted(map(int, row)) for row in labels]
    write_xmc(tmp_path / "again.txt", X, Y)
    assert (tmp_path / "again.txt").read_bytes() == path.read_bytes()
