"""Take files out of an archive without trusting it: no path outside, no links, no bombs."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from coattail.data.fetch import need_space
from coattail.errors import DownloadError

LARGEST, RATIO = 1 << 30, 50  # bytes that the files may unpack to: the first, or so many times more
MOST_FILES = 100_000
CHUNK = 1 << 20


class _Member(NamedTuple):
    name: str
    size: int | None
    open: IO[bytes] | None  # None for a folder


def extract(
    archive: Path, wanted: dict[str, str], target: Path, largest: int | None = None
) -> dict[str, Path]:
    """Take ``wanted`` (file name by path in the archive) out of a zip, tar, gz or xz file.

    A path matches a member that is equal to it or ends with it (``train.txt`` finds
    ``Wiki10/train.txt``). The whole archive is looked at: one unsafe member, and nothing of it is
    used. ``largest`` caps the bytes written; without it the cap follows from the archive's size.

    Returns
    -------
    where each file of ``wanted`` (by its name) now lies in ``target``
    """
    target.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {path: [] for path in wanted}
    if largest is None:
        largest = max(LARGEST, RATIO * archive.stat().st_size)
    budget = largest
    try:
        for number, member in enumerate(_members(archive)):
            if number >= MOST_FILES:
                raise DownloadError(f"{archive.name} holds more than {MOST_FILES:,} files; refused")
            _check_path(archive, member.name)
            if member.open is None:
                continue
            path = next((path for path in wanted if _matches(member.name, path)), None)
            if path is None:
                continue
            found[path].append(member.name)
            if member.size is not None and member.size > budget:
                _refuse_size(archive, largest)
            need_space(target, member.size or 0, f"{member.name} of {archive.name}")
            budget -= _unpack(archive, member.open, target / wanted[path], budget, largest)
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, EOFError, zlib.error) as error:
        raise DownloadError(f"{archive.name} is damaged: {error}; fetch it again") from None
    except (gzip.BadGzipFile, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{archive.name} cannot be unpacked: {error}") from None
    _check_found(archive, found)
    return {name: target / name for name in wanted.values()}


def _matches(member: str, path: str) -> bool:
    return member == path or member.endswith(f"/{path}")


def _check_path(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    drive = len(name) > 1 and name[1] == ":"
    if path.is_absolute() or ".." in path.parts or drive or "\0" in name or not name:
        raise DownloadError(
            f"{archive.name} holds {name!r}, which points outside of its folder; refused"
        )


def _check_found(archive: Path, found: dict[str, list[str]]) -> None:
    for path, members in found.items():
        if not members:
            raise DownloadError(f"{archive.name} holds no {path!r}; correct `member` in the entry")
        if len(members) > 1:
            raise DownloadError(
                f"{archive.name} holds {len(members)} files that end with {path!r}: "
                f"{', '.join(members[:3])}; give more of the path in `member`"
            )


def _unpack(archive: Path, source: IO[bytes], sink: Path, budget: int, largest: int) -> int:
    """Copy a member; returns its real size, whatever the archive says."""
    size = 0
    with open(sink, "wb") as file:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > budget:
                _refuse_size(archive, largest)
            file.write(chunk)
    return size


def _refuse_size(archive: Path, largest: int) -> None:
    raise DownloadError(
        f"{archive.name} unpacks to more than {largest:,} bytes; refused (give the files their "
        "`size` in the entry if that is right)"
    )


def _members(archive: Path) -> Iterator[_Member]:
    """Members of an archive, whose kind is read from its content."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    elif tarfile.is_tarfile(archive):
        yield from _tar_members(archive)
    else:
        with _single(archive) as file:
            yield _Member(archive.stem, None, file)


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            # The upper half of external_attr is the Unix mode; 0o120000 marks a symbolic link.
            kind = (info.external_attr >> 16) & 0o170000
            if kind not in (0, 0o100000, 0o040000):
                _refuse_link(archive, info.filename)
            if info.is_dir():
                yield _Member(info.filename, 0, None)
                continue
            with opened.open(info) as file:
                yield _Member(info.filename, info.file_size, file)


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive, "r:*") as opened:
        for info in opened:
            if not (info.isreg() or info.isdir()):
                _refuse_link(archive, info.name)
            yield _Member(info.name, info.size, opened.extractfile(info))


def _refuse_link(archive: Path, name: str) -> None:
    raise DownloadError(f"{archive.name} holds {name!r}, a link or device; refused")


@contextmanager
def _single(archive: Path) -> Iterator[IO[bytes]]:
    """A gz or xz file as an archive of one member, called like the archive without its suffix."""
    with open(archive, "rb") as file:
        start = file.read(6)
    if start[:2] == b"\x1f\x8b":
        with gzip.open(archive, "rb") as unpacked:
            yield unpacked  # type: ignore[misc]
    elif start == b"\xfd7zXZ\0":
        with lzma.open(archive, "rb") as unpacked:
            yield unpacked
    else:
        raise DownloadError(f"{archive.name} is no zip, tar, gz or xz file; wanted an archive")
