"""The text format of the extreme classification repository, read and written at memory speed.

texts features labels
label,label feature:value feature:value
...
"""

from __future__ import annotations

import gzip
import logging
import lzma
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.arrays import as_csr, parts
from coattail.data.formats.lines import LONGEST_LINE, fail, open_bytes
from coattail.errors import DataError
from coattail.files import atomic_file

log = logging.getLogger("coattail")

CHUNK = 1 << 21  # bytes of text parsed at once
ENTRIES = 1 << 20  # features formatted at once
LARGEST = np.iinfo(np.int32).max


def read_xmc(path: str | Path) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Features and labels of a file, plain or compressed (.gz, .xz).

    Returns
    -------
    X : float32 (n, features), sorted indices
    Y : float32 (n, labels), ones

    Memory is that of the result and one chunk of text. A broken promise of the format is a
    DataError that names the line.
    """
    path, start = Path(path), time.monotonic()
    with open_bytes(path) as file:
        builder = _Builder(path, file.readline(200))
        for block in _blocks(path, file):
            builder.add(block)
    X, Y = builder.finish()
    sizes = (f"{n:,}" for n in (*X.shape, Y.shape[1]))
    seconds = time.monotonic() - start
    log.info("read %s: %s texts, %s features, %s labels, %.1f s", path.name, *sizes, seconds)
    return X, Y


def look(path: Path) -> None:
    """Parse the header and the first chunk of rows; a broken promise is a DataError."""
    with open_bytes(path) as file:
        builder = _Builder(path, file.readline(200))
        for block in islice(_blocks(path, file), 1):
            builder.add(block)


def _blocks(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The rest of the file in pieces that end with a line."""
    rest: list[bytes] = []
    length = 0
    while chunk := file.read(CHUNK):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, chunk[:cut]])
            rest, length = [chunk[cut:]], len(chunk) - cut
        else:
            rest.append(chunk)
            length += len(chunk)
        if length > LONGEST_LINE:
            raise DataError(f"{path}: got a line of more than {LONGEST_LINE:,} bytes; wanted text")
    if length:
        yield b"".join([*rest, b"\n"])


