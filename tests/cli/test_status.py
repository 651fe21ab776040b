"""`coattail status` says what of the folder in use is new, and is silent about mere looking."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coattail.cli import doctor, status
from coattail.config import parse, read_yaml
from coattail.data import taking_in
from coattail.data.dataset_params import DatasetParams, TakeInParams
from coattail.pipeline import overlay

ROOT = Path(__file__).resolve().parents[2]
LINE = '{"text": "a b", "labels": ["x"]}\n'
LOOKS = "take_in@news:\n\talways changed\n"
OTHER = "download:\n\tchanged deps:\n\t\tmodified:           data/own/news\n"


@pytest.fixture
def news(tmp_path, monkeypatch) -> Path:
    """The folder ../news, in use and taken in."""
    folder = tmp_path / "news"
    (tmp_path / "project").mkdir()
    folder.mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("DVC_ROOT", raising=False)
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    shutil.copytree(ROOT / "conf", "conf")
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(LINE)
    overlay.use("jsonl", "../news")
    take_in()
    return folder


def take_in() -> None:
    dataset = parse(read_yaml("params.yaml")["dataset"], DatasetParams, "dataset")
    taking_in.take_in(dataset, TakeInParams(folder="../news"), Path("data/own/news"))


def told(monkeypatch, dvc: str) -> str:
    monkeypatch.setattr(status, "_dvc", lambda *words: dvc if words == ("status",) else "")
    return status.status()


def doctors() -> tuple[str, str]:
    (found,) = [one for one in doctor.examine() if "news" in one.what]
    return found.level, found.what


def test_a_folder_as_it_was_taken_in_is_nothing_to_speak_of(news, monkeypatch):
    assert told(monkeypatch, LOOKS) == status.UP_TO_DATE
    assert told(monkeypatch, LOOKS + OTHER) == OTHER
    assert told(monkeypatch, OTHER + LOOKS) == OTHER
    assert doctors() == ("ok", "../news is as it was taken in")


def test_other_reasons_to_run_the_look_are_told(news, monkeypatch):
    reason = "take_in@news:\n\tchanged deps:\n\t\tmodified:           data/code/take_in.txt\n"
    assert told(monkeypatch, reason + "\talways changed\n").startswith(reason)


def test_a_folder_that_has_changed_comes_first(news, monkeypatch):
    (news / "test.jsonl").write_text(LINE * 2)
    sentence = "../news has changed since it was taken in: test.jsonl has changed"
    found = told(monkeypatch, LOOKS + OTHER)
    assert found == f"take_in: {sentence}{status.TAKEN}\n{OTHER}"
    assert doctors() == ("note", sentence)
    take_in()
    assert told(monkeypatch, LOOKS) == status.UP_TO_DATE


def test_a_folder_that_is_gone_and_a_copy_that_is_gone_too(news, monkeypatch):
    shutil.rmtree(news)
    assert told(monkeypatch, LOOKS) == status.UP_TO_DATE
    assert doctors() == ("ok", "../news is not here; the copy of it is used")
    shutil.rmtree("data/own/news")
    assert "neither ../news nor the copy of it is here" in told(monkeypatch, LOOKS)
    assert doctors()[0] == "problem"
