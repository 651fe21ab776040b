"""Twenty people's runs on a team's server: how long views and commands take.

    python benchmarks/team_load.py [--parents 200]

Fills a real server (PostgreSQL, S3, four workers) with executions of ten candidates, by the code
that `publish` runs, in turn by twenty people, then asks what the pages ask and runs what people
run. The bar is 3 s for each. Filling goes straight to the database, which takes the same rows.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import many_runs
from coattail.tracking.publishing.publish import publish
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.store import KIND, Store
from tests import services
from tests.project import tiny_project

PEOPLE = 20
TIMES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parents", type=int, default=200, help="executions in all")
    count = parser.parse_args().parents
    many_runs.EACH = 10
    with services.team_server(workers=4) as server, tempfile.TemporaryDirectory() as name:
        project = tiny_project(Path(name) / "project")
        project.run("dvc", "repro")
        server.add_user("ann")
        os.chdir(project.folder)
        os.environ["DVC_ROOT"] = str(project.folder)
        os.environ["MLFLOW_TRACKING_URI"] = server.postgres.uri("mlflow").replace(
            "postgresql:", "postgresql+psycopg:"
        )
        began = time.perf_counter()
        store = Store("demo")
        for number in range(count):
            publish(store, execution(number), key=f"execution-{number}")
        print(f"{count} executions by {PEOPLE} people: {time.perf_counter() - began:.0f} s")
        os.environ |= server.env("ann") | {"USER": "ann"}
        views(server, store.experiment_id)
        commands(project.folder)


def execution(number: int) -> Shown:
    who, commit = f"person{number % PEOPLE}", f"{number:040x}"
    told = many_runs.shown(number)
    for address, record in told.records.items():
        record.tags |= {"user": who, "git.commit": commit, "machine.host": "far"}
        record.outs = {f"data/models/{address}": f"{hash((number, address)) % 16**12:032x}"}
    made = {"user": who, "git.commit": commit, "git.dirty": "false", "data.md5": "d" * 32}
    return replace(told, dataset="demo", made=made)


def views(server: services.TeamServer, experiment: str) -> None:
    """What MLflow's pages ask for."""
    everyone = f"tags.`{KIND}` = 'candidate'"
    url = f"{server.url}/ajax-api/2.0/mlflow/runs/search"
    for what, where, order in (
        ("candidates, best first", everyone, "metrics.`psp_at_5` DESC"),
        ("candidates by author", everyone, "tags.`author` ASC"),
        ("candidates by commit", everyone, "tags.`git.commit` DESC"),
        ("candidates of one author", f"{everyone} and tags.author = 'person7'", "start_time DESC"),
        ("candidates of one dataset", f"{everyone} and tags.dataset = 'demo'", "start_time DESC"),
        ("all runs, newest first", "", "start_time DESC"),
    ):
        body = {
            "experiment_ids": [experiment],
            "filter": where,
            "max_results": 100,
            "order_by": [order],
        }

        def ask(body: dict = body) -> None:
            answer = requests.post(
                url, json=body, auth=("ann", server.passwords["ann"]), timeout=60
            )
            assert answer.ok, answer.text

        tell(what, ask)


def commands(folder: Path) -> None:
    """What people run."""
    for words in (
        ("experiment", "sync"),
        ("model", "lineage", "dismec"),
        ("model", "lineage", "--commit", f"{7:040x}"),
        ("model", "lineage", "--commit", "HEAD"),
        ("model", "lineage", "--stage", "train_linear@l3"),
        ("compare", "HEAD"),
        ("doctor",),
    ):
        command = [services.BIN / "coattail", *words]

        def run(command: list = command) -> None:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            assert "Traceback" not in done.stderr, done.stderr

        tell(f"coattail {' '.join(words)}"[:50], run)


def tell(what: str, action: Callable[[], None]) -> None:
    """Median wall time, and seconds of processors of the command itself."""
    taken, spent = [], []
    for _ in range(TIMES):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        action()
        taken.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    wall, own = statistics.median(taken), statistics.median(spent)
    print(f"{what:<52}{wall:6.2f} s {own:6.2f} s of processors", flush=True)


if __name__ == "__main__":
    main()
