"""Download against a real server on loopback that misbehaves, and archives that mean harm."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import lzma
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coattail import archives, fetch
from coattail.config import parse
from coattail.download import acquire
from coattail.errors import DownloadError
from coattail.readers import documents
from coattail.registry import DatasetParams, VectorsParams

SHARED = Path(__file__).parents[1].parent / "shared" / "data"
BODY = np.random.default_rng(0).bytes(300_000)
LINE = b'{"text": "a b", "labels": ["x"]}\n'


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- a server ------------------------------------------------------------------------------------


@dataclass
class Site:
    """Files by path, and one trick per coming request (none: behave)."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    tricks: list[str] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    etag: str | None = '"v1"'


class Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        asked = self.headers.get("Range")
        site.requests.append((self.path, asked))
        trick = site.tricks.pop(0) if site.tricks else ""
        self.close_connection = True
        if trick.isdigit():
            self.send_error(int(trick))
            return
        if self.path not in site.files:
            self.send_error(404)
            return
        body = site.files[self.path]
        if_range = self.headers.get("If-Range")
        start = int(asked[6:-1]) if asked and if_range in (None, site.etag) else 0
        if trick == "ignore range" or start == 0:
            start = 0
            self.send_response(200)
        elif start >= len(body):
            self.send_error(416)
            return
        else:
            self.send_response(206)
            shown = start + 1 if trick == "wrong range" else start
            self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
        if site.etag and trick != "no version":
            self.send_header("ETag", site.etag)
        if trick == "web page":
            self.send_header("Content-Type", "text/html; charset=utf-8")
        rest = body[start:]
        announced = len(rest) + {"lie long": 1000, "lie short": -1000}.get(trick, 0)
        if trick == "no length":
            pass
        elif trick.startswith("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(announced))
        self.end_headers()
        if trick == "chunked cut":
            self.wfile.write(b"10000\r\n" + rest[:1000])
        else:
            self.wfile.write(rest[: len(rest) // 2] if trick == "cut" else rest)


@pytest.fixture
def site(monkeypatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": site}))
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def big(site) -> Site:
    site.files["/big"] = BODY
    return site


# --- one file ------------------------------------------------------------------------------------


def test_a_file_arrives_and_nothing_else_stays(big, tmp_path):
    fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), sha(BODY))
    assert (tmp_path / "big").read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["big"]


def test_a_cut_transfer_is_continued_where_it_broke_off(big, tmp_path):
    big.tricks = ["cut", "cut", "cut"]
    fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), sha(BODY))
    assert (tmp_path / "big").read_bytes() == BODY
    assert [asked for _, asked in big.requests] == [
        None,
        "bytes=150000-",
        "bytes=225000-",
        "bytes=262500-",
    ]


def test_a_later_call_continues_an_earlier_one(big, tmp_path):
    big.tricks = ["cut", *["503"] * fetch.ATTEMPTS]
    with pytest.raises(DownloadError, match=r"150,000 bytes are here.*run again to continue"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", None, sha(BODY))
    assert not (tmp_path / "big").exists()
    big.requests.clear()
    fetch.fetch(f"{big.address}/big", tmp_path / "big", None, sha(BODY))
    assert big.requests == [("/big", "bytes=150000-")]
    assert (tmp_path / "big").read_bytes() == BODY


def test_chunked_transfers_arrive_or_are_continued(big, tmp_path):
    big.tricks = ["chunked cut"]
    fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), sha(BODY))
    assert (tmp_path / "big").read_bytes() == BODY
    assert len(big.requests) == 2


def test_a_server_that_ignores_ranges_sends_it_all_again(big, tmp_path):
    big.tricks = ["cut", "ignore range"]
    fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), sha(BODY))
    assert (tmp_path / "big").read_bytes() == BODY


