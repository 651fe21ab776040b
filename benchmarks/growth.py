"""Time and memory of a label tree as the number of labels grows.

    python benchmarks/growth.py --labels 10000,100000,670000 --threads 2 --work FOLDER
    python benchmarks/growth.py --labels 10000,100000 --peers PEERS --bench ../shared/bench

The generated corpus (coattail.data.demo_corpus) at every size: 0.75 texts per label, as Amazon-670K
has, and a
language whose words grow with the square root of the labels, as words do with texts (129,000 at
670,000 labels; Amazon-670K has 136,000). Features are those of preprocess; the labels are the
complete ones, since most rare labels have no text left after the loss. Every size trains in a
process of its own, ``--runs`` times, all sizes in turn, so that a slow minute of the machine meets
all of them. Small sizes train again and again for SECONDS and count by their mean: a tenth of a
second may fall into a good moment, twenty seconds cannot. The fastest run and the median are shown.
The last column is seconds (tree and training) per nnz x log2 L, relative to the smallest size: 1 is
proportional, 1.2 is a fifth more than that; before it, in how many leaves a text is trained and how
often for a block of outputs. --representation and --regroup are those of the tree
(docs/explanation/linear-models.md).

Memory that nobody has used for a while can be slow to get on a virtual machine (ours
gives free memory back to its host). Only large sizes feel that, and it is not what is
measured, so a process takes some gigabytes before the clock and keeps them to itself. Every size
also runs once without: its seconds are shown as ``cold s``, and the peak of memory is that run's.

With --peers (a folder with a virtual environment ``libpecos``, see the README of --bench) PECOS
XR-Linear trains on the same texts by its defaults. --work keeps the features for another run.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.data.corpus import PreprocessParams
from coattail.data.demo_corpus import DemoParams, generate
from coattail.data.features import Features
from coattail.data.formats.xmc import write_xmc
from coattail.data.preprocess import prepare
from coattail.kernels.lanes import LANES
from coattail.labels import tree, tree_building, tree_params
from coattail.models.linear.linear_params import PltParams
from coattail.models.linear.node_problems import NodeProblems
from coattail.models.linear.plt import Plt

TEST = 5000  # texts to predict
SECONDS = 20  # that a run lasts, at least
WARM = 3 << 30  # bytes; the largest size needs 2.5 GB
LEAF, GROUP = 96, 32  # labels a leaf, children a node; the solver trains 32 at once
# Labels to ask the generator for, so that about this many occur in training texts.
ASKED = {10_000: 16_000, 100_000: 185_000, 670_000: 1_400_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--labels", default="10000,100000,670000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--representation", default="companions", help="input, companions, ...")
    parser.add_argument("--regroup", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--bench", type=Path, default=Path("../shared/bench"))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["COATTAIL_THREADS"] = str(arguments.threads)
    if arguments.child:
        print(json.dumps(measure(arguments)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        sizes = [int(part) for part in arguments.labels.split(",")]
        folders = [corpus(work / str(size), size) for size in sizes]
        cold = [train(folder, arguments, "--cold") for folder in folders]
        rounds = [[train(folder, arguments) for folder in folders] for _ in range(arguments.runs)]
        for title, choose in (("fastest", min), ("median", middle)):
            rows = [choose(runs, key=rate) for runs in zip(*rounds, strict=True)]
            both = zip(rows, cold, strict=True)
            show(f"coattail, {title} run", [as_shown(row, first) for row, first in both])
        if arguments.peers:
            show("PECOS XR-Linear", [pecos(folder, arguments) for folder in folders])


def corpus(folder: Path, n_labels: int) -> Path:
    """Features of the generated corpus; made once."""
    if (features := folder / "features").exists():
        return features
    params = DemoParams(
        labels=ASKED.get(n_labels, n_labels),
        train=int(0.75 * n_labels),
        valid=1,
        test=TEST,
        words=round(5000 * math.sqrt(n_labels / 1000)),
    )
    raw = folder / "raw"
    manifest = {"name": "demo", "format": "jsonl", "files": generate(params, raw)}
    manifest["propensity"] = {"A": params.A, "B": params.B}
    (raw / "manifest.json").write_text(json.dumps(manifest))
    prepare(raw, features, PreprocessParams())
    shutil.rmtree(raw)
    return features


def middle(rows: tuple[dict[str, Any], ...], key: Callable[..., float]) -> dict[str, Any]:
    """The run in the middle, the slower of two."""
    return sorted(rows, key=key)[len(rows) // 2]


def as_shown(row: dict[str, Any], cold: dict[str, Any]) -> dict[str, Any]:
    return row | {"peak": cold["peak"], "cold": f"{cold['tree'] + cold['train']:.2f}"}


def train(folder: Path, arguments: argparse.Namespace, *more: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", str(folder), *more]
    command += ["--threads", str(arguments.threads)]
    command += ["--representation", arguments.representation]
    command += ["--regroup" if arguments.regroup else "--no-regroup"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def take_memory() -> None:
    """WARM bytes for this process, every page touched; what it frees it keeps for itself."""
    keep_all = {-1: -1, -4: 0, -8: 1}  # trim never, no maps of their own, one arena (malloc.h)
    for option, value in keep_all.items():
        if not ctypes.CDLL(None).mallopt(option, value):
            sys.exit("this C library does not let a process keep its memory; glibc does")
    np.empty(WARM, np.uint8)[:: os.sysconf("SC_PAGE_SIZE")] = 1


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n")
    heads = "labels | texts | words | nnz | tree s | train s | cold s | texts/s | peak MB | P@1"
    print(f"| {heads} | P@5 | leaves a text | blocks a text | s/(nnz log L) |")
    print("| --- " * 14 + "|")
    for row in rows:
        print(
            f"| {row['labels']:,} | {row['texts']:,} | {row['words']:,} | {row['nnz']:,} "
            f"| {row['tree']:.2f} | {row['train']:.2f} | {row.get('cold', '')} "
            f"| {row['rate']:,.0f} | {row['peak']:,.0f} "
            f"| {row['p1']:.3f} | {row['p5']:.3f} | {row.get('leaves', '')} "
            f"| {row.get('blocks', '')} | {rate(row) / rate(rows[0]):.2f} |"
        )


def pecos(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The same texts given to PECOS; its tree is part of its training time."""
    features = Features(folder)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        for split in ("train", "test"):
            write_xmc(out / f"{split}.txt", features.X(split), features.complete(split))
        python = arguments.peers / "libpecos" / "bin" / "python"
        command = [python, arguments.bench / "libpecos" / "bench.py", "--algo", "xrlinear"]
        command += ["--train", out / "train.txt", "--test", out / "test.txt"]
        command += ["--threads", arguments.threads, "--out", out / "result.json"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        result = json.loads((out / "result.json").read_text())
        labels = np.load(next(out.glob("result*.npz")))["indices"]
    return sizes_of(features) | {
        "tree": 0.0,
        "train": result["train_seconds"],
        "rate": TEST / result["predict_seconds"],
        "peak": result["peak_rss_mb"],
        "p1": hits(features, labels[:, :1]),
        "p5": hits(features, labels[:, :5]),
    }


def rate(row: dict[str, Any]) -> float:
    """Seconds per nnz x log2 L."""
    return float((row["tree"] + row["train"]) / (row["nnz"] * math.log2(row["labels"])))


def sizes_of(features: Features) -> dict[str, int]:
    X, seen = features.X("train"), np.unique(features.complete("train").indices)
    return {"labels": len(seen), "texts": X.shape[0], "words": X.shape[1], "nnz": X.nnz}


def hits(features: Features, labels: NDArray[np.integer[Any]]) -> float:
    """Precision of the labels (texts, k) listed."""
    Y = features.complete("test")
    rows = np.repeat(np.arange(len(labels)), labels.shape[1])
    return float(np.asarray(Y[rows, np.maximum(labels, 0).ravel()]).mean())


def shape_of(n_labels: int, arguments: argparse.Namespace) -> tree_params.ShallowTree:
    """As many levels as bring the root nearest to GROUP children."""
    leaves = 2 ** math.ceil(math.log2(n_labels / LEAF))
    return tree_params.ShallowTree(
        leaf=LEAF,
        group=GROUP,
        levels=max(1, round(math.log(leaves, GROUP))),
        representation=arguments.representation,
        regroup=arguments.regroup,
    )


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    features = Features(arguments.child)
    X, Y, Xt = features.X("train"), features.complete("train"), features.X("test")
    few = X[:1500], Y[:1500]  # kernels are compiled, or read from their cache, before the clock
    shape = shape_of(sizes_of(features)["labels"], arguments)
    for some in (shape, tree_params.BalancedTree()):  # nodes of many outputs, and of two
        Plt(PltParams(), tree_building.build(some, *few)).fit(*few).predict(Xt[:10], 5)
    if not arguments.cold:
        take_memory()
    times: list[tuple[float, float]] = []
    while np.sum(times) < SECONDS and not (arguments.cold and times):
        start = time.perf_counter()
        trees = tree_building.build(shape, X, Y)
        middle_of = time.perf_counter()
        model = Plt(PltParams(), trees).fit(X, Y)
        times.append((middle_of - start, time.perf_counter() - middle_of))
    built, trained = np.mean(times, axis=0).tolist()
    start = time.perf_counter()
    top = model.predict(Xt, 5)
    rate = Xt.shape[0] / (time.perf_counter() - start)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    return sizes_of(features) | {
        "tree": built,
        "train": trained,
        "rate": rate,
        "peak": peak,
        "p1": hits(features, top.labels[:, :1]),
        "p5": hits(features, top.labels),
        **visits(trees[0], X, Y),
    }


def visits(built: tree.Tree, X: sp.csr_matrix, Y: sp.csr_matrix) -> dict[str, float]:
    """In how many leaves a text is trained, and how often for a block of outputs; no clock."""
    problems = NodeProblems(PltParams(), built, X, Y, None)
    outputs = np.array([problems.n_outputs(node) for node in range(built.n_nodes)])
    leaves = problems.texts[np.diff(built.first_label) > 0].sum()
    blocks = (problems.texts * -(-outputs // LANES)).sum()
    return {"leaves": round(leaves / X.shape[0], 2), "blocks": round(blocks / X.shape[0], 2)}


if __name__ == "__main__":
    main()
