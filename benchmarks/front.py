"""ReRank's front on test: q to a power against learned weights, PSP at equal P@1.

    python benchmarks/front.py --data data --base dismec --to docs/pictures
    python benchmarks/front.py --data data --base dismec --calibrations context names

The weights q^a are applied to the base as it comes, a from 0 to 2. Learned weights are chosen on
validation under several losses of P@1 that the user allows. Both are read on test; the last columns
are how much more PSP the learned point has than the powers at its own P@1 (between two of them:
on the straight line).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.evaluation.metrics import judge
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams

POWERS = np.round(np.arange(0, 2.01, 0.1), 1)
# A floor under P@1 alone and as it was measured: the front is drawn along P@1.
FREE: dict[str, Any] = {"strategy": "learned", "confidence": 0.5}
LOSSES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
COLUMNS = (("p", 1), ("p", 5), ("psp", 1), ("psp", 3), ("psp", 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--base", default="dismec")
    parser.add_argument("--calibrations", nargs="+", default=["context"])
    parser.add_argument("--to", type=Path, help="folder for a picture")
    arguments = parser.parse_args()
    features = Features(arguments.data / "features")
    ranked = arguments.data / "ranked" / arguments.base
    tops = {split: TopK.load(ranked / f"{split}.npz") for split in ("valid", "test")}
    texts = {split: features.texts(split) for split in tops}

    def values(**settings: object) -> np.ndarray:
        params = RerankParams(base=arguments.base, **settings)
        q = features.inverse_propensity
        model = Reranker(params, features.label_names)
        model.fit(tops["valid"], features.Y("valid"), features.counts, q, texts["valid"])
        judged = judge(model.predict(tops["test"], 5, texts["test"]), features.Y("test"), q)
        return np.array([judged.ratio(name, k).percent for name, k in COLUMNS])

    powers = np.array([values(strategy="power", power=float(a)) for a in POWERS])
    learned = {
        name: np.array(
            [values(**FREE, calibration=name, allowed_loss={"p_at_1": loss}) for loss in LOSSES]
        )
        for name in arguments.calibrations
    }
    print("| weights | P@1 | P@5 | PSP@1 | PSP@3 | PSP@5 | PSP@1/3/5 above q^a at its P@1 |")
    print("| --- " * 7 + "|")
    for a, row in zip(POWERS[::5], powers[::5], strict=True):
        print(f"| q^{a:g} | {cells(row)} | |")
    for name, rows in learned.items():
        for loss, row in zip(LOSSES, rows, strict=True):
            told = "no power has this P@1"
            if row[0] <= powers[:, 0].max():
                gains = (row[c] - at_equal(powers, row[0], c) for c in (2, 3, 4))
                told = "/".join(f"{gain:+.2f}" for gain in gains)
            print(f"| {name}, {loss:g} points of P@1 allowed | {cells(row)} | {told} |")
    if arguments.to:
        draw(arguments.to / f"front-{features.stats['dataset']}.png", powers, learned)


def cells(row: np.ndarray) -> str:
    return " | ".join(f"{value:.2f}" for value in row)


def at_equal(powers: np.ndarray, p_at_1: float, column: int) -> float:
    """The best the powers reach at this P@1 or a higher one, straight lines between them."""
    order = np.argsort(powers[:, 0])
    best = np.maximum.accumulate(powers[order, column][::-1])[::-1]
    return float(np.interp(p_at_1, powers[order, 0], best))


def draw(path: Path, powers: np.ndarray, learned: dict[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axis, column in zip(axes, (2, 3, 4), strict=True):
        near = powers[:, 0] >= min(rows[:, 0].min() for rows in learned.values()) - 2
        axis.plot(powers[near, 0], powers[near, column], "o-", ms=3, color="0.5", label="q^a")
        for name, rows in learned.items():
            axis.plot(rows[:, 0], rows[:, column], "o-", ms=4, label=f"learned, {name}")
        axis.set(xlabel="P@1", ylabel=f"PSP@{COLUMNS[column][1]}")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)", file=sys.stderr)


if __name__ == "__main__":
    main()
