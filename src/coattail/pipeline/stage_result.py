"""What a stage computed, as the file in data/runs that DVC keeps beside its outputs.

It holds nothing that another run of the same computation would find different: no times, hosts or
ids. Those are in the journal (coattail.tracking.journal), found again by the md5 of this file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from coattail.errors import DataError
from coattail.files import atomic_file

RUNS = Path("data/runs")
LATE = {"evaluate": Path("data/evaluate.json")}
"""Results outside of RUNS: of stages after `candidates`, which reads that folder."""
TIMINGS = ("seconds", "_per_second")
"""Endings of the names of figures that no second run would repeat."""


def is_timing(figure: str) -> bool:
    return figure.endswith(TIMINGS)


@dataclass(frozen=True)
class Logged:
    """One value of a figure along the way: a loss, an nDCG on validation."""

    key: str
    value: float
    step: int


@dataclass(frozen=True)
class StageResult:
    """Params, figures and the md5 of every output of a stage."""

    stage: str
    variant: str | None
    params: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[Logged] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)  # what was found: the chosen calibration
    outs: dict[str, str] = field(default_factory=dict)  # DVC's md5 by path

    @property
    def address(self) -> str:
        """As DVC names the stage: train_linear@dismec."""
        return f"{self.stage}@{self.variant}" if self.variant else self.stage

    def repeatable(self) -> StageResult:
        """Without the figures that no second run would repeat."""
        metrics = {key: value for key, value in self.metrics.items() if not is_timing(key)}
        history = [point for point in self.history if not is_timing(point.key)]
        return replace(self, metrics=metrics, history=history)

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @property
    def md5(self) -> str:
        """DVC's md5 of this file: the name of what was computed, wherever it was computed."""
        return hashlib.md5(self.text().encode(), usedforsecurity=False).hexdigest()

    def save(self, data: Path = Path("data")) -> None:
        with atomic_file(place(self.address, data)) as path:
            path.write_text(self.text(), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> StageResult:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content["history"] = [Logged(**point) for point in content["history"]]
            return StageResult(**content)
        except FileNotFoundError:
            raise DataError(f"{path} is missing; dvc repro makes it") from None
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{path} is not the result of a stage ({error}); dvc repro -f remakes it"
            ) from None


def place(address: str, data: Path = Path("data")) -> Path:
    """Where the result of a stage is."""
    usual = RUNS / f"{address}.json"
    return data / LATE.get(address, usual).relative_to("data")


def results(addresses: list[str], data: Path = Path("data")) -> dict[str, StageResult]:
    """Results of stages by address."""
    return {address: StageResult.load(place(address, data)) for address in addresses}


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` as ``a.b, 1``; an empty mapping stays a value."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value
