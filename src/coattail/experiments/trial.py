"""Train one variant with other params in a folder of its own, by the pipeline's own script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coattail.arrays import TopK
from coattail.config import yaml_text
from coattail.errors import CoattailError
from coattail.files import atomic_file
from coattail.pipeline.candidates import candidates
from coattail.tracking import trial_line
from coattail.tracking.record import Point

READ = ("code", "features", "plt", "augmented")
"""What training reads of data/; a trial sees the project's through links."""
POLL = 0.5  # seconds between looks at a running trial
PATIENCE = 30.0  # seconds a stopped trial has to close its files


class TrialError(CoattailError):
    """A trial's training failed; the message is the stage's own."""


def train(
    folder: Path,
    stage: str,
    variant: str,
    content: dict[str, Any],
    watch: Callable[[list[Point]], None],
) -> TopK:
    """The ranking of the validation texts by ``stage@variant`` under the params ``content``.

    Parameters
    ----------
    folder : where everything is written; what an interrupted try left there is gone on with
    stage, variant : what to train
    content : a whole params.yaml
    watch : gets the points logged so far, again and again; an error it raises stops the training
    """
    folder = folder.resolve()
    _prepare(folder, content, candidates(content)[variant].sources)
    place = folder / "journal.json"
    place.unlink(missing_ok=True)
    root = Path.cwd()
    env = {k: v for k, v in os.environ.items() if not k.startswith("DVC_EXP_")}
    path = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    env |= {
        "PYTHONPATH": os.pathsep.join(path),
        trial_line.PLACE: str(place),
        "DVC_ROOT": str(root),
    }
    command = [sys.executable, "-m", f"stages.{stage}", variant]
    with open(folder / "log.txt", "w") as log:
        child = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            _follow(child, place, watch)
        finally:
            _stop(child)
    if child.returncode != 0:
        raise TrialError(_reason(folder / "log.txt", child.returncode))
    watch(trial_line.read(place))
    return TopK.load(folder / "data" / "ranked" / variant / "valid.npz")


def forget(folder: Path) -> None:
    """Remove a trial's models and rankings; its log and params stay."""
    for name in ("data", "plots", ".dvc", "journal.json"):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _prepare(folder: Path, content: dict[str, Any], sources: tuple[str, ...]) -> None:
    """Params, and links to what is read: a trial's own ranking stands beside those of others."""
    data = folder / "data"
    (data / "ranked").mkdir(parents=True, exist_ok=True)
    for name in (*READ, *(f"ranked/{source}" for source in sources)):
        target, link = Path("data", name).resolve(), data / name
        if target.exists() and not link.is_symlink():
            link.symlink_to(target, target_is_directory=True)
    with atomic_file(folder / "params.yaml") as temporary:
        temporary.write_text(yaml_text(content), encoding="utf-8")


def _follow(
    child: subprocess.Popen[bytes], place: Path, watch: Callable[[list[Point]], None]
) -> None:
    seen = 0
    while True:
        try:
            child.wait(POLL)
            return
        except subprocess.TimeoutExpired:
            points = trial_line.read(place)
            if len(points) > seen:
                seen = len(points)
                watch(points)


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _reason(log: Path, code: int) -> str:
    """The stage's error message, else the last thing it said."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "  error: " in line]
    killed = "killed, perhaps for want of memory" if code < 0 else f"ended with {code}"
    return "; ".join(errors) or (lines[-1] if lines else killed)
