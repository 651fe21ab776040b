"""A folder and its copy: the newer one counts where that is known, and nothing is guessed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from coattail.config import parse
from coattail.data import fetch, taking_in
from coattail.data.dataset_params import DatasetParams, TakeInParams
from coattail.errors import DataError

LINE = '{"text": "a b", "labels": ["x"]}\n'
OTHER = '{"text": "a b", "labels": ["y"]}\n'
COPY = Path("data/own/mine")
DATASET = parse({"name": "mine", "format": "jsonl"}, DatasetParams, "dataset")
OWN = TakeInParams(folder="../corpus")


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    """The folder ../corpus beside a project."""
    project, folder = tmp_path / "project", tmp_path / "corpus"
    project.mkdir()
    folder.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    (folder / "train.jsonl").write_text(LINE * 3)
    (folder / "test.jsonl").write_text(LINE)
    (folder / "notes.md").write_text("not of the dataset")
    return folder


def run() -> None:
    taking_in.take_in(DATASET, OWN, COPY)


def relation() -> str:
    return taking_in.standing(DATASET, OWN).relation


def test_the_files_of_the_dataset_are_copied_and_nothing_else(corpus):
    assert relation() == "new"
    run()
    assert {path.name for path in COPY.iterdir()} == {"train.jsonl", "test.jsonl"}
    assert (COPY / "train.jsonl").read_text() == LINE * 3
    assert relation() == "same"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: (c / "train.jsonl").write_text(OTHER * 3), ["has changed"]),
        (lambda c: (c / "train.jsonl").write_text(LINE * 4), ["train.jsonl has changed"]),
        (lambda c: (c / "valid.jsonl").write_text(LINE), ["valid.jsonl is new"]),
        (
            lambda c: (c / "train.jsonl").rename(c / "trn.jsonl"),
            ["train.jsonl is gone", "trn.jsonl is new"],
        ),
    ],
)
def test_a_change_in_the_folder_is_told_and_taken_in(corpus, change, told):
    run()
    change(corpus)
    found = taking_in.standing(DATASET, OWN)
    assert found.relation == "changed"
    assert all(words in found.sentence for words in told)
    run()
    assert relation() == "same"
    names = {path.name for path in corpus.iterdir()} - {"notes.md"}
    assert {path.name: path.read_text() for path in COPY.iterdir()} == {
        name: (corpus / name).read_text() for name in names
    }


def test_a_change_that_keeps_size_and_time_of_a_fresh_file_is_noticed(corpus):
    run()
    place = corpus / "train.jsonl"
    before = place.stat()
    place.write_text(OTHER * 3)
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert relation() == "changed"


def test_files_that_rest_are_read_once(corpus, monkeypatch):
    long_ago = time.time() - 3600
    for path in corpus.iterdir():
        os.utime(path, (long_ago, long_ago))
    run()
    for path in COPY.iterdir():
        os.utime(path, (long_ago, long_ago))
    assert relation() == "same"
    monkeypatch.setattr(taking_in, "checksum", lambda path: pytest.fail(f"{path} was read"))
    assert relation() == "same"


def test_a_folder_that_is_gone_is_no_problem_while_the_copy_is_there(corpus, caplog):
    run()
    shutil.rmtree(corpus)
    before = (COPY / "train.jsonl").stat().st_mtime_ns
    run()
    assert (COPY / "train.jsonl").stat().st_mtime_ns == before
    shutil.rmtree(COPY)
    with pytest.raises(DataError, match=r"neither is \.\./corpus.*dvc pull data/own/mine"):
        run()


def test_a_copy_that_was_edited_counts_and_is_not_overwritten(corpus):
    run()
    (COPY / "train.jsonl").write_text(LINE * 9)
    assert relation() == "edited"
    run()
    assert (COPY / "train.jsonl").read_text() == LINE * 9


def test_where_both_have_changed_nothing_is_overwritten_and_the_ways_out_are_named(corpus):
    run()
    (COPY / "train.jsonl").write_text(LINE * 9)
    (corpus / "train.jsonl").write_text(LINE * 5)
    with pytest.raises(DataError) as error:
        run()
    assert "coattail use jsonl --data ../corpus --name mine" in str(error.value)
    assert "take_in.mine.folder to null" in str(error.value)
    assert (COPY / "train.jsonl").read_text() == LINE * 9
    taking_in.consent("mine", "../corpus")
    run()
    assert (COPY / "train.jsonl").read_text() == LINE * 5


def test_a_colleague_with_another_folder_of_that_name_is_asked(corpus):
    run()
    shutil.rmtree(taking_in.MEMORY)
    run()  # the same bytes: nothing to ask
    shutil.rmtree(taking_in.MEMORY)
    (corpus / "train.jsonl").write_text(LINE * 5)
    assert relation() == "unclear"
    with pytest.raises(DataError, match="is not what data/own/mine holds"):
        run()


def test_the_command_that_is_named_keeps_what_was_said_of_the_folder():
    table = {"name": "t", "format": "csv", "text_column": "the body", "label_separator": ";"}
    entry = parse(table, DatasetParams, "dataset")
    assert taking_in.command_for(entry, "../My news") == (
        "coattail use csv --data '../My news' --name t --text-column 'the body' "
        "--label-column labels --separator ';'"
    )
    files = {"train": {"name": "a"}, "test": {"name": "b"}}
    known = parse({"name": "aapd", "format": "pairs", "files": files}, DatasetParams, "dataset")
    assert taking_in.command_for(known, "x") == "coattail use aapd --data x"


def test_without_a_folder_the_copy_is_all_there_is(corpus):
    run()
    alone = TakeInParams(folder=None)
    taking_in.take_in(DATASET, alone, COPY)
    assert taking_in.standing(DATASET, alone).relation == "away"


def test_an_experiment_of_the_queue_finds_the_folder_from_the_project(corpus, monkeypatch):
    run()
    project = Path.cwd()
    elsewhere = project / ".dvc/tmp/exps/one"
    shutil.copytree(project / "data", elsewhere / "data")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("DVC_ROOT", str(project))
    (corpus / "test.jsonl").write_text(LINE * 2)
    with pytest.raises(DataError, match=r"test\.jsonl has changed"):
        run()
    (corpus / "test.jsonl").write_text(LINE)
    run()


def test_a_broken_correction_is_refused_and_the_copy_stays(corpus):
    run()
    (corpus / "train.jsonl").write_text(LINE + '{"text": "a"}\n')
    with pytest.raises(DataError, match=r"train\.jsonl, line 2: .*labels"):
        run()
    assert (COPY / "train.jsonl").read_text() == LINE * 3
    assert relation() == "changed"


def test_what_is_cut_off_while_it_copies_leaves_the_old_copy(corpus, monkeypatch):
    run()
    (corpus / "train.jsonl").write_text(LINE * 5)
    monkeypatch.setattr(shutil, "copyfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.undo()
    os.chdir(corpus.parent / "project")
    assert (COPY / "train.jsonl").read_text() == LINE * 3
    assert [path.name for path in COPY.parent.iterdir()] == ["mine"]
    assert relation() == "changed"


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_damaged_memory_is_no_memory(corpus):
    run()
    (taking_in.MEMORY / "mine.json").write_text("{")
    assert relation() == "same"
    assert fetch.checksum(COPY / "test.jsonl") == fetch.checksum(corpus / "test.jsonl")
