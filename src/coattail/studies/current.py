"""A study beside what was found: rows whose params have changed since are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from coattail.studies import factorial, outcome, published, resolve, study_params, verdicts
from coattail.studies.figures import Figure
from coattail.studies.outcome import Found, StudyRan, pair
from coattail.studies.resolve import Sources
from coattail.studies.study_params import FOLDER, StudyParams
from coattail.studies.verdicts import Verdict


@dataclass(frozen=True)
class StudyStanding:
    """One study (or one on another dataset than its own) as it stands."""

    label: str
    study: StudyParams
    found: Found | None  # None: never run
    circumstances: StudyRan | None

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return verdicts.judge(self.study, self.found)

    @property
    def rows(self) -> list[str]:
        """Finished rows."""
        return [row for row in self.study.rows if self.found and row in self.found.rows]

    @property
    def missing(self) -> list[str]:
        return [row for row in self.study.rows if row not in self.rows]

    def figure(self, row: str, metric: str) -> Figure | None:
        return self.found.rows[row].figures.get(metric) if self.found else None

    def seconds(self, row: str) -> float | None:
        """Processor seconds of a row, mean over the seeds that somebody here measured."""
        spent = self.circumstances.cpu_seconds.get(row, []) if self.circumstances else []
        known = [one for one in spent if one is not None]
        return sum(known) / len(known) if known else None

    @property
    def gains(self) -> list[tuple[str, str, dict[str, Figure]]]:
        """Row, control, and the differences by metric."""
        listed = [(name, row.against) for name, row in self.study.rows.items() if row.against]
        found = self.found.differences if self.found else {}
        return [(a, b, found[pair(a, b)]) for a, b in listed if b and pair(a, b) in found]

    def published(self, row: str, metric: str) -> float | None:
        return published.of_row(self.study, row, metric)


def standing(label: str, folder: Path = FOLDER) -> StudyStanding:
    """By ``name``, or ``name@dataset`` for what was run on another dataset."""
    name, _, dataset = label.partition("@")
    study = study_params.load(name, folder)
    path = outcome.place(name, dataset or None, folder)
    if not path.exists():
        return StudyStanding(label, study, None, None)
    found = outcome.load(path)
    return StudyStanding(label, study, _current(study, found.found), found.circumstances)


def every(folder: Path = FOLDER) -> Iterator[StudyStanding]:
    """All studies, each followed by its runs on other datasets."""
    for name in study_params.names(folder):
        yield standing(name, folder)
        for path in sorted(folder.glob(f"{name}@*.json")):
            yield standing(path.stem, folder)


def _current(study: StudyParams, found: Found) -> Found:
    sources = Sources(found.dataset)
    rows = {
        row: one
        for row, one in found.rows.items()
        if row in study.rows and one.params == resolve.row_digest(study, row, sources)
    }
    both = {pair(a, b) for a in rows for b in rows}
    differences = {name: one for name, one in found.differences.items() if name in both}
    whole = factorial.rows(study).keys() <= rows.keys()
    wanted = factorial.effects(study) if whole else []
    effects = {name: found.effects[name] for name in wanted if name in found.effects}
    return replace(found, rows=rows, differences=differences, effects=effects)
