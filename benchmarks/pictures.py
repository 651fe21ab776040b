"""Pictures of the tail from a workspace: weight norms with and without Taug, F1 of tail labels.

    python benchmarks/pictures.py --data data --to docs/pictures
    python benchmarks/pictures.py --data data --to docs/pictures --models dismec --name eurlex57k
    python benchmarks/pictures.py --data data --to docs/pictures --models --pair joint httn

Reads data/models/<model> of one-vs-rest models and data/ranked/<candidate>/test.npz of a pair.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail.arrays import TopK
from coattail.data.drawing import COLOURS, INK, picture
from coattail.data.features import Features
from coattail.labels.frequency import counts as count_labels
from coattail.models.linear import explain, linear_models
from coattail.report.tail_labels import label_f1

SHOWN = 800  # points of a cloud; more only make the file larger


class Bins(NamedTuple):
    """Labels grouped by their number of texts, each bin about twice as wide as the last."""

    texts: np.ndarray  # geometric middle of a bin
    median: np.ndarray
    low: np.ndarray  # 25th percentile
    high: np.ndarray  # 75th percentile
    labels: np.ndarray


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, default=Path("data"))
    options.add_argument("--to", type=Path, default=Path("docs/pictures"))
    options.add_argument("--name", help="of the dataset; default: as preprocess wrote it")
    options.add_argument("--models", nargs="*", default=["dismec", "dismec-taug"])
    options.add_argument("--pair", nargs=2, metavar=("BASE", "OTHER"), help="compare tail labels")
    options.add_argument("--head", type=float, default=0.6, help="share of labels in the head")
    chosen = options.parse_args()
    features = Features(chosen.data / "features")
    name = chosen.name or features.stats["dataset"]
    counts = count_labels(features.Y("train"))
    if chosen.models:
        norms = {m: weight_norms(chosen.data / "models" / m) for m in chosen.models}
        path = chosen.to / f"weight-norms-{name}.png"
        draw_norms(path, f"{name}: weights of a label's classifier", counts, norms)
        describe(path, counts, norms)
    if chosen.pair:
        pair(chosen, features, name, counts)


def weight_norms(folder: Path) -> np.ndarray:
    """|w| of every label of a saved model; 0 for a label without a training text."""
    norms = explain.norms(linear_models.load(folder))
    if norms is None:
        sys.exit(f"{folder} has no classifier per label; name one-vs-rest models")
    return norms


def by_frequency(counts: np.ndarray, values: np.ndarray) -> Bins:
    """Quartiles of ``values`` over labels with 1, 2-3, 4-7, 8-15, ... texts; NaN left out."""
    keep = (counts > 0) & np.isfinite(values)
    octave = np.floor(np.log2(counts[keep])).astype(np.int64)
    rows = []
    for o in np.unique(octave):
        group = values[keep][octave == o]
        middle = np.sqrt(2.0**o * (2.0 ** (o + 1) - 1))
        rows.append((middle, *np.percentile(group, [50, 25, 75]), len(group)))
    texts, median, low, high, labels = np.array(rows).reshape(-1, 5).T
    return Bins(texts, median, low, high, labels.astype(np.int64))


def draw_norms(path: Path, title: str, counts: np.ndarray, norms: dict[str, np.ndarray]) -> None:
    """Weight norm against training texts of the label: a cloud, and medians with quartiles."""
    with picture(path) as axes:
        for colour, (name, values) in zip(COLOURS, norms.items(), strict=False):
            keep = np.flatnonzero((counts > 0) & np.isfinite(values))
            step = max(1, -(-len(keep) // SHOWN))
            dots = keep[np.argsort(-counts[keep], kind="stable")][::step]
            axes.plot(counts[dots], values[dots], ".", ms=2, color=colour, alpha=0.25)
            bins = by_frequency(counts, values)
            axes.fill_between(bins.texts, bins.low, bins.high, color=colour, alpha=0.15, lw=0)
            axes.plot(bins.texts, bins.median, "o-", ms=4, lw=1.5, color=colour, label=name)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("training texts of the label")
        axes.set_ylabel("|w|: median and quartiles")
        axes.set_title(title, loc="left", color=INK)
        axes.legend(frameon=False)


def describe(path: Path, counts: np.ndarray, norms: dict[str, np.ndarray]) -> None:
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")
    print(f"| model | {' | '.join(texts(b) for b in octaves(counts))} |")
    for model, values in norms.items():
        bins = by_frequency(counts, values)
        print(f"| {model} | {' | '.join(f'{m:.2f}' for m in bins.median)} |")


def octaves(counts: np.ndarray) -> list[int]:
    return np.unique(np.floor(np.log2(counts[counts > 0])).astype(int)).tolist()


def texts(octave: int) -> str:
    first, last = 2**octave, 2 ** (octave + 1) - 1
    return str(first) if first == last else f"{first}-{last}"


def pair(chosen: argparse.Namespace, features: Features, name: str, counts: np.ndarray) -> None:
    """Both models' F1 on the labels outside HTTN's head, at 0.5 and within five ranks."""
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    tail = np.sort(order[int(chosen.head * len(counts)) :])
    truth = features.Y("test")
    tops = {m: TopK.load(chosen.data / "ranked" / m / "test.npz") for m in chosen.pair}
    for what, cut in (("threshold", 0.5), ("top5", 5)):
        f1 = {m: label_f1(top, truth, tail, cut) for m, top in tops.items()}
        path = chosen.to / f"tail-f1-{what}-{name}.png"
        where = "probability 0.5" if what == "threshold" else "the first five ranks"
        title = f"{name}: F1 of tail labels at {where}"
        draw_label_f1(path, title, counts[tail], f1)
        base, other = (f1[m] for m in chosen.pair)
        known = np.isfinite(base)
        better, worse = (other > base)[known].sum(), (other < base)[known].sum()
        means = ", ".join(f"{m} {np.nanmean(values):.2f}" for m, values in f1.items())
        print(
            f"{path} ({path.stat().st_size / 1000:.0f} kB): {known.sum()} labels, mean F1 {means}"
        )
        print(f"  {chosen.pair[1]} better for {better} labels, worse for {worse}")


def draw_label_f1(path: Path, title: str, counts: np.ndarray, f1: dict[str, np.ndarray]) -> None:
    """F1 of single labels, most frequent first, one line per model; labels without F1 left out."""
    known = np.all([np.isfinite(values) for values in f1.values()], axis=0)
    order = np.flatnonzero(known)[np.argsort(-counts[known], kind="stable")]
    width = 0.8 / max(len(f1), 1)
    with picture(path) as axes:
        for number, (colour, (name, values)) in enumerate(zip(COLOURS, f1.items(), strict=False)):
            left = np.arange(len(order)) + number * width - 0.4
            mean = float(values[order].mean()) if len(order) else 0.0
            found = int((values[order] > 0).sum())
            text = f"{name}: mean {mean:.1f}, {found} of {len(order)} labels found"
            axes.bar(left, values[order], width, align="edge", color=colour, label=text)
        axes.set_ylim(0, 100)
        axes.set_xlabel("tail labels with a test text, most frequent first")
        axes.set_ylabel("F1 of the label")
        axes.set_title(title, loc="left", color=INK)
        axes.legend(frameon=False)


if __name__ == "__main__":
    main()
