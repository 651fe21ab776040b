"""When, where, by whom and how fast: what DVC must not hash, kept beside what it does.

An entry is found by the md5 of what was computed (data/runs/*.json, data/published.json; dvc.lock
has the same md5). Entries of this machine are files of the project; those of others come with an
export, or are found in the MLflow store by the same md5 (coattail.tracking.delivery).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coattail.files import atomic_file
from coattail.pipeline.stage_result import StageResult, results
from coattail.tracking.record import RunRecord
from coattail.tracking.store import root


def folder() -> Path:
    """In the project itself, also for experiments that run in a copy of it."""
    return root() / ".dvc" / "tmp" / "coattail" / "journal"


def entry(md5: str) -> Path:
    return folder() / f"{md5}.json"


def keep(record: RunRecord) -> None:
    """The newest run that computed this is the one that is remembered."""
    record.save(entry(record.result().md5))


def learn(record: RunRecord) -> None:
    """Note in which runs of MLflow a record is shown, if its entry is not of a newer run."""
    path = entry(record.result().md5)
    if path.exists() and RunRecord.load(path).uid == record.uid:
        record.save(path)


def record_of(result: StageResult) -> RunRecord:
    """The run that made a result; without its circumstances if this project does not know them."""
    path = entry(result.md5)
    return RunRecord.load(path) if path.exists() else RunRecord.of_result(result)


def records(addresses: list[str], data: Path = Path("data")) -> dict[str, RunRecord]:
    """Runs of stages by address."""
    return {address: record_of(one) for address, one in results(addresses, data).items()}


def keep_publication(md5: str, facts: dict[str, Any]) -> None:
    """Where results were published: ids in the store, state of git, machine."""
    with atomic_file(entry(md5)) as path:
        path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def publication(md5: str) -> dict[str, Any]:
    """What keep_publication kept; nothing if it was elsewhere."""
    path = entry(md5)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content
