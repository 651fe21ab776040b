"""A clone of the working tree to run real commands in: its own git, DVC cache and MLflow store."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from tests.processes import AUTHOR, BIN

if TYPE_CHECKING:
    from mlflow import MlflowClient  # a second to import, which most tests can do without

ROOT = Path(__file__).resolve().parents[1]

NETWORK = {"epochs": 1, "hidden": 16, "fc": [16], "embedding_dim": 16}
SMALL = {
    "": {"threads": 1},  # stages run beside other tests
    "dataset.demo": {"train": 300, "valid": 60, "test": 100, "labels": 60, "words": 400},
    "train_deep.attentionxml": NETWORK,
    "train_deep.attentionxml-tailmix": NETWORK | {"mix_from": 0},
    "transfer.httn": {"epochs": 1, "dim": 16, "hidden": 8, "embedding_dim": 16},
    "evaluate": {"resamples": 50},
}


class Clone:
    """A clone of the working tree with its own DVC cache and MLflow store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "MLFLOW_"))}
        self.env |= AUTHOR | {"PATH": f"{BIN}:{os.environ['PATH']}"}

    @property
    def audit(self) -> Path:
        """Where stages note the files they open (tests/audit/sitecustomize.py)."""
        return self.folder.parent / "audit"

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=3600
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(words)} gave {done.returncode}:\n{output}"
        return output

    def some_text(self) -> str:
        """Two words that candidates know: without one they give no labels."""
        listed = self.folder / "data" / "features" / "tokens" / "vocabulary.txt"
        return " ".join(listed.read_text(encoding="utf-8").split()[2:4])

    def dvc(self, *words: str, code: int = 0) -> str:
        return self.run("dvc", *words, code=code)

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)

    def edit(self, changes: dict[str, dict]) -> None:
        yaml = YAML()
        path = self.folder / "params.yaml"
        content = yaml.load(path.read_text())
        for section, values in changes.items():
            target = content
            for name in section.split(".") if section else []:
                target = target[name]
            target.update(values)
        with open(path, "w") as file:
            yaml.dump(content, file)

    def params(self) -> dict:
        return YAML(typ="safe").load((self.folder / "params.yaml").read_text())

    @property
    def client(self) -> MlflowClient:
        from mlflow import MlflowClient

        return MlflowClient(f"sqlite:///{self.folder}/mlflow.db")

    def runs(self, kind: str) -> list:
        """Runs that MLflow shows, once the courier has nothing more to carry."""
        left = self.folder / ".dvc/tmp/coattail/undelivered"
        end = time.monotonic() + 120
        while any(left.glob("*.json")):
            assert time.monotonic() < end, f"runs wait in {left}"
            time.sleep(0.1)
        experiment = self.client.get_experiment_by_name("demo")
        return self.client.search_runs(
            [experiment.experiment_id], f"tags.`coattail.kind` = '{kind}'", max_results=500
        )

    def resolved_stages(self) -> dict[str, dict[str, list[str]]]:
        """Dependencies and outputs of every stage as dvc.lock has them."""
        lock = YAML(typ="safe").load((self.folder / "dvc.lock").read_text())["stages"]
        return {
            address: {kind: [one["path"] for one in stage[kind]] for kind in ("deps", "outs")}
            for address, stage in lock.items()
        }

    def results(self) -> str:
        """A digest of everything computed."""
        digest = hashlib.sha256()
        for folder in (
            "data/features",
            "data/plt",
            "data/models",
            "data/ranked",
            "data/evaluation",
            "data/runs",
        ):
            for path in sorted((self.folder / folder).rglob("*")):
                if path.is_file():
                    digest.update(str(path.relative_to(self.folder)).encode() + path.read_bytes())
        return digest.hexdigest()


def clone_of_the_working_tree(folder: Path, small: bool = True) -> Clone:
    """The working tree as a repository of its own, of the demo corpus or of a small one."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and name != "dvc.lock" and not name.startswith("metrics/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    clone = Clone(folder)
    clone.run("git", "init", "-q")
    clone.commit("clone")
    if small:
        clone.edit(SMALL)
        clone.commit("small corpus")
    return clone


def tiny_project(folder: Path) -> Clone:
    """A clone with two linear candidates only, and their params committed."""
    clone = clone_of_the_working_tree(folder)
    clone.run("coattail", "use", "preset/minimal")
    clone.commit("two candidates")
    return clone


def copy_of(clone: Clone, folder: Path) -> Clone:
    """A copy to spoil; an MLflow store knows the place it was made in, so the copy has none."""
    shutil.copytree(clone.folder, folder, symlinks=True)
    (folder / "mlflow.db").unlink()
    return Clone(folder)


def stage_sources(run) -> dict[str, str]:
    tags = run.data.tags
    return {
        key.removeprefix("stage."): value
        for key, value in tags.items()
        if key.startswith("stage.") and not key.endswith(".run_id")
    }
