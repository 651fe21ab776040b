"""How an experiment opens in MLflow's pages: candidates, the columns people compare by, links."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from coattail.tracking.publishing.page_values import REPORT
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.store import KIND, Store, insist

SHARED = "mlflow.sharedViewState."
KEY = "candidates"
NOTE = "mlflow.note.content"
MODE = "workflowType=machine_learning"
"""The pages open for language models otherwise, which hides metrics."""
WHO = ("author",)
WHAT = ("family", "tail_methods", "dataset", "git.commit", "also_by", "pipeline")
"""Tags that are columns of the view, before and behind the metrics; each sorts and filters."""


def describe(store: Store, metrics: Sequence[str], sort: str) -> None:
    """Give the experiment a view of its candidates and a description that leads there.

    The view is what the button Share of the page would store: a filter, an order, columns.
    """
    columns = [
        *(f"tags.`{name}`" for name in WHO),
        *(f"metrics.`{name}`" for name in metrics),
        "metrics.`train_seconds`",
        *(f"tags.`{name}`" for name in WHAT),
    ]
    state = {
        "searchFilter": f"tags.`{KIND}` = 'candidate'",
        "orderByKey": f"metrics.`{sort}`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": columns,
        "columnOrder": columns,
    }
    wanted = {SHARED + KEY: json.dumps(state)}
    there: dict[str, Any] = store.client.get_experiment(store.experiment_id).tags
    text = (
        f"[Candidates of all runs, best {sort} first]({candidates(store)}). Runs below are "
        "executions of the pipeline; each holds its candidates and stages.\n"
    )
    if not there.get(NOTE) or there[NOTE].startswith("[Candidates of all runs"):
        wanted[NOTE] = text  # a description that somebody wrote stays
    for key, value in wanted.items():
        if there.get(key) != value:
            insist(partial(store.client.set_experiment_tag, store.experiment_id, key, value))


def candidates(store: Store) -> str:
    """Address of the view, within MLflow's pages."""
    return f"#/experiments/{store.experiment_id}/runs?viewStateShareKey={KEY}&{MODE}"


def run(store: Store, run_id: str, artifact: str = "") -> str:
    """Address of a run, or of one of its artifacts."""
    part = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{store.experiment_id}/runs/{run_id}{part}?{MODE}"


def links(store: Store, parent: str, shown: Shown) -> str:
    """Where to go from a run, as the first line of its description."""
    reports = [path.name for path in shown.files.get(REPORT, []) if path.suffix == ".html"]
    pages = [f"[{name}]({run(store, parent, f'{REPORT}/{name}')})" for name in reports]
    return " · ".join([*pages, f"[candidates]({candidates(store)})"]) + "\n\n"
