"""HTTN and its rivals under one budget: the columns of the paper's tables, and the tail.

    python benchmarks/transfer.py --features data/features --seeds 0 1 2 --out transfer.jsonl
    python benchmarks/transfer.py --out transfer.jsonl --table        # the table of what there is

Trains every variant of conf/preset/transfer.yaml with every seed and scores it on test. A line per
run is added to --out; runs that stand there already are not repeated.
"""

import argparse
import json
import logging
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail.config import parse, read_yaml
from coattail.data.features import Features
from coattail.evaluation import metrics
from coattail.models.deep.fit_data import FitData, RunContext
from coattail.models.deep.transfer.transfer_models import build
from coattail.models.deep.transfer.transfer_params import TransferParams

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = {
    "P@1": "p_at_1",
    "P@3": "p_at_3",
    "P@5": "p_at_5",
    "nDCG@3": "ndcg_at_3",
    "nDCG@5": "ndcg_at_5",
    "micro-F1": "micro_f1",
    "PSP@5": "psp_at_5",
    "head R@5": "head_recall_at_5",
    "tail R@5": "tail_recall_at_5",
    "tail cov@5": "tail_coverage_at_5",
    "seconds": "seconds",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--features", default="data/features")
    options.add_argument("--out", type=Path, default=Path("transfer.jsonl"))
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--only", nargs="+", help="variants of the preset")
    options.add_argument("--epochs", type=int, help="instead of the preset's")
    options.add_argument("--threads", type=int, default=0)
    options.add_argument("--table", action="store_true", help="train nothing")
    chosen = options.parse_args()
    logging.getLogger("coattail").setLevel(logging.WARNING)
    if not chosen.table:
        features = Features(chosen.features)
        variants = read_yaml(ROOT / "conf" / "preset" / "transfer.yaml")["transfer"]
        for seed in chosen.seeds:
            for name in chosen.only or variants:
                settings = {**variants[name], "seed": seed}
                if chosen.epochs:
                    settings["epochs"] = chosen.epochs
                if (name, seed) not in {(r["name"], r["seed"]) for r in lines(chosen.out)}:
                    run(features, name, settings, chosen)
    print(table(lines(chosen.out)))


def run(features: Features, name: str, settings: dict, chosen: argparse.Namespace) -> None:
    start = time.perf_counter()
    data = FitData(
        features.tokens("train"),
        features.Y("train"),
        valid=(features.tokens("valid"), features.Y("valid")),
        vectors=features.vectors,
        vocabulary_size=len(features.vocabulary),
        propensity=features.propensity,
    )
    model = build(parse(settings, TransferParams, name))
    model.fit(data, RunContext(threads=chosen.threads))
    line = {"name": name, "seed": settings["seed"], "seconds": time.perf_counter() - start}
    top = model.predict(features.tokens("test"), 100)
    truth = features.inverse_propensity, features.bands
    line |= metrics.score(top, features.Y("test"), *truth)
    if (complete := features.complete("test")) is not None:
        line["complete_tail_recall_at_5"] = metrics.score(top, complete, *truth)["tail_recall_at_5"]
    with chosen.out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(name, settings["seed"], f"{line['seconds']:.0f} s", file=sys.stderr, flush=True)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(found: list[dict]) -> str:
    """A row per variant: means over seeds, and the standard deviation where there are several."""
    rows = [f"| variant | seeds | {' | '.join(COLUMNS)} |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for name in dict.fromkeys(line["name"] for line in found):
        runs = [line for line in found if line["name"] == name]
        cells = []
        for key in COLUMNS.values():
            values = np.array([line[key] for line in runs])
            spread = f" ± {values.std(ddof=1):.2f}" if len(runs) > 1 and key != "seconds" else ""
            cells.append(f"{values.mean():.{0 if key == 'seconds' else 2}f}{spread}")
        rows.append(f"| {name} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
