"""The registry: every entry is complete, valid, and combinable."""

from __future__ import annotations

from pathlib import Path

import pytest

from coattail.config import parse, read_yaml
from coattail.data import dataset_params
from coattail.data.dataset_params import DatasetParams, FileParams, VectorsParams
from coattail.errors import ConfigError

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
SHARED = ROOT.parent / "shared" / "data"
DATASETS = sorted(path.stem for path in (CONF / "dataset").glob("*.yaml"))
VECTORS = sorted(path.stem for path in (CONF / "vectors").glob("*.yaml"))


def entry_of(kind: str, name: str) -> dict:
    return read_yaml(CONF / kind / f"{name}.yaml")


def dataset(name: str) -> DatasetParams:
    return parse(entry_of("dataset", name)["dataset"], DatasetParams, name)


def vectors(name: str) -> VectorsParams:
    return parse(entry_of("vectors", name)["vectors"], VectorsParams, name)


def test_the_sets_of_the_papers_are_there():
    wanted = {
        *("demo", "jsonl", "csv", "xmc", "eurlex57k", "bibtex", "delicious"),
        *("eurlex4k-xmlrepository", "eurlex4k-attentionxml", "eurlex4k-xbert", "wiki10-31k"),
        *("amazoncat-13k", "amazon-670k", "amazon-3m", "wiki-500k", "wikilshtc-325k"),
        *("aapd", "rcv1"),
    }
    assert wanted <= set(DATASETS)
    assert {"glove-6b-100d", "glove-840b-300d"} <= set(VECTORS)


@pytest.mark.parametrize("name", DATASETS)
def test_entry_passes_the_schema_and_is_named_like_its_file(name):
    content = entry_of("dataset", name)
    assert list(content) == ["dataset"], "a dataset overlay touches nothing but its section"
    entry = dataset(name)
    assert entry.name == name
    assert entry.title
    assert entry.note
    assert entry.licence
    if name not in ("demo", "jsonl", "csv", "pairs", "xmc"):
        assert entry.citation
        assert entry.labels
        assert entry.splits.train


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_entry_passes_the_schema_and_combines_with_any_dataset(name):
    content = entry_of("vectors", name)
    assert list(content) == ["vectors"]
    assert vectors(name).name in (name, None)


def test_entries_name_addresses_by_key_and_every_key_is_used_or_an_original():
    known = read_yaml(CONF / "addresses.yaml")
    used = set()
    for entry in [dataset(name) for name in DATASETS]:
        used |= {file.address for file in entry.files.values() if file.address}
    for found in [vectors(name) for name in VECTORS]:
        used |= {file.address for file in (found.file, found.archive) if file and file.address}
    assert used <= set(known)
    assert {key for key in known if not key.endswith("-original")} == used
    assert all(dataset_params.is_address(address) for address in known.values())


def test_propensity_constants_follow_the_papers():
    of = {name: (dataset(name).propensity.A, dataset(name).propensity.B) for name in DATASETS}
    assert of.pop("amazon-670k") == of.pop("amazon-3m") == (0.6, 2.6)
    assert of.pop("wiki-500k") == of.pop("wikilshtc-325k") == (0.5, 0.4)
    assert set(of.values()) == {(0.55, 1.5)}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["eurlex57k", "bibtex", "delicious"])
def test_known_sizes_are_those_of_the_files(name):
    if not SHARED.exists():
        pytest.skip("../shared/data is absent")
    for file in dataset(name).files.values():
        assert (SHARED / name / file.name).stat().st_size == file.size
        assert file.sha256 is not None


def test_address_is_looked_up_by_key_or_taken_as_it_is():
    direct = FileParams(name="a.txt", address="https://example.org/a.txt")
    assert dataset_params.address_of(direct) == "https://example.org/a.txt"
    by_key = FileParams(name="glove.6B.zip", address="glove-6b")
    assert dataset_params.address_of(by_key, CONF).endswith("/glove.6B.zip")
    assert dataset_params.address_of(FileParams(name="a.txt")) is None
    with pytest.raises(ConfigError, match=r"addresses\.yaml has no address 'glove-6'.*glove-6b"):
        dataset_params.address_of(FileParams(name="a", address="glove-6"), CONF)


def test_an_address_that_is_no_http_is_refused(tmp_path):
    (tmp_path / "addresses.yaml").write_text("a: ftp://example.org/a\n")
    with pytest.raises(ConfigError, match="starts with http"):
        dataset_params.address_of(FileParams(name="a", address="a"), tmp_path)


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "a\\b"])
def test_a_file_name_with_a_folder_is_refused(name):
    with pytest.raises(ConfigError, match="name"):
        parse({"name": name}, FileParams, "file")


BASE = {"name": "x", "format": "jsonl"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "demo"}, "format demo goes with"),
        ({"demo": {}}, "format demo goes with"),
        ({"format": "demo", "demo": {"A": 0.6}}, "demo.A: unknown parameter"),
        ({"files": {"train": {"name": "a"}, "test": {"name": "a"}}}, "same name"),
        ({"files": {"train": {"name": "a"}}}, "at least train and test"),
        ({"files": {"train": {"name": "a", "sha256": "xyz"}}}, "sha256"),
        ({"propensity": {"A": -1.0}}, "propensity"),
        ({"sorce": "a"}, "did you mean 'source'"),
        ({"format": "xml"}, "format"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        parse(BASE | change, DatasetParams, "dataset")


def test_vectors_need_a_name_and_a_file():
    assert parse({}, VectorsParams, "vectors").file is None
    with pytest.raises(ConfigError, match="both `name` and `file`"):
        parse({"name": "glove"}, VectorsParams, "vectors")
