"""Seconds to score 600,000 texts x top 5, beside the common evaluator of the shared material.

python benchmarks/metrics.py [--texts 600000] [--labels 100000] [--reference path/to/evaluate.py]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import scipy.sparse as sp

from coattail.arrays import TopK
from coattail.evaluation import metrics
from coattail.labels import frequency

REFERENCE = Path(__file__).parents[1].parent / "shared" / "bench" / "evaluate.py"
TRAINING_TEXTS = 1_000_000


def draw(rng: np.random.Generator, n: int, size: int, n_labels: int) -> np.ndarray:
    """``size`` label ids per text, (n, size), Zipf-like, none twice in a row."""
    drawn = (rng.pareto(1.0, (n, size)) * 20).astype(np.int64) % (n_labels // size)
    return drawn * size + np.arange(size)  # each column has its own residue


def case(n: int, n_labels: int, seed: int = 0) -> tuple[TopK, sp.csr_matrix]:
    """Six true labels per text; about four in ten predictions are right."""
    rng = np.random.default_rng(seed)
    true = draw(rng, n, 6, n_labels)
    said = np.where(rng.random((n, 5)) < 0.4, true[:, :5], draw(rng, n, 6, n_labels)[:, :5])
    indptr = np.arange(0, 6 * n + 1, 6)
    indices = np.sort(true, axis=1).ravel().astype(np.int32)
    Y = sp.csr_matrix((np.ones(6 * n, np.float32), indices, indptr), shape=(n, n_labels))
    scores = np.sort(rng.random((n, 5)).astype(np.float32), axis=1)[:, ::-1]
    return TopK(said.astype(np.int32), np.ascontiguousarray(scores)), Y


def load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=600_000)
    parser.add_argument("--labels", type=int, default=120_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    args = parser.parse_args()

    topk, Y = case(args.texts, args.labels)
    counts = frequency.counts(Y)
    q, bands = frequency.inverse_propensity(counts, TRAINING_TEXTS), frequency.bands(counts)
    metrics.score(*case(100, args.labels), q, bands)  # compile
    runs = []
    for _ in range(args.repeats):
        start = time.perf_counter(), time.process_time()
        ours = metrics.score(topk, Y, q, bands, variant="b")
        runs.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    best, cpu = (min(column) for column in zip(*runs, strict=True))
    print(f"{args.texts:,} texts x top 5, {args.labels:,} labels, {Y.nnz:,} true labels")
    print(
        f"coattail  {best:.2f} s, {cpu:.2f} s of CPU ({len(ours)} metrics, best of {args.repeats})"
    )
    if not args.reference.exists():
        print(f"reference {args.reference} is not here: no ratio")
        return
    began, began_cpu = time.perf_counter(), time.process_time()
    theirs = load(args.reference).evaluate(counts, TRAINING_TEXTS, Y, topk.labels.astype(np.int64))
    other, other_cpu = time.perf_counter() - began, time.process_time() - began_cpu
    names = {"p_at_5": "P@5", "ndcg_at_5": "nDCG@5", "psp_at_5": "PSP@5", "psndcg_at_5": "PSnDCG@5"}
    worst = max(abs(ours[mine] - theirs[name]) for mine, name in names.items())
    print(
        f"reference {other:.2f} s, {other_cpu:.2f} s of CPU (once); differs by {worst:.0e} at most"
    )
    print(f"ratio     {other / best:.1f} (CPU {other_cpu / cpu:.1f}) times as fast")


if __name__ == "__main__":
    main()
