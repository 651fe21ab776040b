"""Two hundred candidates in MLflow: how long searching, sorting and loading a page of them takes.

    python benchmarks/many_runs.py [--runs 200]

Makes parents with twenty candidates each by the code that `publish` runs, in a SQLite store in a
temporary folder, then asks what the pages ask: all candidates of a family, the best by PSP@5, the
full table of candidates, and the same through a server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from coattail.evaluation.scoring import headline
from coattail.pipeline.candidates import candidates
from coattail.tracking.publishing.publish import publish
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.record import RunRecord, now
from coattail.tracking.store import KIND, Store
from tests.mlflow_server import mlflow_server

EACH = 20
METRICS = [
    f"{part}{name}" for part in ("", "head_", "torso_", "tail_") for name in headline((1, 3, 5))
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="candidates in all")
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
        os.environ["DVC_ROOT"] = str(folder)
        store = Store("many")
        began = time.perf_counter()
        for pipeline in range(-(-count // EACH)):
            publish(store, shown(pipeline), key=f"pipeline-{pipeline}")
        took = time.perf_counter() - began
        print(f"publish {count} candidates: {took:.1f} s, {1000 * took / count:.0f} ms each")
        everyone = f"tags.`{KIND}` = 'candidate'"
        best = ["metrics.psp_at_5 DESC"]
        where, by = [store.experiment_id], "search 200, sorted"
        ask(f"{by} by psp_at_5", lambda: store.client.search_runs(where, everyone, 1, 200, best))
        deep = f"{everyone} and tags.family = 'deep'"
        ask("search family = deep", lambda: store.client.search_runs(where, deep, 1, 200, best))
        with mlflow_server(folder) as address:
            url = f"{address}/ajax-api/2.0/mlflow/runs/search"
            body = {
                "experiment_ids": where,
                "filter": everyone,
                "max_results": 100,
                "order_by": best,
            }
            ask("page of 100 through the server", lambda: post(url, body))


def shown(pipeline: int) -> Shown:
    """A pipeline of twenty candidates with random figures."""
    rng = np.random.default_rng(pipeline)
    half = EACH // 2
    params = {
        "dataset": {"name": "many"},
        "train_linear": {
            f"l{i}": {"model": "ovr", "C": float(rng.random()), "eps": 0.1} for i in range(half)
        },
        "train_deep": {
            f"d{i}": {"model": "attentionxml", "lr": float(rng.random()), "epochs": 5}
            for i in range(half)
        },
    }
    known = candidates(params)
    records = {}
    for one in known.values():
        for address in one.made_by:
            stage, _, variant = address.partition("@")
            given = params.get(stage, {}).get(variant, {})
            records[address] = RunRecord(stage, variant or None, given, now(), now(), "FINISHED")
    figures = {name: {m: float(100 * rng.random()) for m in METRICS} for name in known}
    best = max(known, key=lambda name: figures[name]["psp_at_5"])
    return Shown("many", params, records, known, figures, best)


def ask(what: str, action: Callable[[], object], times: int = 5) -> None:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    print(f"{what}: {1000 * float(np.median(taken)):.0f} ms (median of {times})")


def post(url: str, body: dict) -> object:
    content = json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    main()
