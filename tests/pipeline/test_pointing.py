"""`coattail use --data`: a folder is looked at, named and taken in, or refused at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from coattail.cli.main import main
from coattail.config import read_yaml
from coattail.data import taking_in
from coattail.data.fetch import checksum
from coattail.errors import CoattailError, ConfigError, DataError, DownloadError
from coattail.pipeline import overlay
from coattail.pipeline.pointing import Own, own_standing

ROOT = Path(__file__).resolve().parents[2]
LINE = '{"text": "a b", "labels": ["x"]}\n'


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("DVC_ROOT", raising=False)
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    shutil.copytree(ROOT / "conf", "conf")
    return tmp_path


def corpus(folder: Path, **files: str) -> str:
    """A folder with a dataset in it."""
    folder.mkdir(parents=True)
    for name, content in (files or {"train_jsonl": LINE, "test_jsonl": LINE}).items():
        (folder / name.replace("_", ".")).write_text(content)
    return str(folder)


def test_a_folder_of_ones_own_is_named_after_itself_and_taken_in(project):
    corpus(project / "My News (2024)")
    overlay.use("jsonl", "../My News (2024)")
    params = read_yaml("params.yaml")
    assert params["dataset"]["name"] == "my-news-2024"
    assert params["dataset"]["source"] == "data/own/my-news-2024"
    assert params["dataset"]["taken_in"] == "data/own/my-news-2024"
    assert params["take_in"] == {"my-news-2024": {"folder": "../My News (2024)"}}
    standing = own_standing()
    assert standing is not None
    assert standing.relation == "new"


def test_there_and_back_to_the_demo_gives_the_same_bytes(project):
    before = Path("params.yaml").read_bytes()
    overlay.use("jsonl", corpus(project / "news"))
    overlay.use("demo", None)
    assert Path("params.yaml").read_bytes() == before
    assert own_standing() is None


def test_a_preset_leaves_the_folder_as_it_is(project):
    overlay.use("jsonl", corpus(project / "news"))
    overlay.use("preset/minimal", None)
    assert list(read_yaml("params.yaml")["take_in"]) == ["news"]


def test_the_same_folder_again_changes_nothing_and_keeps_its_name(project):
    overlay.use("jsonl", corpus(project / "news"), Own(name="gazette"))
    before = Path("params.yaml").read_bytes()
    assert overlay.use("jsonl", str(project / "news")) == ""
    assert Path("params.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "data", "own", "message"),
    [
        ("jsonl", "NOWHERE", Own(), "source 'NOWHERE' is no folder here"),
        ("eurlex57k", "NOWHERE", Own(), "source 'NOWHERE' is no folder here"),
        ("vectors/glove-6b-100d", "NOWHERE", Own(), "source 'NOWHERE' is no folder here"),
        ("jsonl", None, Own(), "coattail use jsonl --data FOLDER"),
        ("jsonl", "http://127.0.0.1/x", Own(), "from a folder, not an address"),
        ("demo", "..", Own(), "--data is for datasets"),
        ("preset/linear", "..", Own(), "--data is for datasets"),
        ("bibtex", "..", Own(name="mine"), "for data of your own"),
        ("jsonl", "../news", Own(name="My News"), "small letters, digits and hyphens only"),
        ("jsonl", "../news", Own(name="bibtex"), "there is a dataset 'bibtex' already"),
        ("jsonl", "../news", Own(separator=";"), "columns and separator are for csv"),
        ("csv", "../news", Own(), "no train split: wanted train.csv"),
        ("bibtex", "../news", Own(), "has no train.txt"),
        ("vectors/glove-6b-100d", "../news", Own(), "has no glove.6B.100d.txt"),
    ],
)
def test_what_cannot_work_is_refused_at_once_and_nothing_is_written(
    project, name, data, own, message
):
    corpus(project / "news")
    before = Path("params.yaml").read_bytes()
    with pytest.raises(CoattailError, match=message):
        overlay.use(name, data, own)
    assert Path("params.yaml").read_bytes() == before
    assert not Path(".dvc").exists()


def test_two_folders_of_one_name_do_not_become_one_dataset(project):
    overlay.use("jsonl", corpus(project / "a" / "news"))
    with pytest.raises(ConfigError, match=r"'news' is that of .*a/news.*--name NAME"):
        overlay.use("jsonl", corpus(project / "b" / "news"))
    overlay.use("jsonl", str(project / "b" / "news"), Own(name="news-b"))
    assert list(read_yaml("params.yaml")["take_in"]) == ["news-b"]
    shutil.rmtree(project / "a" / "news")  # it was moved
    overlay.use("jsonl", corpus(project / "c" / "news"))
    assert list(read_yaml("params.yaml")["take_in"]) == ["news"]


def test_naming_a_folder_again_makes_it_count_whatever_the_copy_holds(project):
    news = corpus(project / "news")
    corpus(Path("data/own/news"), train_jsonl=LINE * 2, test_jsonl=LINE)
    overlay.use("jsonl", news)
    standing = own_standing()
    assert standing is not None
    assert standing.relation == "changed"


def test_columns_and_separator_of_a_csv_are_written_down(project):
    table = "body,tags\na,x;y\n"
    news = corpus(project / "news", train_csv=table, test_csv=table)
    with pytest.raises(DataError, match="wanted columns text and labels"):
        overlay.use("csv", news)
    with pytest.raises(DataError, match="--separator ';'"):
        overlay.use("csv", news, Own(text_column="body", label_column="tags"))
    words = ["use", "csv", "--data", news, "--text-column", "body", "--label-column", "tags"]
    result = CliRunner().invoke(main, [*words, "--separator", ";", "--name", "table"])
    assert result.exit_code == 0, result.output
    section = read_yaml("params.yaml")["dataset"]
    assert (section["text_column"], section["label_column"]) == ("body", "tags")
    assert (section["name"], section["label_separator"]) == ("table", ";")


def test_a_known_dataset_whose_files_have_checksums_is_read_where_it_is(project):
    conf = Path("conf/dataset/bibtex.yaml")
    content = "2 3 3\n0 1:1\n1 2:1\n"
    folder = corpus(project / "mirror", train_txt=content, test_txt=content)
    with pytest.raises(DownloadError, match="got 18 bytes; wanted 2,190,017"):
        overlay.use("bibtex", folder)
    conf.write_text(conf.read_text().replace("2190017", "18").replace("1137468", "18"))
    overlay.use("bibtex", folder)
    params = read_yaml("params.yaml")
    assert params["dataset"]["source"] == folder
    assert params["take_in"] == {}


def test_a_known_dataset_without_checksums_is_taken_in(project):
    line = '{"text": "a", "labels": []}\n'
    files = {f"{split}_jsonl": line for split in ("train", "valid", "test")}
    folder = corpus(project / "converted", **files)
    overlay.use("eurlex4k-xbert", folder)
    params = read_yaml("params.yaml")
    assert params["dataset"]["name"] == "eurlex4k-xbert"
    assert params["dataset"]["source"] == "data/own/eurlex4k-xbert"
    assert params["take_in"] == {"eurlex4k-xbert": {"folder": folder}}


def test_vectors_from_a_folder_get_the_checksum_they_had(project):
    folder = corpus(project / "vectors", **{"glove_6B_100d_txt": "the 0.1\n"})
    (project / "vectors" / "glove.6B.100d.txt").write_text("the 0.1\n")
    overlay.use("vectors/glove-6b-100d", folder)
    section = read_yaml("params.yaml")["vectors"]
    assert section["source"] == folder
    assert section["file"]["sha256"] == checksum(project / "vectors" / "glove.6B.100d.txt")
    assert read_yaml("params.yaml")["dataset"]["source"] is None


def test_dvc_forgets_a_folder_that_is_not_in_use(project):
    overlay.use("jsonl", corpus(project / "news"))
    entry = "  take_in@news:\n    cmd: python -m stages.take_in news\n    outs:\n    - path: x\n"
    lock = f"schema: '2.0'\nstages:\n  download:\n    cmd: x\n{entry}  preprocess:\n    cmd: y\n"
    Path("dvc.lock").write_text(lock)
    overlay.use("preset/minimal", None)
    assert Path("dvc.lock").read_text() == lock
    overlay.use("demo", None)
    assert Path("dvc.lock").read_text() == lock.replace(entry, "")


def test_sections_that_do_not_belong_together_are_refused(project):
    overlay.use("jsonl", corpus(project / "news"))
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("  news:\n", "  olds:\n"))
    with pytest.raises(ConfigError, match="do not belong together; coattail use NAME --data"):
        overlay.use("preset/minimal", None)
    assert taking_in.taken_from("news") == str(project / "news")
