"""A clone of the project in which rows are run by the pipeline's own stages.

It shares the project's DVC cache, so what any row has computed is never computed again, and its
stages report to the project's journal and MLflow store. It holds the code of HEAD alone: figures
bear a commit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from coattail.config import yaml_text
from coattail.errors import CoattailError, ConfigError
from coattail.files import atomic_file
from coattail.tracking.record import CODE, git

FOLDER = Path(".dvc/tmp/coattail/studies")
PATIENCE = 60.0  # seconds that what a killed session left has to end


class RowError(CoattailError):
    """A stage of a row failed; the message is the stage's own."""


class Work:
    """The working place of one study."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.folder = (FOLDER / name).resolve()
        self.clone = self.folder / "clone"
        self._environment = environment

    def prepare(self) -> tuple[str, str]:
        """Bring the clone to HEAD; return the commit and a digest of the code in it."""
        self._end_leftovers()
        edits = [line[3:] for line in git("status", "--porcelain", "--", *_CODE).splitlines()]
        if edits:
            raise ConfigError(
                f"a study runs what is committed, and there are edits in {', '.join(edits[:5])}; "
                "commit or stash them first"
            )
        commit = git("rev-parse", "HEAD")
        if not (self.clone / ".git").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._git(self.folder, "clone", "--quiet", "--no-checkout", str(Path.cwd()), "clone")
        self._git(self.clone, "fetch", "--quiet", "origin", commit)
        self._git(self.clone, "checkout", "--quiet", "--force", "--detach", commit)
        # What HEAD has results of is another run; DVC's cache of runs knows ours.
        (self.clone / "dvc.lock").unlink(missing_ok=True)
        cache = self._said("dvc", "cache", "dir", at=Path.cwd())
        if not (self.clone / ".dvc" / "config.local").exists():
            self._said("dvc", "cache", "dir", "--local", cache, at=self.clone)
        trees = [git("rev-parse", f"HEAD:{name}") for name in _CODE]
        return commit, hashlib.sha256(" ".join(trees).encode()).hexdigest()[:16]

    def run(self, content: dict[str, Any], address: str) -> None:
        """Run a stage, and all before it, under these params; done ones come from the cache."""
        with atomic_file(self.clone / "params.yaml") as temporary, open(temporary, "w") as file:
            file.write(yaml_text(content))
        with open(self.log, "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "dvc", "repro", address],
                cwd=self.clone, env=self._env(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            start = log.tell()
            try:
                child.wait()
            finally:
                _stop(child)
        if child.returncode != 0:
            raise RowError(_reason(self.log, start))

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def _env(self) -> dict[str, str]:
        own = {"DVC_ROOT": str(Path.cwd()), "DVC_NO_ANALYTICS": "true"}
        return {**os.environ, **own, **self._environment}

    def _end_leftovers(self) -> None:
        """End what a killed session left at work in the clone: two would write the same files."""
        mine = [
            process
            for process in psutil.process_iter(["cwd"])
            if process.info["cwd"] == str(self.clone) and process.pid != os.getpid()
        ]
        for process in mine:
            process.terminate()
        _, stubborn = psutil.wait_procs(mine, PATIENCE)
        for process in stubborn:
            process.kill()

    def _git(self, at: Path, *words: str) -> None:
        self._said("git", *words, at=at)

    def _said(self, *words: str, at: Path) -> str:
        command = [sys.executable, "-m", *words] if words[0] == "dvc" else list(words)
        done = subprocess.run(command, cwd=at, capture_output=True, text=True)
        if done.returncode != 0:
            raise CoattailError(f"{' '.join(words)} in {at}: {done.stderr.strip()[-500:]}")
        return done.stdout.strip()


_CODE = tuple(name for name in CODE if name not in ("params.yaml", "conf"))
"""What rows are computed with. params.yaml is not: a study has its own; conf goes into them."""


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End dvc and the stage below it; what they had begun is gone on with."""
    if child.poll() is not None:
        return
    for stage in psutil.Process(child.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            stage.terminate()
    child.terminate()
    child.wait()


def _reason(log: Path, start: int) -> str:
    """The stage's error message, else the last thing that was said."""
    with open(log, "rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    errors = [line.partition("error: ")[2] for line in lines if "  error: " in line]
    said = [line for line in lines if line]
    return "; ".join(errors) or (said[-1] if said else "killed, perhaps for want of memory")
