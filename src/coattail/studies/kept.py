"""What is kept of every row at every seed while a study is under way, and gone on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.evaluation.metrics import Ratio
from coattail.files import atomic_file
from coattail.pipeline.candidates import candidates
from coattail.pipeline.stage_result import StageResult, place
from coattail.studies import resolve
from coattail.studies.figures import RowJudge
from coattail.studies.resolve import Content
from coattail.studies.study_params import StudyParams
from coattail.tracking import journal

RISING = "valid_ndcg_at_5"
"""What networks log per epoch and are chosen by."""


@dataclass(frozen=True)
class Ran:
    """A row at one seed."""

    params: str
    code: str
    processor: str  # any, native
    ranking: str
    data: str
    texts: dict[str, int]
    labels: int
    labels_per_text: float
    unconverged: list[str]
    cpu_seconds: float | None


class KeptRows:
    """A folder with two files per row and seed: the facts, and the figures' parts per text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ran(self, row: str, seed: int) -> Ran | None:
        """What is there of a row at one seed."""
        path = self._place(row, seed, "json")
        try:
            return Ran(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, TypeError, ValueError):  # not there, or of an earlier version
            return None

    def ratios(self, row: str, seed: int) -> dict[str, Ratio]:
        with np.load(self._place(row, seed, "npz"), allow_pickle=False) as file:
            return {name: Ratio(*file[name]) for name in file.files}

    def keep(self, row: str, seed: int, ran: Ran, ratios: Mapping[str, Ratio]) -> None:
        """The facts last: a row whose facts are there is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._place(row, seed, "json").unlink(missing_ok=True)
        with atomic_file(self._place(row, seed, "npz")) as path, open(path, "wb") as file:
            parts: dict[str, Any] = {name: np.stack(one) for name, one in ratios.items()}
            np.savez_compressed(file, **parts)
        with atomic_file(self._place(row, seed, "json")) as path:
            path.write_text(json.dumps(asdict(ran), indent=1) + "\n", encoding="utf-8")

    def _place(self, row: str, seed: int, kind: str) -> Path:
        return self.folder / f"{row}-seed-{seed}.{kind}"


def look(
    study: StudyParams, row: str, content: Content, code: str, data: Path
) -> tuple[Ran, dict[str, Ratio]]:
    """Judge the ranking of a row that stands in ``data``."""
    one = candidates(content)[study.rows[row].candidate]
    features = Features(data / "features")
    valid, test = (TopK.load(data / "ranked" / one.name / f"{s}.npz") for s in ("valid", "test"))
    made = [StageResult.load(place(address, data)) for address in one.made_by[2:]]
    Y, stats = features.Y("test"), features.stats
    ran = Ran(
        params=resolve.digest(content),
        code=code,
        processor=content.get("processor", "any"),
        ranking=_digest(test.labels, test.scores),
        data=_digest(Y.indptr, Y.indices, features.inverse_propensity),
        texts={split: stats[f"texts_{split}"] for split in ("train", "valid", "test")},
        labels=features.n_labels,
        labels_per_text=stats["labels_per_text"],
        unconverged=_unconverged(made, features.n_labels, study.unconverged),
        cpu_seconds=_cpu_seconds(made),
    )
    return ran, RowJudge(features).ratios(valid, test, study.columns)


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _cpu_seconds(made: Sequence[StageResult]) -> float | None:
    """Of all stages behind a row but those of the data; None if nobody here knows."""
    spent = [journal.record_of(one).metrics.get("cpu_seconds") for one in made]
    known = [one for one in spent if one is not None]
    return round(sum(known), 1) if len(known) == len(spent) else None


def _unconverged(made: Sequence[StageResult], labels: int, allowed: float) -> list[str]:
    """Why a row gives no verdict: its training ended too early."""
    reasons = []
    for one in made:
        count = int(one.metrics.get("unconverged", 0))
        if count > allowed * labels:
            reasons.append(f"{one.address}: {count} classifiers ended at their limit")
        curve = [point.value for point in one.history if point.key == RISING]
        epochs = one.params.get("epochs")
        if len(curve) > 1 and len(curve) == epochs and curve[-1] == max(curve):
            reasons.append(f"{one.address}: the last of {epochs} epochs was the best")
    return reasons
