"""Everything MLflow shows of one execution of the pipeline, as plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coattail.pipeline.candidates import Candidate
from coattail.tracking.publishing.pictures import Pictures
from coattail.tracking.record import RunRecord


@dataclass(frozen=True)
class Shown:
    """What is published, and how it looks."""

    dataset: str
    params: dict[str, Any]
    records: dict[str, RunRecord]  # by address
    candidates: dict[str, Candidate]
    metrics: dict[str, dict[str, float]]  # by candidate
    best: str  # the champion
    best_valid: float | None = None  # its figure on validation, by which it was chosen
    reason: str = ""  # why it is
    warnings: tuple[str, ...] = ()  # what speaks against it
    facts: dict[str, str] = field(default_factory=dict)  # both in pieces: tags of its version
    note: str = ""  # Markdown that MLflow shows as the parent's description
    notes: dict[str, str] = field(default_factory=dict)  # the same for candidates
    headline: tuple[str, ...] = ()  # metrics people compare by: columns of MLflow's pages
    best_by: str = "psp_at_5"
    files: dict[str, list[Path]] = field(default_factory=dict)  # artifacts of the parent by folder
    pictures: Callable[[str | None], Pictures] | None = None  # of a candidate, None: of all
    log_model: Callable[[str], str | None] | None = None  # logs into the active run: its address
    made: dict[str, str] | None = (
        None  # machine and git state it was made with, if not here and now
    )
    patch: bytes = b""  # what differed from the commit it was made at
    result: str = ""  # md5 of data/published.json, the name of these results in any store

    def model_of(self, name: str) -> str:
        """The name of a candidate's bytes in any store: the md5 of all that its stages computed."""
        made = {one: self.records[one].result().md5 for one in self.candidates[name].made_by}
        return _md5({"candidate": name, "made": made})

    def result_of(self, name: str) -> str:
        """The name of a candidate with its figures: equal ones are one run, whoever made them."""
        return _md5({"model": self.model_of(name), "metrics": self.metrics[name]})


def _md5(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
