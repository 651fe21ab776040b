"""PW and PW-cb against the unweighted base: what do weights on the positives buy?

    python benchmarks/weighting.py --features data/features

One-vs-rest and Bonsai, each with weights none, PW and PW-cb, trained on train and judged on test.
The second table reads the propensity-scored columns off the ranking that the evaluation code
of the PW paper uses and its text does not mention (``coattail.evaluation.second_ranking``); P and
nDCG are the same.
*scored* and *plain* are the two means of relative change over the base (eq. 30 of the paper).
Models are kept in --out and not trained again.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

from coattail.arrays import TopK
from coattail.config import parse
from coattail.data.features import Features
from coattail.evaluation.metrics import changes, judge
from coattail.evaluation.second_ranking import reorder_top5
from coattail.labels import tree_building, tree_params
from coattail.models.linear.linear_models import build
from coattail.models.linear.linear_params import LinearParams

COLUMNS = ("p", "ndcg", "psp", "psndcg")
KS = (1, 3, 5)
TREES = {"method": "kmeans", "trees": 3}
BASES = {"ovr": {"model": "ovr"}, "bonsai": {"model": "plt"}}
WEIGHTS = ("none", "pw", "pwcb")
NO_MARGIN = {"ovr": 0.0, "bonsai": math.exp(-1)}  # the score of a label whose margin is 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", type=Path, default=Path("data/features"))
    parser.add_argument("--out", type=Path, default=Path("data/benchmarks/weighting"))
    parser.add_argument("--only", default="ovr,bonsai")
    arguments = parser.parse_args()
    features = Features(arguments.features)
    Y, q = features.Y("test"), features.inverse_propensity
    plain: dict[str, dict[str, float]] = {}
    moved: dict[str, dict[str, float]] = {}
    for base in arguments.only.split(","):
        for weighting in WEIGHTS:
            name = base if weighting == "none" else f"{base}-{weighting}"
            top = ranking(name, base, weighting, features, arguments.out)
            plain[name] = values(top, Y, q)
            moved[name] = plain[name] | {
                key: value
                for key, value in values(reorder_top5(top, q, NO_MARGIN[base]), Y, q).items()
                if key.startswith("ps")
            }
    print("Ranked by score:\n")
    table(plain)
    print("\nPropensity-scored columns with the first five labels reordered:\n")
    table(moved)


def ranking(name: str, base: str, weighting: str, features: Features, out: Path) -> TopK:
    """Top 10 of the test texts, trained unless --out holds it."""
    path = out / f"{name}.npz"
    if not path.exists():
        X, Y = features.X("train"), features.Y("train")
        constants = features.propensity
        params = parse(BASES[base] | {"weighting": weighting}, LinearParams, name)
        start = time.perf_counter()
        trees = tree_building.build(parse(TREES, tree_params.TreeParams, "bonsai"), X, Y)
        model = build(params.of_dataset(constants), trees if base == "bonsai" else None)
        model.fit(X, Y)
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
        model.predict(features.X("test"), 10).save(path)
    return TopK.load(path)


def values(top: TopK, Y: Any, q: Any) -> dict[str, float]:
    judged = judge(top, Y, q)
    return {f"{name}_at_{k}": judged.ratio(name, k).percent for name in COLUMNS for k in KS}


def table(rows: dict[str, dict[str, float]]) -> None:
    print("| model | P@1/3/5 | nDCG@1/3/5 | PSP@1/3/5 | PSnDCG@1/3/5 | scored % | plain % |")
    print("| --- " * 7 + "|")
    for name, row in rows.items():
        cells = ["/".join(f"{row[f'{c}_at_{k}']:.2f}" for k in KS) for c in COLUMNS]
        base = rows[name.split("-")[0]]
        means = changes(row, base).values()
        cells += [f"{mean:+.2f}" if row is not base else "" for mean in means]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
