"""Archives that are fine, broken, or mean harm."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest

from coattail.data import archives
from coattail.errors import DownloadError
from tests.webserver import tarred, zipped

BODY = np.random.default_rng(0).bytes(300_000)


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
        archive.writestr("a.txt", b"good")
    return out.getvalue()


GOOD = {"set/a.txt": b"good", "set/sub/b.txt": b"other"}


@pytest.mark.parametrize(
    "content",
    [zipped(GOOD), tarred(GOOD), tarred(GOOD, "w:xz"), tarred(GOOD, "w:bz2")],
    ids=["zip", "tar.gz", "tar.xz", "tar.bz2"],
)
def test_wanted_members_are_found_by_the_end_of_their_path(tmp_path, content):
    archive = tmp_path / "whatever.bin"
    archive.write_bytes(content)
    found = archives.extract(archive, {"a.txt": "train.txt"}, tmp_path / "out")
    assert found == {"train.txt": tmp_path / "out" / "train.txt"}
    assert (tmp_path / "out" / "train.txt").read_bytes() == b"good"
    assert len(list((tmp_path / "out").iterdir())) == 1


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_packed_file_is_an_archive_of_one(tmp_path, suffix, pack):
    archive = tmp_path / f"a.txt{suffix}"
    archive.write_bytes(pack(b"good"))
    archives.extract(archive, {"a.txt": "b.txt"}, tmp_path / "out")
    assert (tmp_path / "out" / "b.txt").read_bytes() == b"good"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped({"../evil": b"x", "a.txt": b"good"}), "points outside"),
        (zipped({"set/../../evil": b"x", "a.txt": b"good"}), "points outside"),
        (zipped({"/etc/evil": b"x", "a.txt": b"good"}), "points outside"),
        (zipped({"C:/evil": b"x", "a.txt": b"good"}), "points outside"),
        (zip_link("link"), "a link or device"),
        (tarred({"../evil": b"x", "a.txt": b"good"}), "points outside"),
        (tarred({"/etc/evil": b"x", "a.txt": b"good"}), "points outside"),
        (tarred({"l": special("l", tarfile.SYMTYPE, "/etc"), "a.txt": b"x"}), "a link or device"),
        (tarred({"l": special("l", tarfile.LNKTYPE, "a.txt"), "a.txt": b"x"}), "a link or device"),
        (tarred({"d": special("d", tarfile.CHRTYPE), "a.txt": b"x"}), "a link or device"),
        (tarred({"p": special("p", tarfile.FIFOTYPE), "a.txt": b"x"}), "a link or device"),
        (zipped({"b.txt": b"x"}), "holds no 'a.txt'"),
        (zipped({"x/a.txt": b"x", "y/a.txt": b"y"}), "holds 2 files that end with 'a.txt'"),
        (b"just bytes", "is no zip, tar, gz or xz file"),
        (zipped({"a.txt": BODY})[:-500], "is no zip|is damaged"),
        (tarred({"a.txt": BODY})[:-5000], "is damaged"),
        (gzip.compress(b"x" * 10_000)[:-15], "is damaged|no 'a.txt'"),
    ],
    # Named: an id made of the bytes would hold the second in which they were packed, and the
    # processes that run the tests would not agree on it.
    ids=[
        "zip: up",
        "zip: down and up",
        "zip: absolute",
        "zip: drive",
        "zip: link",
        "tar: up",
        "tar: absolute",
        "tar: symbolic link",
        "tar: hard link",
        "tar: device",
        "tar: fifo",
        "zip: not there",
        "zip: twice",
        "no archive",
        "zip: cut off",
        "tar: cut off",
        "gz: cut off",
    ],
)
def test_a_hostile_or_broken_archive_is_refused(tmp_path, content, message):
    archive = tmp_path / "a.zip"
    archive.write_bytes(content)
    with pytest.raises(DownloadError, match=message):
        archives.extract(archive, {"a.txt": "a.txt"}, tmp_path / "out")
    assert {path.name for path in tmp_path.rglob("*")} <= {"a.zip", "out", "a.txt"}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_bomb_is_refused_by_its_size(tmp_path, pack):
    archive = tmp_path / "bomb"
    archive.write_bytes(pack({"a.txt": bytes(600_000), "b.txt": bytes(600_000)}))
    with pytest.raises(DownloadError, match="more than 1,000,000 bytes"):
        archives.extract(archive, {"a.txt": "a", "b.txt": "b"}, tmp_path / "out", 1_000_000)


def test_a_bomb_that_hides_its_size_is_refused_while_unpacking(tmp_path, monkeypatch):
    archive = tmp_path / "a.txt.gz"
    archive.write_bytes(gzip.compress(b"x" * 50_000_000))
    monkeypatch.setattr(archives, "LARGEST", 1_000_000)
    with pytest.raises(DownloadError, match="unpacks to more than"):
        archives.extract(archive, {"a.txt": "a"}, tmp_path / "out")
    assert (tmp_path / "out" / "a").stat().st_size <= 50 * archive.stat().st_size + archives.CHUNK


def test_an_archive_of_very_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_FILES", 10)
    archive = tmp_path / "many.zip"
    archive.write_bytes(zipped({f"{i}.txt": b"" for i in range(11)}))
    with pytest.raises(DownloadError, match="more than 10 files"):
        archives.extract(archive, {"1.txt": "a"}, tmp_path / "out")
