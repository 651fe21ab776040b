"""One file over HTTP, from a server that cuts connections, lies and forgets."""

from __future__ import annotations

import errno
import shutil
from typing import Any

import numpy as np
import pytest

from coattail.data import fetch
from coattail.errors import DownloadError
from tests.webserver import Site, sha, site

__all__ = ["site"]

BODY = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def big(site) -> Site:
    site.files["/big"] = BODY
    return site


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
