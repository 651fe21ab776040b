"""Can the champion's figure and the marks of a leaderboard be trusted?

    python benchmarks/trust_marks.py --data data

1. Optimism: name a champion, publish its figure, read it again on other texts. Chosen on the very
   texts whose figure is published, as it was, and by the rule of params.yaml on validation.
2. False marks: worlds of ten equal candidates, of coins and of the real rankings (each text takes
   the answer of one of two candidates, by a coin). How often is one called worse than the best, or
   better or worse than the base, by an interval of its own and by intervals that hold together?
3. Power: the marks that the real leaderboard has by either.
4. Counts: how much higher PSP on validation is if the validation labels are among those counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coattail.arrays import TopK
from coattail.config import load
from coattail.data.features import Features
from coattail.data.stored import Split
from coattail.evaluation import bootstrap, champion, metrics, simultaneous, statements
from coattail.evaluation.metrics import Ratio
from coattail.evaluation.scoring import EvaluateParams, Evaluation
from coattail.labels import frequency

EQUALS, DRAWS = 10, 300
SHOWN = ("p_at_1", "p_at_5", "psp_at_1", "psp_at_5", "tail_recall_at_5")
Ratios = dict[str, dict[str, Ratio]]  # candidate -> metric -> per text
World = tuple[NDArray[np.float64], NDArray[np.float64]]  # values (K,), draws (K, R)


def read(data: Path, split: Split, blind: bool = True) -> Ratios:
    """Every candidate's figures text by text.

    Labels are counted as `evaluate` counts them; not ``blind``, in the validation texts, too.
    """
    features = Features(data / "features")
    weights = features.inverse_propensity
    if split == "valid" and blind:
        weights = features.train_inverse_propensity
    tail = features.bands == frequency.TAIL
    found: Ratios = {}
    for name in json.loads((data / "candidates.json").read_text())["candidates"]:
        top = TopK.load(data / "ranked" / name / f"{split}.npz")
        judged = metrics.judge(top, features.Y(split), weights)
        ranked = {f"{m}_at_{k}": judged.ratio(m, k) for m in ("p", "psp") for k in (1, 5)}
        found[name] = ranked | {"tail_recall_at_5": judged.group_recall(5, tail)}
    return found


# --- optimism ------------------------------------------------------------------------------------


def figures(ratios: Ratios, texts: NDArray) -> dict[str, dict[str, float]]:
    """Candidate -> metric on some of the texts."""
    return {
        name: {m: Ratio(r.numerator[texts], r.denominator[texts]).percent for m, r in row.items()}
        for name, row in ratios.items()
    }


def optimism(
    valid: Ratios, test: Ratios, rule: champion.BestRule, base: str, splits: int = 200
) -> dict[str, float]:
    """Published minus read again, mean over random halves of the test texts, in points.

    Each half is published once and read again once, so that their difference cancels out.
    """
    n, n_valid = (len(next(iter(r.values()))["p_at_1"].numerator) for r in (test, valid))
    rng, gaps = np.random.default_rng(0), []
    for _ in range(splits):
        half = rng.permutation(n) < n // 2
        halves = figures(test, half), figures(test, ~half)
        some = rng.permutation(n_valid) < n_valid // 2
        on_valid = champion.choose(rule, figures(valid, some), base).name
        for published, again in (halves, halves[::-1]):
            on_test = max(published, key=lambda name, there=published: there[name][rule.by])
            gaps.append([published[c][rule.by] - again[c][rule.by] for c in (on_test, on_valid)])
    before, after = np.mean(gaps, axis=0)
    return {"chosen on test": float(before), "chosen on validation": float(after)}


# --- false marks ---------------------------------------------------------------------------------


def coins(seed: int, texts: int = 1000) -> World:
    """Ten candidates that agree on seven texts of ten and are right on six of ten."""
    rng = np.random.default_rng(seed)
    agreed = rng.random(texts) < 0.6
    right = [
        np.where(rng.random(texts) < 0.3, rng.random(texts) < 0.6, agreed) for _ in range(EQUALS)
    ]
    return drawn([Ratio(one.astype(float), np.ones(texts)) for one in right], seed)


def mixed(first: Ratio, second: Ratio, seed: int) -> World:
    """Ten candidates that answer each text as one of two do, by a coin."""
    rng = np.random.default_rng(seed)
    heads = rng.random((EQUALS, len(first.numerator))) < 0.5
    numerators = np.where(heads, first.numerator, second.numerator)
    return drawn([Ratio(one, first.denominator) for one in numerators], seed)


def drawn(ratios: list[Ratio], seed: int) -> World:
    named = {str(i): ratio for i, ratio in enumerate(ratios)}
    draws = bootstrap.resample(named, DRAWS, seed)
    return np.array([r.percent for r in ratios]), np.array(list(draws.values()))


def false_marks(make: Callable[[int], World], worlds: int) -> dict[str, float]:
    """Percent of worlds with at least one false mark, by question and kind of interval."""
    found = [[own(*world), together(*world)] for world in map(make, range(worlds))]
    share = 100 * (np.array(found) > 0).mean(axis=0)  # (kind, question)
    return {
        f"{question}, {kind}": float(share[i, j])
        for j, question in enumerate(("worse than the best", "unlike the base"))
        for i, kind in enumerate(("own interval", "together"))
    }


def own(values: NDArray, draws: NDArray, base: int = 0) -> tuple[int, int]:
    """Marks against the best and against the base where every comparison has its own interval."""
    best = int(values.argmax())
    ends = [
        [bootstrap.interval(one - draws[other], 0.95) for one in draws] for other in (best, base)
    ]
    return sum(high < 0 for _, high in ends[0]), sum(low > 0 or high < 0 for low, high in ends[1])


def together(values: NDArray, draws: NDArray, base: int = 0) -> tuple[int, int]:
    """The same by intervals that hold at once."""
    best = simultaneous.from_best(values, draws, int(values.argmax()), 0.95)
    return int(best.real.sum()), int(simultaneous.from_one(values, draws, base, 0.95).real.sum())


def power(test: Ratios, base: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Metric, marks by own intervals, marks by intervals together; 1,000 draws as `evaluate`."""
    names = list(test)
    for metric in SHOWN:
        ratios = {name: test[name][metric] for name in names}
        draws = np.array(list(bootstrap.resample(ratios, 1000, 0).values()))
        values = np.array([ratio.percent for ratio in ratios.values()])
        yield metric, *(marks(values, draws, names.index(base)) for marks in (own, together))