def test_a_file_that_changed_on_the_server_is_not_mixed(big, tmp_path):
    big.tricks = ["cut", *["500"] * fetch.ATTEMPTS]
    with pytest.raises(DownloadError, match="answered 500"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big")
    big.files["/big"], big.etag = BODY[::-1], '"v2"'
    fetch.fetch(f"{big.address}/big", tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == BODY[::-1]


def test_without_version_and_checksum_nothing_is_continued(big, tmp_path):
    big.etag = None
    big.tricks = ["cut"]
    fetch.fetch(f"{big.address}/big", tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == BODY
    assert [asked for _, asked in big.requests] == [None, None]


def test_a_wrong_range_is_not_believed(big, tmp_path):
    big.tricks = ["cut", "wrong range"]
    fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), sha(BODY))
    assert (tmp_path / "big").read_bytes() == BODY


def test_a_server_that_promises_more_than_it_sends_is_given_up(big, tmp_path):
    big.tricks = ["lie long"] * 20
    with pytest.raises(DownloadError, match="attempts in a row brought nothing"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", None, sha(BODY))
    assert not (tmp_path / "big").exists()


def test_a_server_that_announces_another_size_is_refused_before_the_transfer(big, tmp_path):
    big.tricks = ["lie long"]
    with pytest.raises(DownloadError, match="announces 301,000 bytes; wanted 300,000"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), sha(BODY))


def test_a_short_file_is_refused_by_its_checksum(big, tmp_path):
    big.tricks = ["lie short"]
    with pytest.raises(DownloadError, match=f"got sha256 .*wanted {sha(BODY)}"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", None, sha(BODY))


def test_a_short_file_without_length_is_refused_by_its_size(big, tmp_path):
    big.files["/big"] = BODY[:-1]
    big.tricks = ["no length"] * 20
    with pytest.raises(DownloadError, match="attempts in a row brought nothing"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY))


def test_a_long_file_without_length_is_refused_by_its_size(big, tmp_path):
    big.tricks = ["no length"]
    with pytest.raises(DownloadError, match="got 300,000 bytes; wanted 299,999"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY) - 1)


