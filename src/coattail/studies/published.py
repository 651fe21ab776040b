"""studies/published.csv: every figure that the five papers print."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from coattail.errors import DataError
from coattail.studies.study_params import FOLDER, StudyParams

FILE = FOLDER / "published.csv"
COLUMNS = ("paper", "table", "dataset", "method", "metric", "value")
SPELLINGS = {
    "p": ("P",),
    "ndcg": ("nDCG", "nD", "N"),
    "psp": ("PSP",),
    "psndcg": ("PSN", "PnD"),
}
"""How the papers write the ranked metrics."""
OTHERS = {
    "micro_f1": ("micro-F1",),
    "scored_change": ("relative scored %",),
    "plain_change": ("relative plain %",),
}


@cache
def read(path: Path = FILE) -> dict[tuple[str, ...], float]:
    """(paper, table, dataset, method, metric) -> the figure as it is printed."""
    figures: dict[tuple[str, ...], float] = {}
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise DataError(f"{path}: got columns {rows.fieldnames}, wanted {list(COLUMNS)}")
        for number, row in enumerate(rows, 2):
            try:
                figures[tuple(row[name] for name in COLUMNS[:-1])] = float(row["value"])
            except (TypeError, ValueError):
                raise DataError(
                    f"{path}:{number}: got value {row['value']!r}, wanted a number"
                ) from None
    return figures


def spellings(metric: str) -> Sequence[str]:
    """What the papers may call one of our metrics."""
    name, _, k = metric.partition("_at_")
    return [f"{one}@{k}" for one in SPELLINGS.get(name, ())] if k else OTHERS.get(metric, ())


def of_row(study: StudyParams, row: str, metric: str, path: Path = FILE) -> float | None:
    """The paper's figure for a row; None where it prints none."""
    source = study.rows[row].published
    if source is None or study.paper_dataset is None:
        return None
    figures = read(path)
    for table in study.tables:
        for spelling in spellings(metric):
            place = (study.paper, table, study.paper_dataset)
            found = figures.get((*place, source.method, spelling))
            more = figures.get((*place, source.method, f"gain {spelling}"))
            if source.plus_gain:
                found = None if found is None or more is None else round(found + more, 2)
            if found is None and source.also is not None:
                found = figures.get((*place, source.also, spelling))
            if found is not None:
                return found
    return None


def gain(study: StudyParams, row: str, against: str, metric: str) -> float | None:
    """What the paper gains from one row to another."""
    mine, other = of_row(study, row, metric), of_row(study, against, metric)
    return None if mine is None or other is None else round(mine - other, 2)


def check(study: StudyParams, path: Path = FILE) -> list[str]:
    """Rows that name a method the paper's tables do not have."""
    known = {
        key[3]
        for key in read(path)
        if key[0] == study.paper and key[1] in study.tables and key[2] == study.paper_dataset
    }
    return [
        f"rows.{name}.published.method: {study.paper}, tables {', '.join(study.tables)} of "
        f"{study.paper_dataset} have no {row.published.method!r}; there is {sorted(known)}"
        for name, row in study.rows.items()
        if row.published is not None
        and not {row.published.method, row.published.also or row.published.method} <= known
    ]
