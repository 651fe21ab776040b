"""Datasets from mirrors, archives and folders: complete with a manifest, or not at all."""

from __future__ import annotations

import errno
import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coattail.config import parse, read_yaml
from coattail.data.dataset_params import DatasetParams, VectorsParams
from coattail.data.download import acquire, check_source
from coattail.data.formats.documents import documents
from coattail.errors import DownloadError
from tests.webserver import sha, site, tarred, zipped

__all__ = ["site"]

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
LINE = b'{"text": "a b", "labels": ["x"]}\n'


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


def test_an_experiment_of_the_queue_finds_a_folder_beside_the_project(tmp_path, monkeypatch):
    own_folder(tmp_path, "train.jsonl", "test.jsonl")
    (tmp_path / "project" / "exps" / "one").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "exps" / "one")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "project"))
    assert set(acquire(dataset(source="../mine"), Path("raw"))["files"]) == {"train", "test"}


def test_files_that_could_change_unnoticed_are_refused(tmp_path):
    pinned = {
        "train": {"name": "a", "sha256": sha(LINE)},
        "test": {"name": "b", "sha256": sha(LINE)},
    }
    packed = {"archive": {"name": "x.zip", "sha256": sha(LINE)}, "train": {"name": "a"}}
    check_source(dataset(source="../mirror", files=pinned))
    check_source(dataset(source="../mirror", files=packed | {"test": {"name": "b"}}))
    check_source(dataset(source="http://127.0.0.1/", files=FILES))
    check_source(dataset(source="data/own/x", taken_in="data/own/x"))
    with pytest.raises(DownloadError, match=r"coattail use x --data \.\./mirror"):
        check_source(dataset(source="../mirror", files=FILES))
    with pytest.raises(DownloadError, match=r"coattail use jsonl --data \.\./mirror"):
        check_source(dataset(source="../mirror"))


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
    conf = Path(__file__).parents[2] / "conf"
    section = read_yaml(conf / "dataset" / "bibtex.yaml")["dataset"]
    entry = parse(section | {"source": str(SHARED / "bibtex")}, DatasetParams, "bibtex")
    assert acquire(entry, tmp_path / "raw")["files"] == {"train": "train.txt", "test": "test.txt"}
