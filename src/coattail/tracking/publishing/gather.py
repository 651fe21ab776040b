"""The project's folder as a whole: what belongs in data/, and what MLflow should show of it."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from coattail.config import load, read_yaml
from coattail.data.features import Features
from coattail.errors import DataError
from coattail.evaluation import leaderboard, statements
from coattail.evaluation.champion import Champion
from coattail.evaluation.scoring import Evaluation
from coattail.pipeline.candidates import Candidate, candidates, stage_addresses
from coattail.pipeline.result_params import PublishParams
from coattail.pipeline.stage_result import results
from coattail.serving.bundle import brought_by, bundle
from coattail.tracking import delivery, journal
from coattail.tracking.origin import made_by_commit, made_now
from coattail.tracking.publishing import pictures
from coattail.tracking.publishing.log_model import log_bundle
from coattail.tracking.publishing.page_values import PICTURES, REPORT
from coattail.tracking.publishing.pictures import Pictures
from coattail.tracking.publishing.publish import publish
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.record import git_patch
from coattail.tracking.store import (
    KIND,
    RESULT,
    open_store,
    outages,
    pipeline_key,
    told,
    tracked_params,
)

log = logging.getLogger("coattail")

DATA = Path("data")
PUBLISHED = DATA / "published.json"
GAP = "&ensp;"  # MLflow draws tables without space between columns


def gather(
    params: PublishParams,
    data: Path = DATA,
    plots: Path = Path("plots"),
    drawn: Callable[[str | None], Pictures] | None = None,
) -> Shown:
    """Everything MLflow shows, read from the files DVC keeps; ``drawn`` has its pictures."""
    content = read_yaml("params.yaml")
    known = candidates(content)
    evaluation = Evaluation.load(data / "evaluation")
    missing = set(known) - set(evaluation.metrics)
    if missing:
        raise DataError(f"data/evaluation lacks {', '.join(sorted(missing))}; run dvc repro")
    champion = Champion.of(evaluation.summary)
    wanted = {"all": set(known), "best": {champion.name}, "none": set()}[params.models]

    def log_model(name: str) -> str | None:
        if name not in wanted:
            return None
        with tempfile.TemporaryDirectory() as folder:
            made = bundle(Path(folder) / "bundle", name, known, data)
            return log_bundle(made, _example(data), brought_by(made))

    return Shown(
        dataset=str(content["dataset"]["name"]),
        params=tracked_params(),
        records=journal.records(stage_addresses(content), data),
        candidates=known,
        metrics=evaluation.metrics,
        best=champion.name,
        best_valid=statements.on_validation(evaluation, champion.by)[champion.name]["valid"],
        reason=statements.reason(evaluation),
        warnings=tuple(statements.warnings(evaluation)),
        facts=statements.facts(evaluation),
        note=f"```\n{leaderboard.text(evaluation)}```\n",
        notes={name: _note(evaluation, known[name]) for name in known},
        headline=tuple(leaderboard.columns(evaluation.summary["ks"])),
        best_by=champion.by,
        files={
            REPORT: sorted((data / "report").glob("*.html")),
            PICTURES: sorted((plots / "dataset").glob("*.png")),
            "evaluation": sorted((data / "evaluation").glob("*.json")),
        },
        pictures=drawn or partial(pictures.draw, evaluation),
        log_model=log_model if wanted else None,
    )


def _note(evaluation: Evaluation, candidate: Candidate) -> str:
    """What a candidate is and how it stands against the base, as Markdown."""
    name, base = candidate.name, evaluation.summary["base"]
    methods = ", ".join(candidate.tail_methods) or "none"
    seen = _on_validation(evaluation, name)
    confidence = f"{evaluation.summary['confidence']:.0%}"
    lines = [f"Family {candidate.family}; methods for the tail: {methods}.", ""]
    if name == base:
        return "\n".join([lines[0], "The base that others are compared with.", "", seen])
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
    return "\n".join([*lines, "", seen])


def _on_validation(evaluation: Evaluation, name: str) -> str:
    by = Champion.of(evaluation.summary).by
    row = statements.on_validation(evaluation, by)[name]
    chance = "beyond chance" if row["real"] else "may be chance"
    return (
        f"{statements.title(by)} was {row['valid']:.2f} on validation, "
        f"{row['difference']:+.2f} against test ({chance}).\n"
    )


def contents(shown: Shown, data: Path = DATA) -> str:
    """data/published.json: what is published, with nothing of when, where and by whom."""
    made = {address: one.md5 for address, one in results(list(shown.records), data).items()}
    content = {
        "experiment": shown.dataset,
        "best": shown.best,
        "best_by": shown.best_by,
        "reason": shown.reason,
        "candidates": list(shown.candidates),
        "results": made,
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def show(params: PublishParams, data: Path = DATA, plots: Path = Path("plots")) -> str:
    """Show the results in MLflow and return what data/published.json holds.

    If the store is away, say so and leave it to `coattail experiment sync`.
    """
    drawn = pictures.begin(Evaluation.load(data / "evaluation"))
    # Before gathering, since the journal then knows where every stage is shown.
    away = _outage_of(lambda: delivery.deliver(open_store))
    shown = gather(params, data, plots, drawn)
    text = contents(shown, data)
    made = made_now(shown.dataset)
    patch = git_patch() if made.get("git.dirty") == "true" else b""
    shown = replace(shown, result=_md5(text), made=made, patch=patch)
    facts: dict[str, Any] = {"key": pipeline_key(), "made": made, "parent_run_id": None}
    away = away or _outage_of(lambda: facts.update(publish(open_store(shown.dataset), shown)))
    if away:
        facts["patch"] = patch.decode("utf-8", "surrogateescape")
        log.warning("publish: not shown in MLflow (%s)", away)
        log.warning(
            "publish: the results are complete; show them later with: coattail experiment sync"
        )
    journal.keep_publication(shown.result, facts)
    log.info("publish: champion: %s", shown.reason)
    for warning in shown.warnings:
        log.warning("publish: %s", warning)
    return text


def _outage_of(action: Callable[[], object]) -> str:
    """Do something with the store; why it could not be done, if the store is away."""
    try:
        action()
    except outages() as error:
        return told(error)
    return ""


def sync() -> str:
    """Show in this store what it does not show yet, once; say what was done.

    That is, runs it could not take because it was away, and results that DVC restored from a cache
    or a colleague. Results are known by their md5, so what anybody has shown here is not shown
    again.
    """
    delivered = delivery.deliver(open_store)
    lines = [f"delivered {delivered} runs that were kept"] if delivered else []
    if not PUBLISHED.exists():
        return "\n".join([*lines, "nothing to show yet: run make repro first"])
    text = PUBLISHED.read_text(encoding="utf-8")
    result, name = _md5(text), str(json.loads(text)["experiment"])
    store, facts = open_store(name), journal.publication(result)
    shows = [f"tags.`{RESULT}` = '{result}'", f"tags.`{KIND}` = 'parent'"]
    if store.search(*shows, "attributes.status = 'FINISHED'", most=1):
        return "\n".join([*lines, "MLflow already shows these results"])
    # Results kept back go on with the run they began; those of others get one of their own.
    kept_back = bool(facts) and facts["parent_run_id"] is None
    key = str(facts["key"]) if kept_back else f"sync:{result}"
    made = facts.get("made") or made_by_commit(name)
    patch = str(facts.get("patch", "")).encode("utf-8", "surrogateescape")
    shown = replace(gather(load("publish", PublishParams)), made=made, patch=patch, result=result)
    published = publish(store, shown, key)
    journal.keep_publication(result, published)
    count = f"{len(published['candidates'])} candidates of {name}"
    return "\n".join([*lines, f"MLflow now shows {count}"])


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _example(data: Path) -> str:
    """The first test text, as the example that MLflow shows with a model."""
    features = Features(data / "features")
    if not features.has_texts("test"):
        return "a text to tag"
    return features.some_documents("test", [0])[0][1][:500]
