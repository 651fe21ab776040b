"""Fetch one file over HTTP: resumed where it broke off, retried, never half-written."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import logging
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from coattail.errors import DownloadError
from coattail.progress import Progress, progress

log = logging.getLogger("coattail")

CHUNK = 1 << 20
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # in a row that bring nothing; an attempt that brings bytes starts the count again
PAUSE = 1.0  # seconds before the second attempt, doubled every time
SPARE = 64 << 20  # bytes of free space left alone
PASSING = {408, 425, 429, 500, 502, 503, 504}  # worth another attempt
REMEDY = "fetch it by hand and point `source` at its folder (coattail use NAME --data FOLDER)"


def fetch(address: str, path: Path, size: int | None = None, sha256: str | None = None) -> None:
    """Bring the file at ``address`` to ``path``.

    What has arrived waits in ``<path>.part`` (beside it ``<path>.part.json`` says which version of
    the file it belongs to), so that a later call continues. ``path`` appears only when size and
    checksum are right, where known.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(path, address, sha256)
    fruitless, furthest = 0, part.length
    while True:
        try:
            if _transfer(address, part, size):
                break
            trouble = "the connection broke off"
        except _Passing as error:
            trouble = str(error)
        fruitless = 0 if part.length > furthest else fruitless + 1
        furthest = max(furthest, part.length)
        if fruitless >= ATTEMPTS:
            raise DownloadError(
                f"{address}: {trouble} ({ATTEMPTS} attempts in a row brought nothing, "
                f"{part.length:,} bytes are here); run again to continue, or {REMEDY}"
            )
        log.warning("%s: %s after %s bytes; trying again", address, trouble, f"{part.length:,}")
        time.sleep(PAUSE * 2.0 ** max(fruitless - 1, 0))
    try:
        verify(part.path, address, size, sha256)
    except DownloadError:
        part.forget()
        raise
    part.path.replace(path)
    part.forget()


def verify(path: Path, what: str, size: int | None, sha256: str | None) -> str:
    """Raise unless the file has that size and checksum (where given); returns its checksum."""
    found_size = path.stat().st_size
    if size is not None and found_size != size:
        raise DownloadError(f"{what}: got {found_size:,} bytes; wanted {size:,}; refused")
    found = checksum(path)
    if sha256 is not None and found != sha256:
        raise DownloadError(f"{what}: got sha256 {found}; wanted {sha256}; refused")
    return found


def checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def need_space(folder: Path, wanted: int, what: str) -> None:
    """Raise unless the disk of ``folder`` has room for ``wanted`` bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < wanted + SPARE:
        raise DownloadError(
            f"{what} needs {_megabytes(wanted)} but {folder} has {_megabytes(free)} free "
            f"({_megabytes(SPARE)} are kept spare); make room and run again"
        )


def _megabytes(n: int) -> str:
    return f"{n / 1e6:,.1f} MB"


class _Passing(Exception):
    """Trouble that another attempt may not meet."""


class _Part:
    """The bytes that have arrived so far, and the version of the file they belong to."""

    def __init__(self, path: Path, address: str, sha256: str | None) -> None:
        self.path = path.with_name(f"{path.name}.part")
        self.memory = path.with_name(f"{path.name}.part.json")
        self.known = {"address": address, "sha256": sha256}
        self.version: str | None = None
        try:
            found = json.loads(self.memory.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and found.items() >= self.known.items():
            self.version = found.get("version")
        else:
            self.forget()

    @property
    def length(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def resumable(self) -> bool:
        """Bytes of two versions must not mix: a checksum or the server's version must tell."""
        return self.length > 0 and (self.known["sha256"] is not None or self.version is not None)

    def begin(self, version: str | None) -> None:
        self.version = version
        self.memory.write_text(json.dumps(self.known | {"version": version}), encoding="utf-8")

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.memory.unlink(missing_ok=True)
        self.version = None


def _transfer(address: str, part: _Part, size: int | None) -> bool:
    """One connection's worth of bytes; whether the file is complete afterwards."""
    start = part.length if part.resumable else 0
    if size is not None and start == size:
        return True
    try:
        with _ask(address, start, part.version) as response:
            if start and not _continues(response, start):
                start = 0
            total = _total(address, response, start, size)
            if start == 0:
                version = response.headers.get("ETag") or response.headers.get("Last-Modified")
                part.begin(None if version is None or version.startswith("W/") else version)
            if total is not None:
                need_space(part.path.parent, total - start, address)
            _receive(address, response, part.path, start, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing after what we have, or another file by now
            part.forget()
            raise _Passing("the server has fewer bytes than we do") from None
        message = f"the server answered {error.code} {error.reason}"
        if error.code in PASSING:
            raise _Passing(message) from None
        raise DownloadError(f"{address}: {message}; {REMEDY}") from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadError(
                f"{address}: no space left in {part.path.parent} after {part.length:,} bytes; "
                "make room and run again to continue"
            ) from None
        raise _Passing(str(error) or type(error).__name__) from None
    return total is None or part.length >= total


def _ask(address: str, start: int, version: str | None) -> Any:
    headers = {"User-Agent": "coattail", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if version is not None:
            headers["If-Range"] = version
    request = urllib.request.Request(address, headers=headers)
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _continues(response: Any, start: int) -> bool:
    """Whether the server sends the rest we asked for; if not, it sends the whole file again."""
    if response.status != 206:
        return False
    sent = response.headers.get("Content-Range", "")
    if not sent.startswith(f"bytes {start}-"):
        raise _Passing(f"asked for the bytes from {start}, the server sent {sent!r}")
    return True


def _total(address: str, response: Any, start: int, size: int | None) -> int | None:
    """The size of the whole file by the server's word; None if it gives none."""
    if response.headers.get_content_type() == "text/html":
        raise DownloadError(f"{address}: got a web page instead of a file; {REMEDY}")
    length = response.headers.get("Content-Length", "")
    if not length.isdigit():
        return size
    total = start + int(length)
    if size is not None and total != size:
        raise DownloadError(
            f"{address}: the server announces {total:,} bytes; wanted {size:,}; refused"
        )
    return total


def _receive(address: str, response: Any, path: Path, start: int, total: int | None) -> None:
    name = address.rsplit("/", 1)[-1] or address
    with open(path, "ab") as file, progress(f"fetch {name}", total or 0, "bytes") as bar:
        file.truncate(start)
        bar.advance(start)
        _copy(response, file, bar)


def _copy(response: Any, file: Any, bar: Progress) -> None:
    # read1 hands over what has arrived, so that a cut connection loses nothing.
    while chunk := response.read1(CHUNK):
        file.write(chunk)
        bar.advance(len(chunk))