def test_wrong_bytes_are_refused_naming_both_sums_and_forgotten(big, tmp_path):
    wanted = sha(b"something else")
    with pytest.raises(DownloadError, match=f"got sha256 {sha(BODY)}; wanted {wanted}"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big", len(BODY), wanted)
    assert list(tmp_path.iterdir()) == []


def test_passing_errors_are_tried_again(big, tmp_path):
    big.tricks = ["500", "503", "429"]
    fetch.fetch(f"{big.address}/big", tmp_path / "big")
    assert len(big.requests) == 4


@pytest.mark.parametrize("status", ["404", "403"])
def test_lasting_errors_are_told_at_once_with_a_remedy(big, tmp_path, status):
    big.tricks = [status]
    with pytest.raises(DownloadError, match=f"answered {status} .*--data FOLDER"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big")
    assert len(big.requests) == 1


def test_a_web_page_is_no_file(big, tmp_path):
    big.tricks = ["web page"]
    with pytest.raises(DownloadError, match="got a web page instead of a file"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big")


def test_a_server_that_is_not_there_is_named(site, tmp_path):
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:1/a: .*refused"):
        fetch.fetch("http://127.0.0.1:1/a", tmp_path / "a")


def test_no_room_is_told_before_a_byte_is_fetched(big, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000))
    with pytest.raises(DownloadError, match=r"needs 0\.3 MB but .* has 0\.1 MB free"):
        fetch.fetch(f"{big.address}/big", tmp_path / "big")
    assert not (tmp_path / "big").exists()


def test_a_disk_that_fills_up_keeps_what_arrived(big, tmp_path, monkeypatch):
    def full(response: Any, file: Any, bar: object) -> None:
        file.write(response.read(1000))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_copy", full)
        with pytest.raises(DownloadError, match=r"no space left .* after 1,000 bytes"):
            fetch.fetch(f"{big.address}/big", tmp_path / "big", None, sha(BODY))
    fetch.fetch(f"{big.address}/big", tmp_path / "big", None, sha(BODY))
    assert big.requests[-1] == ("/big", "bytes=1000-")
    assert (tmp_path / "big").read_bytes() == BODY


# --- archives ------------------------------------------------------------------------------------


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members: dict[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                archive.addfile(info)
    return out.getvalue()


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
    "content", [zipped(GOOD), tarred(GOOD), tarred(GOOD, "w:xz"), tarred(GOOD, "w:bz2")]
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


# --- a dataset -----------------------------------------------------------------------------------


def dataset(**fields: Any) -> DatasetParams:
    return parse({"name": "x", "format": "jsonl"} | fields, DatasetParams, "dataset")


def vectors(**fields: Any) -> VectorsParams:
    return parse(fields, VectorsParams, "vectors")


def own_folder(tmp_path: Path, *names: str) -> Path:
    source = tmp_path / "mine"
    source.mkdir()
    for name in names:
        pack: Callable[[bytes], bytes] = {".gz": gzip.compress, ".xz": lzma.compress}.get(
            Path(name).suffix, bytes
        )
        (source / name).write_bytes(pack(LINE))
    return source


FILES = {
    "train": {"name": "train.jsonl", "sha256": sha(LINE), "size": len(LINE)},
    "test": {"name": "test.jsonl"},
}


def test_a_dataset_is_fetched_from_a_mirror_into_a_folder_with_a_manifest(site, tmp_path):
    site.files = {"/data/train.jsonl": LINE, "/data/test.jsonl": LINE}
    site.tricks = ["cut"]
    entry = dataset(source=f"{site.address}/data/", files=FILES, propensity={"A": 0.5, "B": 0.4})
    manifest = acquire(entry, tmp_path / "data" / "raw")
    assert manifest == {
        "name": "x",
        "format": "jsonl",
        "files": {"train": "train.jsonl", "test": "test.jsonl"},
        "label_separator": "|",
        "propensity": {"A": 0.5, "B": 0.4},
        "sha256": {"train.jsonl": sha(LINE), "test.jsonl": sha(LINE)},
    }
    assert json.loads((tmp_path / "data/raw/manifest.json").read_text()) == manifest
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["raw"]


def test_the_manifest_is_the_same_wherever_the_files_came_from(site, tmp_path):
    site.files = {"/train.jsonl": LINE, "/test.jsonl": LINE}
    source = own_folder(tmp_path, "train.jsonl", "test.jsonl")
    acquire(dataset(source=site.address, files=FILES), tmp_path / "a")
    acquire(dataset(source=str(source), files=FILES), tmp_path / "b")
    assert (tmp_path / "a/manifest.json").read_bytes() == (
        tmp_path / "b/manifest.json"
    ).read_bytes()


def test_a_failure_leaves_the_old_folder_and_keeps_what_arrived(site, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "old").write_text("old")
    site.files = {"/train.jsonl": LINE}
    entry = dataset(source=site.address, files=FILES)
    with pytest.raises(DownloadError, match="404"):
        acquire(entry, raw)
    assert [path.name for path in raw.iterdir()] == ["old"]
    assert {path.name for path in tmp_path.iterdir()} == {"raw", ".partial"}
    site.files["/test.jsonl"] = LINE
    site.requests.clear()
    acquire(entry, raw)
    assert [path for path, _ in site.requests] == ["/test.jsonl"]
    assert {path.name for path in tmp_path.iterdir()} == {"raw"}
    assert {path.name for path in raw.iterdir()} == {"train.jsonl", "test.jsonl", "manifest.json"}


def test_what_another_dataset_left_unfinished_stays(site, tmp_path):
    site.files = {"/one/train.jsonl": LINE}
    with pytest.raises(DownloadError, match="404"):
        acquire(dataset(source=f"{site.address}/one", files=FILES), tmp_path / "raw")
    site.files |= {"/two/train.jsonl": LINE, "/two/test.jsonl": LINE}
    acquire(dataset(source=f"{site.address}/two", files=FILES), tmp_path / "raw")
    assert len(list((tmp_path / ".partial").rglob("train.jsonl"))) == 1


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archive_is_fetched_verified_and_unpacked(site, tmp_path, pack):
    content = pack({"set/x_train.jsonl": LINE, "set/x_test.jsonl": LINE, "set/readme": b"no"})
    site.files = {"/x": content}
    files = {
        "archive": {"name": "x.zip", "address": f"{site.address}/x", "sha256": sha(content)},
        "train": {"name": "train.jsonl", "member": "x_train.jsonl", "sha256": sha(LINE)},
        "test": {"name": "test.jsonl", "member": "set/x_test.jsonl"},
    }
    manifest = acquire(dataset(files=files), tmp_path / "raw")
    assert set(manifest["files"]) == {"train", "test"}
    assert {path.name for path in (tmp_path / "raw").iterdir()} == {
        *("train.jsonl", "test.jsonl", "manifest.json")
    }


def test_a_hostile_archive_leaves_no_folder(site, tmp_path):
    site.files = {"/x": zipped({"train.jsonl": LINE, "test.jsonl": LINE, "../evil": b""})}
    files = FILES | {"archive": {"name": "x.zip", "address": f"{site.address}/x"}}
    with pytest.raises(DownloadError, match="points outside"):
        acquire(dataset(files=files), tmp_path / "raw")
    assert {path.name for path in tmp_path.iterdir()} == {".partial"}


def test_members_of_known_size_cap_the_archive(site, tmp_path):
    site.files = {"/x": zipped({"train.jsonl": LINE, "test.jsonl": bytes(1000)})}
    files = {
        "archive": {"name": "x.zip", "address": f"{site.address}/x"},
        "train": {"name": "train.jsonl", "size": len(LINE)},
        "test": {"name": "test.jsonl", "size": 10},
    }
    with pytest.raises(DownloadError, match=f"unpacks to more than {len(LINE) + 10} bytes"):
        acquire(dataset(files=files), tmp_path / "raw")


def test_an_archive_in_a_local_folder_is_unpacked(tmp_path):
    source = own_folder(tmp_path)
    (source / "x.zip").write_bytes(zipped({"a/train.jsonl": LINE, "a/test.jsonl": LINE}))
    entry = dataset(source=str(source), files=FILES | {"archive": {"name": "x.zip"}})
    assert acquire(entry, tmp_path / "raw")["sha256"]["train.jsonl"] == sha(LINE)


def test_a_local_file_with_another_checksum_is_refused_naming_both(tmp_path):
    source = own_folder(tmp_path, "train.jsonl", "test.jsonl")
    (source / "train.jsonl").write_bytes(LINE[:-2] + b"]\n")
    with pytest.raises(DownloadError, match=f"train.jsonl: got .*wanted {sha(LINE)}|got .* bytes"):
        acquire(dataset(source=str(source), files=FILES), tmp_path / "raw")
    (source / "train.jsonl").write_bytes(LINE.swapcase())
    with pytest.raises(
        DownloadError, match=f"got sha256 {sha(LINE.swapcase())}; wanted {sha(LINE)}"
    ):
        acquire(dataset(source=str(source), files=FILES), tmp_path / "raw")
    assert not (tmp_path / "raw").exists()


def test_a_local_file_that_is_missing_is_named_with_what_is_there(tmp_path):
    source = own_folder(tmp_path, "train.jsonl", "tests.jsonl")
    with pytest.raises(DownloadError, match=r"no test\.jsonl .*did you mean 'tests\.jsonl'"):
        acquire(dataset(source=str(source), files=FILES), tmp_path / "raw")


def test_a_file_without_any_address_says_what_to_do(tmp_path):
    with pytest.raises(DownloadError, match=r"train\.jsonl has no public address.*--data FOLDER"):
        acquire(dataset(files=FILES), tmp_path / "raw")


@pytest.mark.parametrize(
    "names",
    [
        ("train.jsonl", "dev.jsonl.xz", "test.jsonl.gz"),
        ("trn.ndjson", "validation.jsonl", "tst.jsonl.xz"),
    ],
)
def test_own_files_are_found_by_their_names(tmp_path, names):
    source = own_folder(tmp_path, *names, "notes.md")
    (source / "label_names.json").write_text("{}")
    manifest = acquire(dataset(source=str(source)), tmp_path / "raw")
    train, valid, test = names
    assert manifest["files"] == {
        "train": train,
        "valid": valid,
        "test": test,
        "label_names": "label_names.json",
    }
    for name in names:
        assert next(documents(tmp_path / "raw" / name, manifest["format"])).labels == ["x"]


def test_own_pairs_come_with_their_labels(tmp_path):
    source = own_folder(tmp_path, "train.txt", "train.labels.txt", "test.txt", "test.labels.txt")
    entry = dataset(format="pairs", source=str(source))
    assert set(acquire(entry, tmp_path / "raw")["files"].values()) == {
        *("train.txt", "train.labels.txt", "test.txt", "test.labels.txt")
    }


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "has no train split: wanted train.jsonl .*got an empty folder"),
        (("train.jsonl",), "has no test split: wanted test.jsonl .*got train.jsonl"),
        (("test.jsonl", "train.csv"), "has no train split"),
        (("train.jsonl", "train.jsonl.gz", "test.jsonl"), "train.jsonl and train.jsonl.gz for"),
        (("train.jsonl", "dev.jsonl", "valid.jsonl", "test.jsonl"), "valid.jsonl and dev.jsonl"),
    ],
)
def test_own_files_that_do_not_make_a_dataset_are_explained(tmp_path, names, message):
    source = own_folder(tmp_path, *names)
    with pytest.raises(DownloadError, match=message):
        acquire(dataset(source=str(source)), tmp_path / "raw")


