"""studies/<name>.json: what a run of a study leaves, small enough to be committed.

``found`` repeats to the byte when the study is run again; ``circumstances`` do not. A run that
finds the same leaves the file as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coattail.errors import DataError
from coattail.files import atomic_file
from coattail.studies.figures import Figure
from coattail.studies.study_params import FOLDER

DIGITS = 3


@dataclass(frozen=True)
class RowFound:
    """A finished row."""

    params: str  # digest of what it was computed from
    rankings: dict[str, str]  # seed -> digest of the ranking of the test texts
    figures: dict[str, Figure]
    by_seed: dict[str, list[float]]
    unconverged: list[str] = field(default_factory=list)  # reasons; empty: it converged


@dataclass(frozen=True)
class Found:
    """Everything that another run of the same study finds again."""

    dataset: str
    data: str  # digest of the test labels and the propensities
    processor: str  # any: the same bytes on every Intel or AMD processor; native
    texts: dict[str, int]
    labels: int
    labels_per_text: float
    seeds: list[int]
    resamples: int
    rows: dict[str, RowFound]
    differences: dict[str, dict[str, Figure]]  # "row - against" -> metric -> difference
    effects: dict[str, dict[str, Figure]] = field(default_factory=dict)  # of a factorial


@dataclass(frozen=True)
class StudyRan:
    """Of the run that made the file."""

    commit: str
    processor: str
    cpu_seconds: dict[str, list[float | None]]  # row -> per seed, of all stages that make it


@dataclass(frozen=True)
class StudyOutcome:
    study: str
    found: Found
    circumstances: StudyRan

    def text(self) -> str:
        """JSON with one line per figure; NaN is null."""
        text = json.dumps(_plain(asdict(self)), indent=1, ensure_ascii=False)
        return re.sub(r"([\[{])\n\s+([^\[\]{}]*?)\n\s+([\]}])", _one_line, text) + "\n"


def _one_line(match: re.Match[str]) -> str:
    inner = re.sub(r"\n\s+", " ", match[2])
    return f"{match[1]}{inner}{match[3]}"


def pair(row: str, against: str) -> str:
    return f"{row} - {against}"


def place(name: str, dataset: str | None = None, folder: Path = FOLDER) -> Path:
    """Where the outcome of a study is; on another dataset than its own it is apart."""
    return folder / (f"{name}@{dataset}.json" if dataset else f"{name}.json")


def save(outcome: StudyOutcome, path: Path) -> bool:
    """Write the file unless it holds the same findings; whether it was written."""
    try:
        if _same(load(path), outcome):
            return False
    except DataError:  # none yet, or of an earlier version
        pass
    with atomic_file(path) as temporary:
        temporary.write_text(outcome.text(), encoding="utf-8")
    return True


def _same(one: StudyOutcome, other: StudyOutcome) -> bool:
    return bool(_plain(asdict(one.found)) == _plain(asdict(other.found)))


def load(path: Path) -> StudyOutcome:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["found"]
        rows = {
            name: RowFound(**row | {"figures": _figures(row["figures"])})
            for name, row in found["rows"].items()
        }
        both = {
            part: {name: _figures(one) for name, one in found.get(part, {}).items()}
            for part in ("differences", "effects")
        }
        return StudyOutcome(
            content["study"],
            Found(**found | {"rows": rows} | both),
            StudyRan(**content["circumstances"]),
        )
    except FileNotFoundError:
        raise DataError(f"{path} is missing; coattail study run {path.stem} makes it") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is not the outcome of a study ({error!r}); take it from git, or run it again"
        ) from None


def _figures(content: Mapping[str, list[float | None]]) -> dict[str, Figure]:
    return {
        name: Figure(*(math.nan if value is None else value for value in values))
        for name, values in content.items()
    }


def _plain(value: Any) -> Any:
    """Rounded, NaN as null, tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, DIGITS) + 0.0
    return value