def _two(test: Ratios, base: str) -> tuple[dict[str, Ratio], dict[str, Ratio]]:
    """The base and the candidate that is nearest to it in PSP@5."""
    value = {name: row["psp_at_5"].percent for name, row in test.items()}
    near = min((n for n in test if n != base), key=lambda n: abs(value[n] - value[base]))
    return test[base], test[near]


def tell_champion(evaluation: Evaluation) -> None:
    """The champion's figure on validation and on test, and the best there is on test."""
    chosen = champion.Champion.of(evaluation.summary)
    row = statements.on_validation(evaluation, chosen.by)[chosen.name]
    best = max(evaluation.metrics, key=lambda name: evaluation.metrics[name][chosen.by])
    print(
        f"champion {chosen.name}: {chosen.by} {row['valid']:.2f} on validation, {row['test']:.2f} "
        f"on test, {row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f}); "
        f"best on test {best} {evaluation.metrics[best][chosen.by]:.2f}"
    )


def show(title: str, values: Mapping[str, float], digits: int = 1) -> None:
    print(f"{title}: " + "; ".join(f"{name} {value:.{digits}f}" for name, value in values.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--worlds", type=int, default=200)
    arguments = parser.parse_args()
    params: EvaluateParams = load("evaluate", EvaluateParams, arguments.data.parent / "params.yaml")
    rule = champion.rule(params.best, params.ks)
    valid, test = read(arguments.data, "valid"), read(arguments.data, "test")
    base = params.base or next(iter(test))
    for by in dict.fromkeys([rule.by, "psp_at_5", "psp_at_1", "p_at_1"]):
        found = optimism(valid, test, champion.BestRule(by, rule.at_least), base)
        show(f"optimism of a champion by {by}, points", found, 2)
    tell_champion(Evaluation.load(arguments.data / "evaluation"))
    print(f"worlds with a false mark of {arguments.worlds}, percent (at most 7 wanted)")
    show("  coins", false_marks(coins, arguments.worlds))
    first, second = _two(test, base)
    for metric in ("p_at_1", "psp_at_5", "tail_recall_at_5"):
        pair = first[metric], second[metric]
        show(f"  {metric}", false_marks(lambda seed, p=pair: mixed(*p, seed), arguments.worlds))
    print("marks on the leaderboard (worse than the best, unlike the base): own interval, together")
    for metric, alone, at_once in power(test, base):
        print(f"  {metric}: {alone}, {at_once}")
    seeing = read(arguments.data, "valid", blind=False)
    for metric in ("psp_at_1", "psp_at_5"):
        more = [seeing[name][metric].percent - valid[name][metric].percent for name in valid]
        print(f"{metric} on validation if its own labels are counted: {np.mean(more):+.2f} points")


if __name__ == "__main__":
    main()
