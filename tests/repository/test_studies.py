"""The studies of this repository: every file is sound, every page says what its figures say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coattail.errors import DataError
from coattail.studies import current, running, study_pages, study_params
from coattail.studies.resolve import Sources

ROOT = Path(__file__).resolve().parents[2]
READ = ("studies", "conf", "params.yaml")


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", study_params.names(ROOT / "studies"))
def test_a_study_can_be_run(name: str) -> None:
    """Params of all rows are accepted, controls differ as they say, methods are in the paper."""
    study = study_params.load(name)
    running.check(study, Sources(study.dataset))


def test_pages_and_verdicts_are_those_of_the_figures() -> None:
    """A changed claim, a rerun and an edit by hand all show here; the remedy is one command."""
    differing = study_pages.differing()
    assert not differing, f"coattail study write makes {', '.join(map(str, differing))}"


def test_committed_figures_are_of_the_rows_as_they_stand() -> None:
    for one in current.every():
        assert one.found is None or not one.missing, f"coattail study run {one.label}"


def test_an_edited_page_a_changed_claim_and_a_stray_page_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in READ:
        (shutil.copytree if Path(name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    shutil.copytree(study_pages.SUMMARY.parent, tmp_path / study_pages.SUMMARY.parent)
    monkeypatch.chdir(tmp_path)
    assert not study_pages.differing()
    label = next(one.label for one in current.every() if one.found is not None)
    edited = study_pages.FOLDER / f"{label}.md"
    before = edited.read_text(encoding="utf-8")
    edited.write_text(before.replace("holds", "holds for certain", 1), encoding="utf-8")
    stray = study_pages.FOLDER / "gone.md"
    stray.write_text("# A study that is no more\n")
    assert study_pages.differing() == [stray, edited]
    assert set(study_pages.write()) == {stray, edited}
    assert edited.read_text(encoding="utf-8") == before
    claims = Path("studies", f"{label}.yaml")
    text = claims.read_text(encoding="utf-8")
    claims.write_text(text.replace("judged: rises", "judged: falls", 1), encoding="utf-8")
    assert set(study_pages.differing()) == {edited, study_pages.SUMMARY}

    page = study_pages.SUMMARY.read_text(encoding="utf-8")
    study_pages.SUMMARY.write_text(page.replace(study_pages.END, ""), encoding="utf-8")
    with pytest.raises(DataError, match="lacks the line"):
        study_pages.write()
    study_pages.SUMMARY.write_text(f"{page}By hand.\n", encoding="utf-8")
    study_pages.write()
    assert study_pages.SUMMARY.read_text(encoding="utf-8").endswith("By hand.\n")
