"""Time and memory of a label tree as the number of labels grows.

    python benchmarks/growth.py --labels 10000,100000,670000 --threads 2
    python benchmarks/growth.py --labels 10000,100000 --peers PEERS --bench ../shared/bench

Texts are drawn as sparse rows (0.75 texts and about 4 labels per text, 75 words a text; a label has
five words of its own, its group of fifty shares twenty, the rest is noise by Zipf). Every size runs
in a process of its own. The last column is seconds (tree and training) per nnz x log2 L, relative
to the smallest size: 1 is proportional, 1.2 is a fifth more than that. With --peers (a folder with
a virtual environment ``libpecos``, see the README of --bench) PECOS XR-Linear trains on the same
texts, by its defaults with a tree of the same shape.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

TEST = 5000  # texts to predict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--labels", default="10000,100000,670000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--bench", type=Path, default=Path("../shared/bench"))
    parser.add_argument("--child", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["COATTAIL_THREADS"] = str(arguments.threads)
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.seed)))
        return
    rows = []
    for size in (int(part) for part in arguments.labels.split(",")):
        command = [sys.executable, __file__, "--child", str(size), "--seed", str(arguments.seed)]
        command += ["--threads", str(arguments.threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    show("coattail", rows)
    if arguments.peers:
        show("PECOS XR-Linear", [pecos(row, arguments) for row in rows])


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n")
    print("| labels | texts | nnz | tree s | train s | texts/s | peak MB | P@1 | s/(nnz log L) |")
    print("| --- " * 9 + "|")
    for row in rows:
        print(
            f"| {row['labels']:,} | {row['texts']:,} | {row['nnz']:,} | {row['tree']:.1f} "
            f"| {row['train']:.1f} | {row['rate']:,.0f} | {row['peak']:,.0f} | {row['p1']:.3f} "
            f"| {rate(row) / rate(rows[0]):.2f} |"
        )


def pecos(ours: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """The same texts given to PECOS; its tree is part of its training time."""
    from coattail.xmc import write_xmc

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = {"train": (ours["texts"], 0), "test": (TEST, 1)}
        for split, (n, stream) in sizes.items():
            X, Y = texts(n, ours["labels"], arguments.seed, stream)
            write_xmc(folder / f"{split}.txt", X, Y)
        python = arguments.peers / "libpecos" / "bin" / "python"
        command = [python, arguments.bench / "libpecos" / "bench.py", "--algo", "xrlinear"]
        command += ["--train", folder / "train.txt", "--test", folder / "test.txt"]
        command += ["--threads", arguments.threads, "--out", folder / "result.json"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        result = json.loads((folder / "result.json").read_text())
        top = np.load(next(folder.glob("result*.npz")))["indices"][:, 0]
    hits = np.asarray(Y[np.arange(TEST), np.maximum(top, 0)]).ravel()
    return ours | {
        "tree": 0.0,
        "train": result["train_seconds"],
        "rate": TEST / result["predict_seconds"],
        "peak": result["peak_rss_mb"],
        "p1": float(hits.mean()),
    }


def rate(row: dict[str, Any]) -> float:
    """Seconds per nnz x log2 L."""
    return float((row["tree"] + row["train"]) / (row["nnz"] * math.log2(row["labels"])))


def texts(n: int, n_labels: int, seed: int, stream: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Rows of unit length and their labels; ``stream`` tells train from test."""
    rng = np.random.default_rng([seed, stream])
    n_words = 20_000 + n_labels // 2
    per_text = 1 + rng.poisson(3.0, n)
    row = np.repeat(np.arange(n), per_text)
    label = np.minimum((n_labels * rng.random(len(row)) ** 2).astype(np.int64), n_labels - 1)
    group = label // 50
    own = (label[:, None] * 7919 + np.arange(5) * 104729) % n_words
    shared = (group[:, None] * 6007 + rng.integers(0, 20, (len(label), 5)) * 30011) % n_words
    noise_row = np.repeat(np.arange(n), 40)
    noise = (n_words * rng.random(len(noise_row)) ** 4).astype(np.int64)
    rows = np.concatenate([np.repeat(row, 10), noise_row])
    words = np.concatenate([np.hstack([own, shared]).ravel(), noise])
    X = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, words)), shape=(n, n_words))
    X.data = np.log1p(X.data)
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sp.csr_matrix(sp.diags(1 / length) @ X, dtype=np.float32)
    Y = sp.csr_matrix((np.ones(len(row), np.float32), (row, label)), shape=(n, n_labels))
    Y.data[:] = 1
    return X, Y


def measure(n_labels: int, seed: int) -> dict[str, Any]:
    from coattail import tree
    from coattail.linear.params import PltParams
    from coattail.linear.plt import Plt

    small = texts(1500, 500, seed, 2)
    Plt(PltParams(), tree.build(tree.BalancedTree(), *small)).fit(*small).predict(small[0], 5)
    X, Y = texts(int(0.75 * n_labels), n_labels, seed, 0)
    Xt, Yt = texts(TEST, n_labels, seed, 1)
    start = time.perf_counter()
    # Shallow and wide: 16 children per node, about a hundred labels per leaf.
    trees = tree.build(tree.ShallowTree(leaf=100, group=16, levels=8), X, Y)
    built = time.perf_counter() - start
    start = time.perf_counter()
    model = Plt(PltParams(), trees).fit(X, Y)
    trained = time.perf_counter() - start
    start = time.perf_counter()
    top = model.predict(Xt, 5)
    rate = Xt.shape[0] / (time.perf_counter() - start)
    hits = np.asarray(Yt[np.arange(Yt.shape[0]), np.maximum(top.labels[:, 0], 0)]).ravel()
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    return {
        "labels": n_labels,
        "texts": X.shape[0],
        "nnz": X.nnz,
        "tree": built,
        "train": trained,
        "rate": rate,
        "peak": peak,
        "p1": float(hits.mean()),
    }


if __name__ == "__main__":
    main()