class _Builder:
    """CSR arrays that grow as blocks of lines come in."""

    def __init__(self, path: Path, header: bytes) -> None:
        self.path = path
        self.shape = _header(path, header)
        self.row = 0
        self.x_indptr, self.y_indptr = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self.x_indices, self.y_indices = np.empty(0, np.int32), np.empty(0, np.int32)
        self.values = np.empty(0, np.float32)
        self.slow = np.empty((1024, 2), np.int64)

    def add(self, block: bytes) -> None:
        from coattail.kernels import xmc_lines as kernel  # numba, only when there are lines

        text = np.frombuffer(block, np.uint8)
        lines, colons, commas = kernel.count(text)
        rows = min(lines, self.shape[0] - self.row)
        _reserve(self.x_indptr, self.row + rows + 1)
        _reserve(self.y_indptr, self.row + rows + 1)
        _reserve(self.x_indices, self.x_indptr[self.row] + colons)
        _reserve(self.values, self.x_indptr[self.row] + colons)
        _reserve(self.y_indices, self.y_indptr[self.row] + commas + lines)
        code, at, row, slow = self._parse(text)
        if code == kernel.SLOW_FULL:
            self.slow = np.empty((colons, 2), np.int64)
            code, at, row, slow = self._parse(text)
        if code != kernel.FINE:
            _explain(self.path, row + 2, code, block, at, self.shape)
        for where, position in self.slow[:slow].tolist():
            self._read_slowly(block, where, position)
        self.row = row

    def _parse(self, text: NDArray[np.uint8]) -> tuple[int, int, int, int]:
        from coattail.kernels import xmc_lines as kernel

        arrays = (self.x_indptr, self.x_indices, self.values, self.y_indptr, self.y_indices)
        found: tuple[int, int, int, int] = kernel.parse(
            text, self.shape, self.row, *arrays, self.slow
        )
        return found

    def _read_slowly(self, block: bytes, row: int, at: int) -> None:
        index, value = block[at : block.index(b"\n", at)].split(maxsplit=1)[0].split(b":")
        first, last = self.x_indptr[row : row + 2]
        entry = first + np.searchsorted(self.x_indices[first:last], int(index))
        self.values[entry] = np.float32(float(value))

    def finish(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        n, n_features, n_labels = self.shape
        if self.row < n:
            raise DataError(
                f"{self.path} ends after {self.row:,} rows; its header promises {n:,}; "
                "fetch it again or mend the header"
            )
        _reserve(self.x_indices, self.x_indptr[n])
        _reserve(self.values, self.x_indptr[n])
        _reserve(self.y_indices, self.y_indptr[n])
        ones = np.ones(len(self.y_indices), np.float32)
        X = sp.csr_matrix((self.values, self.x_indices, self.x_indptr), shape=(n, n_features))
        Y = sp.csr_matrix((ones, self.y_indices, self.y_indptr), shape=(n, n_labels))
        X.has_canonical_format = Y.has_canonical_format = True
        return X, Y


def _reserve(array: NDArray[Any], size: int) -> None:
    """Resize in place: the system moves pages instead of copying, so memory never doubles."""
    array.resize(int(size), refcheck=False)


def _header(path: Path, line: bytes) -> tuple[int, int, int]:
    if not line:
        raise DataError(f"{path} is empty; wanted a header `texts features labels`")
    fields = line.split()
    if len(fields) != 3 or not all(field.isdigit() for field in fields):
        shown = line[:60].decode("utf-8", "replace").strip()
        fail(
            path,
            1,
            f"got the header {shown!r}; wanted three whole numbers `texts features labels` "
            "(files of other tools, without header, need one)",
        )
    n, n_features, n_labels = (int(field) for field in fields)
    if max(n, n_features, n_labels) > LARGEST:
        fail(path, 1, f"got a header with a number beyond {LARGEST:,}; wanted a smaller matrix")
    return n, n_features, n_labels


def _token(block: bytes, at: int) -> str:
    return block[at : at + 400].split(maxsplit=1)[0][:60].decode("utf-8", "replace")


def _explain(
    path: Path, line: int, code: int, block: bytes, at: int, shape: tuple[int, int, int]
) -> NoReturn:
    """What the kernel stumbled over, as a sentence."""
    from coattail.kernels import xmc_lines as kernel

    n, n_features, n_labels = shape
    if code == kernel.TOO_MANY_ROWS:
        fail(path, line, f"got a row more than the {n:,} of the header; mend the header")
    if code == kernel.DUPLICATE:
        fail(path, line, f"got feature {at} twice; wanted every feature once per row")
    token = _token(block, at)
    if code == kernel.LABEL_RANGE:
        label = token.split(",")[0]
        fail(path, line, f"got label {label}; wanted 0 to {n_labels - 1}, as the header says")
    if code == kernel.FEATURE_RANGE:
        feature = token.split(":")[0]
        fail(
            path,
            line,
            f"got feature {feature}; wanted 0 to {n_features - 1}, as the header says "
            "(the first feature is 0)",
        )
    if code == kernel.BAD_VALUE:
        fail(path, line, f"got {token!r}; wanted {_value_wanted(token)}")
    if token.startswith("-"):
        fail(path, line, f"got {token!r}; wanted indices that are not negative")
    wanted = "labels as `3,17`, no blank between" if code == kernel.BAD_LABEL else "`feature:value`"
    fail(path, line, f"got {token!r}; wanted {wanted}")


def _value_wanted(token: str) -> str:
    try:
        value = float(token.split(":", 1)[1])
    except ValueError:
        return "a decimal number after the colon"
    return "a finite value" if not math.isfinite(value) else "a value that fits into float32"


# --- writing -------------------------------------------------------------------------------------


def write_xmc(path: str | Path, X: sp.csr_matrix, Y: sp.csr_matrix) -> None:
    """Write features and labels so that read_xmc returns them bit for bit; atomic."""
    from coattail.kernels import xmc_lines as kernel

    path = Path(path)
    X, Y = as_csr(X, "X"), as_csr(Y, "Y")
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows but Y has {Y.shape[0]}; wanted one row per text")
    if np.any(Y.data == 0):
        Y = Y.copy()
        Y.eliminate_zeros()
    x, y = parts(X), parts(Y)
    with atomic_file(path) as temporary, _compressed(temporary, path.suffix) as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n".encode())
        out = np.empty(0, np.uint8)
        for first, last in _row_ranges(x.indptr + y.indptr):
            features = int(x.indptr[last] - x.indptr[first])
            labels = int(y.indptr[last] - y.indptr[first])
            size = kernel.BYTES_PER_FEATURE * features + kernel.BYTES_PER_LABEL * labels
            size += kernel.BYTES_PER_ROW * (last - first)
            if size > len(out):
                out = np.empty(size, np.uint8)
            used = kernel.format_rows(
                first, last, x.indptr, x.indices, x.data, y.indptr, y.indices, out
            )
            file.write(out[:used].data)


def _row_ranges(indptr: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows with about ENTRIES entries each, at least one row."""
    first, n = 0, len(indptr) - 1
    while first < n:
        last = int(np.searchsorted(indptr, indptr[first] + ENTRIES, "right")) - 1
        last = min(max(last, first + 1), first + ENTRIES, n)
        yield first, last
        first = last


@contextmanager
def _compressed(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    """A file to write into, compressed as ``suffix`` says; equal content gives equal bytes."""
    with open(path, "wb") as raw:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                yield file  # type: ignore[misc]
        elif suffix == ".xz":
            with lzma.open(raw, "wb") as file:
                yield file
        else:
            yield raw
