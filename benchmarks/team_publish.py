"""How long a colleague waits for MLflow: publish after one new small model, again, and an export.

    dvc repro && python benchmarks/team_publish.py

A copy of the workspace shows its results on a team's server (real PostgreSQL and S3, four workers)
as one person; then comes a new linear model, ``dismec-c05``, with all that depends on it. Seconds
are wall time of whole commands, and of processors without the server's. The last rows count what
the store holds.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mlflow import MlflowClient
from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import services

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".venv", ".git", "mlflow.db", "mlartifacts", "undelivered", "journal", ".pytest_cache")


def main() -> None:
    with services.team_server(workers=4) as server, tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        shutil.copytree(ROOT, project, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        server.add_user("ann")
        # The code of the copy, also for `coattail`, whatever is installed.
        ann = services.clean_environment() | server.env("ann") | {"USER": "ann", "LOGNAME": "ann"}
        ann |= {"PYTHONPATH": str(project / "src"), "DVC_NO_ANALYTICS": "true"}

        def run(*words: str) -> tuple[float, float]:
            began, spent = time.perf_counter(), cpu()
            done = subprocess.run(words, cwd=project, env=ann, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            return time.perf_counter() - began, cpu() - spent

        def tell(what: str, *words: str) -> None:
            wall, spent = run(*words)
            print(f"{what:<44}{wall:7.1f} s {spent:7.1f} s of processors", flush=True)

        run("git", "init", "-q")
        commit(run, "before")
        tell("coattail experiment sync, all candidates new", "coattail", "experiment", "sync")
        add_candidate(project / "params.yaml")
        commit(run, "a softer margin")
        run("dvc", "repro", "report")
        tell("dvc repro -s publish, one new small model", "dvc", "repro", "-s", "publish")
        tell("dvc repro -f -s publish, nothing new", "dvc", "repro", "-f", "-s", "publish")
        tell("coattail experiment export", "coattail", "experiment", "export", f"{name}/x.tar")
        count(server, ann)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commit(run, message: str) -> None:
    run("git", "add", "-A")
    run("git", "-c", "user.name=ann", "-c", "user.email=a@example.org", "commit", "-qm", message)


def add_candidate(path: Path) -> None:
    yaml = YAML()
    content = yaml.load(path.read_text())
    content["train_linear"]["dismec-c05"] = {**content["train_linear"]["dismec"], "C": 0.5}
    with open(path, "w") as file:
        yaml.dump(content, file)


def count(server: services.TeamServer, env: dict[str, str]) -> None:
    os.environ.update(env)
    client = MlflowClient(server.url)
    where = [client.get_experiment_by_name("demo").experiment_id]
    for kind in ("parent", "candidate", "stage"):
        found = client.search_runs(where, f"tags.`coattail.kind` = '{kind}'", max_results=5000)
        print(f"{kind + ' runs':<44}{len(found):7d}")
    versions = client.search_model_versions("name = 'coattail-demo'")
    print(f"{'versions of the registered model':<44}{len(versions):7d}")


if __name__ == "__main__":
    main()
