"""How long people wait: what starts before any work, and the whole demo from a fresh clone.

    python benchmarks/start.py                  # all, about ten minutes
    python benchmarks/start.py --only start tag # some rows

Everything runs in clones of the last commit in a temporary folder, with a DVC cache, an MLflow
store and compiled kernels of their own, so the project stays as it is. Seconds are wall time of one
run (of three where a command is short: the middle one), so the machine has to be quiet; seconds of
the processor, of all processes that the command waits for, stand beside them. The installation is
timed the second time, for the first one fills pip's cache.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
OWN_TEXTS = {"train": 500, "test": 200}
KNOWN = "Gefe lir kagler garis kenas stestus."
"""A text whose words the demo's candidates know."""
WITHOUT_RUN = ("code", "candidates", "report", "publish")
"""Stages that open no run of their own; all others say when their own work begins."""

PROBE = """
import os, runpy, sys, time
from coattail import tracking
opened = tracking.StageRun.__init__
def timed(self, record):
    opened(self, record)
    print("began", time.time(), flush=True)
    os._exit(0)
tracking.StageRun.__init__ = timed
sys.argv = sys.argv[1:]
sys.path.insert(0, "")
import coattail.pipeline.code_digest as digest
digest.check_script = lambda _: digest.check(sys.argv[0].split(".")[1])
runpy.run_module(sys.argv[0], run_name="__main__")
"""


class Took(NamedTuple):
    """One measurement."""

    wall: float
    cpu: float | None = None


class Row(NamedTuple):
    """A figure, what it may be at most, and what it should be."""

    key: str
    figure: str
    bar: float
    aim: float


ROWS = (
    Row("setup", "`make setup` in a fresh clone, packages in pip's cache", 90, 60),
    Row("uncached", "`make repro` of demo after set-up, no compiled kernels", 180, 120),
    Row("cached", "`make repro` of demo after set-up, compiled kernels cached", 120, 90),
    Row("start", "a stage before its own work, median over the stages of demo", 0.8, 0.4),
    Row("stage", "`dvc repro -f -s build_plt@flat`", 2.6, 2.0),
    Row("tag", "`coattail tag` of one text, the champion", 1.0, 0.5),
    Row("tag-linear", "`coattail tag --candidate dismec` of one text", 1.0, 0.5),
    Row("lineage", "`coattail model lineage` of the champion", 2.0, 1.0),
    Row("doctor", "`coattail doctor`", 2.0, 1.0),
    Row("own", "a corpus of one's own of 500 texts, all default candidates", 20, 12),
)


class Clone:
    """A clone of the last commit with a cache, a store and kernels of its own."""

    def __init__(self, folder: Path, kernels: Path, installed: bool = True) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "MLFLOW_"))}
        self.env = env | {"COATTAIL_KERNEL_CACHE": str(kernels), "DVC_NO_ANALYTICS": "true"}
        if installed:  # the project's environment serves the clone's own source
            (folder / ".venv").symlink_to(ROOT / ".venv")
            self.env["PYTHONPATH"] = str(folder / "src")
            self.env["PATH"] = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{env['PATH']}"

    def time(self, *words: str) -> Took:
        before, began = _processor(), time.monotonic()
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True)
        took = Took(time.monotonic() - began, _processor() - before)
        if done.returncode:
            sys.exit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return took

    def middle(self, *words: str) -> Took:
        return sorted(self.time(*words) for _ in range(3))[1]


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(wanted: set[str], place: Path) -> Iterator[tuple[str, Took]]:
    """The rows that are wanted, in an order in which one may use what another has made."""
    kernels = place / "kernels"
    if "setup" in wanted:
        for name in ("setup-fills-cache", "setup"):
            took = Clone(place / name, kernels, installed=False).time("make", "setup")
            shutil.rmtree(place / name)
        yield "setup", took
    if wanted == {"setup"}:
        return
    first = Clone(place / "first", kernels)
    took = first.time("make", "repro")
    if "uncached" in wanted:
        yield "uncached", took
    if "cached" in wanted:
        yield "cached", Clone(place / "second", kernels).time("make", "repro")
    if "start" in wanted:
        yield "start", Took(statistics.median(_before_work(first, place)))
    commands = {
        "tag": ("coattail", "tag", KNOWN),
        "tag-linear": ("coattail", "tag", "--candidate", "dismec", KNOWN),
        "lineage": ("coattail", "model", "lineage", "coattail-demo@champion"),
        "doctor": ("coattail", "doctor"),
        # Last: a stage by itself leaves the pipeline's run open, which doctor would call a problem.
        "stage": ("dvc", "repro", "-f", "-s", "build_plt@flat"),
    }
    for key, words in commands.items():
        if key in wanted:
            yield key, first.middle(*words)
    if "own" in wanted:
        own = Clone(place / "own", kernels)
        _corpus(first.folder / "data" / "raw", place / "texts")
        own.time("coattail", "use", "jsonl", "--data", str(place / "texts"))
        yield "own", own.time("dvc", "repro")


def _before_work(clone: Clone, place: Path) -> list[float]:
    """Seconds until each stage's run is open, in a store of their own."""
    env = clone.env | {"DVC_ROOT": str(place / "probe")}
    found = []
    for address in YAML(typ="safe").load((clone.folder / "dvc.lock").read_text())["stages"]:
        stage, _, variant = address.partition("@")
        if stage in WITHOUT_RUN:
            continue
        words = [sys.executable, "-c", PROBE, f"stages.{stage}", *filter(None, [variant])]
        began = time.time()
        done = subprocess.run(words, cwd=clone.folder, env=env, capture_output=True, text=True)
        told = [line for line in done.stdout.splitlines() if line.startswith("began ")]
        if not told:
            sys.exit(f"{address} did not start:\n{done.stderr[-2000:]}")
        found.append(float(told[0].split()[1]) - began)
    return found


def _corpus(raw: Path, folder: Path) -> None:
    """The first texts of the demo corpus, as somebody's own JSON lines."""
    folder.mkdir()
    for split, count in OWN_TEXTS.items():
        with gzip.open(raw / f"{split}.jsonl.gz", "rt") as file:
            (folder / f"{split}.jsonl").write_text("".join(itertools.islice(file, count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[row.key for row in ROWS])
    arguments = parser.parse_args()
    wanted = set(arguments.only or [row.key for row in ROWS])
    place = Path(tempfile.mkdtemp(prefix="coattail-start-"))
    took: dict[str, Took] = {}
    try:
        for key, one in measure(wanted, place):
            took[key] = one
            print(f"{key}: {one.wall:.2f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print("| figure | seconds | of the processor | bar | aim |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in ROWS:
        print(f"| {row.figure} | {_shown(took.get(row.key))} | {row.bar:g} | {row.aim:g} |")


def _shown(took: Took | None) -> str:
    if took is None:
        return "not asked for | "
    processor = "" if took.cpu is None else f"{took.cpu:.2f}"
    return f"{took.wall:.2f} | {processor}"


if __name__ == "__main__":
    main()
