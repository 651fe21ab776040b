"""The project's folder as a whole: what belongs in data/, and what MLflow should show of it."""

from __future__ import annotations

import gzip
import json
import logging
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from coattail.config import load, read_yaml
from coattail.errors import DataError
from coattail.evaluation import leaderboard
from coattail.evaluation import plots as drawn
from coattail.evaluation.scoring import Evaluation
from coattail.pipeline.candidates import Candidate, candidates, stage_addresses
from coattail.pipeline.result_params import PublishParams
from coattail.serving.bundle import bundle
from coattail.tracking import delivery
from coattail.tracking.origin import made_now
from coattail.tracking.publishing.log_model import log_bundle
from coattail.tracking.publishing.publish import PICTURES, REPORT, Shown, publish
from coattail.tracking.record import RunRecord
from coattail.tracking.store import KIND, UID, open_store, outages, pipeline_key, tracked_params

log = logging.getLogger("coattail")

DATA = Path("data")
PUBLISHED = DATA / "published.json"
GAP = "&ensp;"  # MLflow draws tables without space between columns


def gather(params: PublishParams, data: Path = DATA, plots: Path = Path("plots")) -> Shown:
    """Everything MLflow shows, read from the files DVC keeps."""
    content = read_yaml("params.yaml")
    known = candidates(content)
    evaluation = Evaluation.load(data / "evaluation")
    missing = set(known) - set(evaluation.metrics)
    if missing:
        raise DataError(f"data/evaluation lacks {', '.join(sorted(missing))}; run dvc repro")
    best = max(known, key=lambda name: _figure(evaluation.metrics[name], params.best_by))
    wanted = {"all": set(known), "best": {best}, "none": set()}[params.models]

    def log_model(name: str) -> str | None:
        if name not in wanted:
            return None
        with tempfile.TemporaryDirectory() as folder:
            return log_bundle(bundle(Path(folder) / "bundle", name, known, data), _example(data))

    return Shown(
        dataset=str(content["dataset"]["name"]),
        params=tracked_params(),
        records={
            address: RunRecord.load(data / "runs" / f"{address}.json")
            for address in stage_addresses(content)
        },
        candidates=known,
        metrics=evaluation.metrics,
        best=best,
        note=f"```\n{leaderboard.text(evaluation)}```\n",
        notes={name: _note(evaluation, known[name]) for name in known},
        headline=tuple(leaderboard.columns(evaluation.summary["ks"])),
        best_by=params.best_by,
        files={
            REPORT: sorted((data / "report").glob("*.html")),
            PICTURES: sorted(plots.glob("*/*.png")),
            "evaluation": sorted((data / "evaluation").glob("*.json")),
        },
        pictures=lambda name: (
            drawn.of_candidate(evaluation, name) if name else drawn.of_all(evaluation)
        ),
        log_model=log_model if wanted else None,
    )


def _note(evaluation: Evaluation, candidate: Candidate) -> str:
    """What a candidate is and how it stands against the base, as Markdown."""
    name, base = candidate.name, evaluation.summary["base"]
    methods = ", ".join(candidate.tail_methods) or "none"
    confidence = f"{evaluation.summary['confidence']:.0%}"
    lines = [f"Family {candidate.family}; methods for the tail: {methods}.", ""]
    if name == base:
        return "\n".join([lines[0], "The base that others are compared with.", ""])
    lines += [f"| | {GAP}{name} | {GAP}{base} | {GAP}difference | {GAP}{confidence} interval |"]
    lines += ["| --- | ---: | ---: | ---: | --- |"]
    headings = leaderboard.columns(evaluation.summary["ks"])
    compared = {
        row["metric"]: row
        for row in evaluation.tables["comparisons"]
        if row["candidate"] == name and row["against"] == "base"
    }
    for metric, heading in headings.items():
        if metric in compared and compared[metric]["difference"] == compared[metric]["difference"]:
            row = compared[metric]
            mine, other = (evaluation.metrics[one][metric] for one in (name, base))
            real = "" if row["real"] else " (may be chance)"
            lines.append(
                f"| {heading.replace(chr(10), ' ')} | {mine:.2f} | {other:.2f} | "
                f"{row['difference']:+.2f} | {GAP}{row['low']:+.2f} to {row['high']:+.2f}{real} |"
            )
    return "\n".join([*lines, ""])


def show(params: PublishParams, data: Path = DATA, plots: Path = Path("plots")) -> dict[str, Any]:
    """Show the results in MLflow; if its store is away, say so and leave it to `coattail sync`."""
    shown = gather(params, data, plots)
    shown = replace(shown, uid=uuid.uuid4().hex)
    try:
        delivery.deliver(open_store)
        return publish(open_store(shown.dataset), shown)
    except outages() as error:
        reason = str(error).strip().split("\n")[0][:300]
        log.warning("publish: not shown in MLflow (%s)", reason)
        log.warning("publish: the results are complete; show them later with: coattail sync")
        return {
            "uid": shown.uid,
            "key": pipeline_key(),
            "made": made_now(shown.dataset),
            "parent_run_id": None,
            "experiment": shown.dataset,
            "best": shown.best,
            "registered_version": None,
            "candidates": {},
            "stages": {},
        }


def sync() -> str:
    """Show in this store what it does not show yet, once; say what was done.

    That is, runs it could not take because it was away, and results that DVC restored from a cache
    or a colleague. data/published.json is left alone: it is DVC's, and says where the run was first
    published.
    """
    delivered = delivery.deliver(open_store)
    lines = [f"delivered {delivered} runs that were kept"] if delivered else []
    if not PUBLISHED.exists():
        return "\n".join([*lines, "nothing to show yet: run make repro first"])
    first = json.loads(PUBLISHED.read_text())
    store = open_store(str(first["experiment"]))
    uid, parent = first.get("uid"), first["parent_run_id"]
    here = store.search(f"tags.`{UID}` = '{uid}'", f"tags.`{KIND}` = 'parent'") if uid else []
    if any(run.info.status == "FINISHED" for run in here) or store.knows(parent):
        return "\n".join([*lines, "MLflow already shows these results"])
    # Results kept back go on with the run they began; those of others get one of their own.
    key = first["key"] if parent is None else f"sync:{uid or parent}"
    if uid is None and store.find_parent(key, finished=True):
        return "\n".join([*lines, "MLflow already shows these results"])
    shown = replace(gather(load("publish", PublishParams)), made=first.get("made"), uid=uid)
    result = publish(store, shown, key)
    count = f"{len(result['candidates'])} candidates of {result['experiment']}"
    return "\n".join([*lines, f"MLflow now shows {count}"])


def _figure(metrics: dict[str, float], name: str) -> float:
    if name not in metrics:
        raise DataError(f"publish.best_by: no metric {name!r}; there is {', '.join(metrics)}")
    value = metrics[name]
    return value if value == value else float("-inf")


def _example(data: Path) -> str:
    """The first test text, as the example that MLflow shows with a model."""
    path = data / "features" / "texts" / "test.jsonl.gz"
    if not path.exists():
        return "a text to tag"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return str(json.loads(file.readline())["text"])[:500]
