"""Run presets on one dataset with several seeds and print one table of what each method is worth.

    python benchmarks/study.py WORK --use preset/minimal preset/linear preset/tail \\
        bibtex=../shared/data/bibtex --seeds 0 1 2

The pipeline runs in a clone of this repository's HEAD under WORK, once per seed, with the seed
written into every variant that has one; DVC runs a variant without a seed only once. The table has
the mean over the seeds and, where it is not zero, their standard deviation. The last column is the
difference to the base in PSP@5 with its 95 % paired bootstrap interval over test texts, both ends
averaged over the seeds. Run it again to go on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = {
    "P": ("p_at_1", "p_at_3", "p_at_5"),
    "nDCG": ("ndcg_at_3", "ndcg_at_5"),
    "PSP": ("psp_at_1", "psp_at_3", "psp_at_5"),
    "PSnDCG": ("psndcg_at_3", "psndcg_at_5"),
    "tail recall@5": ("tail_recall_at_5",),
    "tail coverage@5": ("tail_coverage_at_5",),
}
COMPLETE = {
    "complete P@5": ("complete_p_at_5",),
    "missing recall@5": ("missing_recall_at_5",),
    "complete tail recall@5": ("complete_tail_recall_at_5",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--use", nargs="+", required=True, help="overlays, as NAME or NAME=FOLDER")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        help="more changes, as section.key=value; null removes a variant",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--table-only", action="store_true", help="only print what is there")
    arguments = parser.parse_args()
    if not arguments.table_only:
        clone = prepare(arguments.work, arguments.use, arguments.set, arguments.threads)
        studied = (clone / "params.yaml").read_text()
        for seed in arguments.seeds:
            run(clone, studied, seed, arguments.work / f"seed-{seed}")
    found = sorted(path for path in arguments.work.glob("seed-*") if path.is_dir())
    if not found:
        sys.exit(f"{arguments.work} holds no finished seed")
    print(table([load(path) for path in found]))


def prepare(work: Path, overlays: list[str], changes: list[str], threads: int) -> Path:
    """The clone, with its params.yaml switched to what is studied."""
    from coattail.pipeline.overlay import remove

    clone = work / "clone"
    if not clone.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    shutil.copy(ROOT / "params.yaml", clone / "params.yaml")
    for overlay in overlays:
        name, _, folder = overlay.partition("=")
        data = ["--data", str(Path(folder).resolve())] if folder else []
        command(clone, "coattail", "use", name, *data)
    yaml = YAML()
    content = yaml.load(clone / "params.yaml")
    content["threads"] = threads
    for change in changes:
        keys, _, value = change.partition("=")
        *path, last = keys.split(".")
        inner = content
        for key in path:
            inner = inner[key]
        new = YAML(typ="safe").load(value)
        if new is None:
            remove(content, *path, last)
        else:
            inner[last] = new
    yaml.dump(content, clone / "params.yaml")
    return clone


def run(clone: Path, studied: str, seed: int, target: Path) -> None:
    """Train and evaluate with one seed; keep what `evaluate` wrote and how long stages took.

    A variant with a seed of its own stays different from its siblings.
    """
    from coattail.pipeline import registry

    yaml = YAML()
    content = yaml.load(studied)
    for stage in registry.VARIANTS:
        for name, section in (content[stage] or {}).items():
            plain = json.loads(json.dumps(section))
            if hasattr(registry.parsed(stage, plain, f"{stage}.{name}"), "seed"):
                section["seed"] = seed + 100 * section.get("seed", 0)
    yaml.dump(content, clone / "params.yaml")
    command(clone, "dvc", "repro", "evaluate")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(clone / "data" / "evaluation", target)
    # The journal knows how long a result took; DVC hashes the result itself, so that has no times.
    (target / "runs").mkdir()
    for result in (clone / "data" / "runs").glob("*@*.json"):
        md5 = hashlib.md5(result.read_bytes(), usedforsecurity=False).hexdigest()
        entry = clone / ".dvc" / "tmp" / "coattail" / "journal" / f"{md5}.json"
        if entry.exists():
            shutil.copy(entry, target / "runs" / result.name)


def command(clone: Path, *words: str) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "true",
    }
    # What the tools say goes to stderr, so that stdout holds the table alone.
    subprocess.run(list(words), cwd=clone, env=environment, check=True, stdout=sys.stderr)


def load(folder: Path) -> dict[str, Any]:
    names = ("summary", "metrics", "comparisons")
    content = {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
    seconds = {}
    for path in (folder / "runs").glob("*@*.json"):
        record = json.loads(path.read_text())
        if record["stage"] not in ("build_plt", "augment_tails"):
            seconds[record["variant"]] = record["metrics"]["seconds"]
    return content | {"seconds": seconds}


def table(seeds: list[dict[str, Any]]) -> str:
    """Markdown; one row per candidate, best PSP@5 first."""
    first = seeds[0]
    columns = COLUMNS | (COMPLETE if first["summary"]["complete"] else {})
    heads = ["candidate", *columns, "seconds", "PSP@5 against " + first["summary"]["base"]]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    rows = {
        name: [one for one in seeds if name in one["metrics"]]
        for name in dict.fromkeys(name for one in seeds for name in one["metrics"])
    }
    for name, own in sorted(rows.items(), key=lambda row: -mean_of(row[1], row[0], "psp_at_5")):
        cells = ["/".join(cell(own, name, m) for m in group) for group in columns.values()]
        seconds = statistics.mean(one["seconds"].get(name, 0.0) for one in own)
        cells += [f"{seconds:.0f}", difference(own, name)]
        shown = name if len(own) == len(seeds) else f"{name} ({len(own)} of the seeds)"
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    texts, labels = first["summary"]["texts"], first["summary"]["labels"]
    seed_word = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return "\n".join([*lines, "", f"{texts:,} test texts, {labels:,} labels, {seed_word}."])


def mean_of(seeds: list[dict[str, Any]], name: str, metric: str) -> float:
    return statistics.mean(one["metrics"][name][metric] for one in seeds)


def cell(seeds: list[dict[str, Any]], name: str, metric: str) -> str:
    values = [one["metrics"][name][metric] for one in seeds]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    shown = f"{statistics.mean(values):.1f}"
    return f"{shown}±{spread:.1f}" if spread >= 0.05 else shown


def difference(seeds: list[dict[str, Any]], name: str) -> str:
    rows = [
        row
        for one in seeds
        for row in one["comparisons"]
        if (row["candidate"], row["metric"], row["against"]) == (name, "psp_at_5", "base")
    ]
    if not rows or rows[0]["other"] == name:
        return ""
    change, low, high = (
        statistics.mean(row[key] for row in rows) for key in ("difference", "low", "high")
    )
    return f"{change:+.1f} [{low:+.1f}, {high:+.1f}]"


if __name__ == "__main__":
    main()
