"""The numbers of a training as CSV, one row per step, for `dvc plots`."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from coattail.files import atomic_file


class Value(Protocol):
    """One logged number: its name, value and step."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> float: ...

    @property
    def step(self) -> int: ...


def write(path: str | Path, history: Iterable[Value]) -> None:
    """A row per step, a column per name; empty where a step has no such number."""
    history = list(history)
    keys = list(dict.fromkeys(point.key for point in history))
    rows: dict[int, dict[str, float]] = {}
    for point in history:
        rows.setdefault(point.step, {})[point.key] = point.value
    with atomic_file(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", *keys])
        for step, values in sorted(rows.items()):
            writer.writerow([step, *(f"{values[k]:.6g}" if k in values else "" for k in keys)])
