"""Where the training of a large label tree spends its time, level by level.

    python benchmarks/growth.py --labels 670000 --runs 1 --work FOLDER
    python benchmarks/node_costs.py FOLDER/670000/features

For some nodes of every level, in one thread: texts and words of a node, the share of its words, and
of all their occurrences, that are in one of its texts only; nanoseconds to prepare a text, to visit
it once for a block of outputs, and to write down a block's weights per text; visits a text and
block. The tree and the parameters are those of growth.py.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
from growth import shape_of, sizes_of
from numpy.typing import NDArray

from coattail.data.features import Features
from coattail.kernels.lanes import LANES
from coattail.kernels.runtime.scratch import kept, scratch
from coattail.kernels.solvers import lockstep
from coattail.kernels.solvers.problems import Labels
from coattail.labels import tree_building
from coattail.models.linear.linear_params import PltParams
from coattail.models.linear.node_problems import EPOCHS, NodeProblems
from coattail.models.linear.node_solver import node_rows

TEXTS = 300_000  # of a level that are looked at, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--representation", default="companions")
    parser.add_argument("--regroup", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    features = Features(arguments.features)
    X, Y = features.X("train"), features.complete("train")
    (built,) = tree_building.build(shape_of(sizes_of(features)["labels"], arguments), X, Y)
    os.environ["COATTAIL_THREADS"] = "1"
    problems = NodeProblems(PltParams(), built, X, Y, None)
    heads = "depth | nodes | texts a node | words | own words | own occurrences | prepare ns"
    print(f"| {heads} | visit ns | visits | write ns |")
    print("| --- " * 10 + "|")
    for depth in range(built.depth + 1):
        level = built.nodes_at(depth)
        some = np.random.default_rng(0).permutation(level)
        enough = np.searchsorted(np.cumsum(problems.texts[some]), TEXTS) + 1
        measure(problems, int(some[0]))  # compiles
        total: Counter[str] = Counter()
        for node in some[:enough]:
            total.update(measure(problems, int(node)))
        n, blocks = total["texts"], total["blocks"]
        print(
            f"| {depth} | {len(level):,} | {n / len(some[:enough]):,.0f} "
            f"| {total['words'] / len(some[:enough]):,.0f} "
            f"| {total['own words'] / total['words']:.2f} | {total['own'] / total['nnz']:.2f} "
            f"| {1e9 * total['prepare'] / n:.0f} | {1e9 * total['visit'] / total['visits']:.0f} "
            f"| {total['visits'] / blocks:.1f} | {1e9 * total['write'] / blocks:.0f} |"
        )


def measure(problems: NodeProblems, node: int) -> dict[str, float]:
    """Counts and seconds of one node; blocks are texts times blocks of outputs."""
    params, texts = problems.params, problems._texts(node)
    start = time.perf_counter()
    rows = node_rows(problems.csr, problems.squares, texts, problems.n_words)
    found = {"prepare": time.perf_counter() - start, "visit": 0.0, "write": 0.0, "visits": 0.0}
    n, d = len(rows.csr.own), len(rows.words)
    group = problems._group(node, texts, 0, problems.n_outputs(node))
    counts = np.zeros(d, np.int32)
    room = (np.empty(1 << 22, np.int32), np.empty(1 << 22, np.uint16), np.empty(1 << 22, "f4"))
    store = lockstep.WeightStore(0, *room)
    epochs = min(params.max_epochs, max(params.max_visits // n, EPOCHS))
    blocks = range(0, len(group.keys), LANES)
    all_alpha = scratch("alpha", n * LANES, np.float32)
    with kept("W", rows.n_shared * LANES, np.float32) as all_W:
        for first in blocks:
            block = block_of(group, first, all_W, all_alpha, n)
            start = time.perf_counter()
            eps, prune = np.float32(params.eps), np.float32(params.prune)
            _, visits = lockstep.descend_together(rows.csr, block, eps, epochs, params.seed)
            middle = time.perf_counter()
            store = lockstep.emit(rows.csr, block, prune, first, counts, store)
            found["visit"] += middle - start
            found["write"] += time.perf_counter() - middle
            found["visits"] += float(visits.max())
    own_nnz = float((rows.csr.indptr[1:] - rows.csr.middle).sum())
    sizes = {"texts": n, "blocks": n * len(blocks), "words": d, "own words": d - rows.n_shared}
    return found | sizes | {"own": own_nnz, "nnz": float(rows.csr.indptr[-1])}


def block_of(
    group: Labels, first: int, all_W: NDArray, all_alpha: NDArray, n: int
) -> lockstep.LaneBlock:
    """The block of the outputs from ``first`` on, before the first visit to the n texts."""
    size = min(LANES, len(group.keys) - first)
    signs = np.zeros(n, np.uint8 if size <= lockstep.FEW else np.uint32)
    lanes, own = 8 * signs.itemsize, slice(first, first + size)
    half = np.zeros(lanes, np.float32), np.ones(lanes, np.float32)
    for side, c in zip(half, (group.c_pos[own], group.c_neg[own]), strict=True):
        side[:size] = 0.5 / c
    for lane, j in enumerate(range(first, first + size)):
        signs[group.positives[group.first[j] : group.first[j + 1]]] |= signs.dtype.type(1 << lane)
    alpha, W = all_alpha[: n * lanes], all_W[: len(all_W) // LANES * lanes]
    alpha[:] = 0
    return lockstep.LaneBlock(signs, *half, alpha, W, np.zeros(lanes, np.float32))


if __name__ == "__main__":
    main()