def test_own_files_need_a_source_that_is_a_folder(tmp_path):
    with pytest.raises(DownloadError, match="coattail use x --data FOLDER"):
        acquire(dataset(), tmp_path / "raw")
    with pytest.raises(DownloadError, match="is no folder here"):
        acquire(dataset(source=str(tmp_path / "nowhere")), tmp_path / "raw")


def test_vectors_join_any_dataset(site, tmp_path):
    site.files = {"/glove.zip": zipped({"glove.txt": b"the 0.1 0.2\n", "other.txt": b""})}
    source = own_folder(tmp_path, "train.jsonl", "test.jsonl")
    given = vectors(
        name="glove",
        file={"name": "glove.txt"},
        archive={"name": "glove.zip", "address": f"{site.address}/glove.zip"},
    )
    manifest = acquire(dataset(source=str(source)), tmp_path / "raw", given)
    assert manifest["files"]["vectors"] == "glove.txt"
    assert (tmp_path / "raw/glove.txt").read_bytes() == b"the 0.1 0.2\n"
    assert (
        "vectors" not in acquire(dataset(source=str(source)), tmp_path / "raw", vectors())["files"]
    )


def test_the_demo_corpus_is_generated_the_same_every_time(tmp_path):
    small = {"train": 40, "valid": 10, "test": 10, "labels": 30, "words": 300}
    entry = dataset(name="demo", format="demo", demo=small)
    manifest = acquire(entry, tmp_path / "a")
    assert manifest == acquire(entry, tmp_path / "b")
    assert manifest["format"] == "jsonl"
    assert {"train", "valid", "test"} <= set(manifest["files"])
    found = list(documents(tmp_path / "a" / manifest["files"]["train"], manifest["format"]))
    assert len(found) == 40
    assert all(set(d.labels) <= set(d.complete or []) for d in found)


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_while_copying_is_a_clear_error(tmp_path, monkeypatch):
    source = own_folder(tmp_path, "train.jsonl", "test.jsonl")
    monkeypatch.setattr(shutil, "copyfile", full_disk)
    with pytest.raises(DownloadError, match=r"no space left for .*raw; make room"):
        acquire(dataset(source=str(source)), tmp_path / "raw")
    assert {path.name for path in tmp_path.iterdir()} == {"mine"}


def test_no_room_for_known_sizes_is_told_at_once(tmp_path, monkeypatch):
    source = own_folder(tmp_path, "train.jsonl", "test.jsonl")
    files = FILES | {"train": {"name": "train.jsonl", "size": 10**12}}
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**9))
    with pytest.raises(DownloadError, match=r"x needs 1,000,000\.0 MB but .* 1,000\.0 MB free"):
        acquire(dataset(source=str(source), files=files), tmp_path / "raw")


@pytest.mark.shared_data
def test_the_bibtex_entry_takes_its_files_from_a_folder(tmp_path):
    if not SHARED.exists():
        pytest.skip("../shared/data is absent")
    from coattail import registry

    conf = Path(__file__).parents[1] / "conf"
    section = registry.overlay("bibtex", conf=conf)["dataset"]
    entry = parse(section | {"source": str(SHARED / "bibtex")}, DatasetParams, "bibtex")
    assert acquire(entry, tmp_path / "raw")["files"] == {"train": "train.txt", "test": "test.txt"}
