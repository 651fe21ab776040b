"""The project's folder as a whole: what belongs in data/, and what MLflow should show of it."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from coattail import leaderboard
from coattail.config import Params, load, read_yaml
from coattail.errors import DataError
from coattail.evaluation import Evaluation
from coattail.pipeline import candidates, stage_addresses
from coattail.serve import bundle
from coattail.tracking.models import log_bundle
from coattail.tracking.publish import Shown, publish
from coattail.tracking.record import RunRecord
from coattail.tracking.store import Store, open_store, tracked_params

DATA = Path("data")
PUBLISHED = DATA / "published.json"


class PublishParams(Params):
    """Section `publish` of params.yaml."""

    best_by: str = Field("psp_at_5", description="test metric that names the best candidate")
    models: Literal["all", "best", "none"] = Field(
        "best", description="whose models are logged to MLflow; the best one is registered"
    )


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
        files=sorted(plots.glob("*/*.png")) + sorted((data / "evaluation").glob("*.json")),
        log_model=log_model if wanted else None,
    )


def sync() -> str:
    """Show in this store what DVC restored from a cache or a colleague; say what was done.

    data/published.json is left alone: it is DVC's, and says where the run was first published.
    """
    if not PUBLISHED.exists():
        return "nothing to show yet: run make repro first"
    first = json.loads(PUBLISHED.read_text())
    store = open_store(str(first["experiment"]))
    key = f"sync:{first['parent_run_id']}"
    if store.knows(first["parent_run_id"]) or _synced(store, key):
        return "MLflow already shows these results"
    result = publish(store, gather(load("publish", PublishParams)), key=key)
    return f"MLflow now shows {len(result['candidates'])} candidates of {result['experiment']}"


def _synced(store: Store, key: str) -> bool:
    return bool(store.find_parent(key, finished=True))


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
