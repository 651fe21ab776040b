"""Files as bytes and as lines: decompressed, decoded, every error with its place."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from coattail.errors import DataError

LONGEST_LINE = 1 << 28
SUFFIXES = {".gz": "gzip", ".xz": "xz"}


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed; trouble with the compression is a DataError."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                yield file  # type: ignore[misc]
        elif path.suffix == ".xz":
            with lzma.open(path, "rb") as file:
                yield file
        else:
            with open(path, "rb") as file:
                yield file
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except EOFError:
        kind = SUFFIXES[path.suffix]
        raise DataError(f"{path} ends in the middle of its {kind} stream; fetch it again") from None
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        kind = SUFFIXES[path.suffix]
        raise DataError(f"{path} is not an intact {kind} file: {error}; fetch it again") from None


def lines(path: Path, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Line numbers (from 1) and lines of a UTF-8 file, with or without a byte order mark."""
    offset = 0
    with open_bytes(path) as file:
        for line, raw in enumerate(file, 1):
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                fail(
                    path,
                    line,
                    f"got byte 0x{raw[error.start]:02x} at offset {offset + error.start}, which is "
                    "no UTF-8; convert the file (iconv -t UTF-8)",
                )
            if line == 1:
                text = text.removeprefix("\ufeff")
            offset += len(raw)
            yield line, text if keep_ends else text.removesuffix("\n").removesuffix("\r")


def fail(path: Path, line: int, message: str) -> NoReturn:
    raise DataError(f"{path}, line {line}: {message}") from None
