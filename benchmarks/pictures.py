"""Pictures of the tail from a workspace: weight norms with and without Taug, F1 of tail labels.

    python benchmarks/pictures.py --data data --to docs/pictures
    python benchmarks/pictures.py --data data --to docs/pictures --models dismec --name eurlex57k
    python benchmarks/pictures.py --data data --to docs/pictures --models --pair joint httn

Reads data/models/<model> of one-vs-rest models and data/ranked/<candidate>/test.npz of a pair.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail.arrays import TopK
from coattail.data.features import Features
from coattail.labels.frequency import counts as count_labels
from coattail.report import tail_plots


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
        norms = {m: tail_plots.weight_norms(chosen.data / "models" / m) for m in chosen.models}
        path = chosen.to / f"weight-norms-{name}.png"
        tail_plots.draw_norms(path, f"{name}: weights of a label's classifier", counts, norms)
        describe(path, counts, norms)
    if chosen.pair:
        pair(chosen, features, name, counts)


def describe(path: Path, counts: np.ndarray, norms: dict[str, np.ndarray]) -> None:
    print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")
    print(f"| model | {' | '.join(texts(b) for b in octaves(counts))} |")
    for model, values in norms.items():
        bins = tail_plots.by_frequency(counts, values)
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
        f1 = {m: tail_plots.label_f1(top, truth, tail, cut) for m, top in tops.items()}
        path = chosen.to / f"tail-f1-{what}-{name}.png"
        where = "probability 0.5" if what == "threshold" else "the first five ranks"
        title = f"{name}: F1 of tail labels at {where}"
        tail_plots.draw_label_f1(path, title, counts[tail], f1)
        base, other = (f1[m] for m in chosen.pair)
        known = np.isfinite(base)
        better, worse = (other > base)[known].sum(), (other < base)[known].sum()
        means = ", ".join(f"{m} {np.nanmean(values):.2f}" for m, values in f1.items())
        print(
            f"{path} ({path.stat().st_size / 1000:.0f} kB): {known.sum()} labels, mean F1 {means}"
        )
        print(f"  {chosen.pair[1]} better for {better} labels, worse for {worse}")


if __name__ == "__main__":
    main()
