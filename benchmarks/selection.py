"""Which shape of tree, which C of FastXML? Chosen on validation texts, never on test.

    python benchmarks/selection.py --features data/features --what tree
    python benchmarks/selection.py --features data/features --what fastxml --trees 10
    python benchmarks/selection.py --features data/features --what parabel

Every candidate trains on the train part and is judged on the validation part. ``tree`` compares
shapes of a single label tree, ``fastxml`` values of C, ``parabel`` seeds and prunings of the three
balanced trees: how much does another seed change?
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coattail.config import parse
from coattail.data.features import Features
from coattail.evaluation.metrics import judge
from coattail.labels import tree_building, tree_params
from coattail.models.linear.linear_models import build
from coattail.models.linear.linear_params import LinearParams

Candidate = tuple[str, dict[str, Any] | None, dict[str, Any]]  # name, tree, model


def candidates(what: str, trees: int) -> Iterator[Candidate]:
    if what == "tree":
        for k in (32, 64, 100, 200):
            yield f"kmeans k={k}", {"method": "kmeans", "k": k}, {"model": "plt"}
        for leaf in (32, 100):
            shape = {"method": "shallow", "leaf": leaf, "levels": 1}
            yield f"shallow leaf={leaf}", shape, {"model": "plt"}
        yield "balanced leaf=100", {"method": "balanced"}, {"model": "plt"}
    elif what == "fastxml":
        for c in (0.5, 1.0, 2.0, 5.0, 10.0):
            yield f"fastxml C={c:g}", None, {"model": "fastxml", "trees": trees, "C": c}
    else:
        for prune in (0.1, 0.05):
            for seed in (0, 10, 20):
                shape = {"method": "balanced", "trees": 3, "seed": seed}
                yield f"parabel {prune=} {seed=}", shape, {"model": "plt", "prune": prune}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", type=Path, default=Path("data/features"))
    parser.add_argument("--what", choices=("tree", "fastxml", "parabel"), default="tree")
    parser.add_argument("--trees", type=int, default=50, help="trees of FastXML")
    arguments = parser.parse_args()
    features = Features(arguments.features)
    X, Y = features.X("train"), features.Y("train")
    print("| candidate | train s | valid P@1/3/5 | nDCG@5 | PSP@1/3/5 |")
    print("| --- " * 5 + "|")
    for name, shape, values in candidates(arguments.what, arguments.trees):
        start = time.perf_counter()
        trees = (
            tree_building.build(parse(shape, tree_params.TreeParams, name), X, Y) if shape else None
        )
        model = build(parse(values, LinearParams, name), trees).fit(X, Y)
        seconds = time.perf_counter() - start
        judged = judge(
            model.predict(features.X("valid"), 5), features.Y("valid"), features.inverse_propensity
        )
        p, psp = (
            "/".join(f"{judged.ratio(m, k).percent:.2f}" for k in (1, 3, 5)) for m in ("p", "psp")
        )
        ndcg = judged.ratio("ndcg", 5).percent
        print(f"| {name} | {seconds:.1f} | {p} | {ndcg:.2f} | {psp} |", flush=True)


if __name__ == "__main__":
    main()
