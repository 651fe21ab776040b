"""Every candidate scored in one place: metrics, bands, bins, paired intervals, the champion."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field, field_validator

from coattail.arrays import DEPTH, TopK
from coattail.config import Params, suggestion
from coattail.data.features import Features
from coattail.errors import ConfigError, DataError
from coattail.evaluation import bootstrap, champion, metrics, simultaneous
from coattail.evaluation.second_ranking import reorder_top5
from coattail.files import atomic_file, atomic_folder
from coattail.labels.frequency import BANDS, EDGES, bin_names, frequency_bin
from coattail.progress import progress

Row = dict[str, Any]
COMPLETE = ("p", "ndcg", "rp", "recall", "coverage", "tail_recall", "tail_coverage")
"""Metrics that are taken against the complete labels too, where they are known."""
TABLES = ("bands", "bins", "intervals", "comparisons", "front", "calibration", "validation")


class EvaluateParams(Params):
    """Section `evaluate` of params.yaml."""

    ks: Annotated[tuple[Annotated[int, Field(ge=1, le=DEPTH)], ...], Field(strict=False)] = Field(
        (1, 3, 5),
        description="ranks at which metrics are taken; the largest is the one of tables and plots",
    )
    base: str | None = Field(
        None, description="candidate that all others are compared with; null: the first one"
    )
    best: champion.BestParams = Field(
        champion.BestParams(), description="which candidate is the champion; chosen on validation"
    )
    resamples: int = Field(
        1000, ge=10, le=100_000, description="bootstrap resamples of the test texts"
    )
    confidence: float = Field(
        0.95,
        gt=0,
        lt=1,
        description="share of the resamples inside an interval; of comparisons, inside all "
        "intervals of a metric",
    )
    seed: int = Field(0, ge=0, description="seed of the resamples")
    psndcg: metrics.Variant = Field(
        "a", description="normalisation of PSnDCG: a as the XMC repository does, b as pyxclib does"
    )
    second_ranking: bool = Field(
        False,
        description="also reordered_psp_at_k and reordered_psndcg_at_k, the figures of PW-DiSMEC's "
        "own evaluation",
    )
    bins: Annotated[tuple[int, ...], Field(strict=False)] = Field(
        EDGES, description="largest training frequency of each bin but the last"
    )
    calibration_bins: int = Field(
        10, ge=2, le=100, description="bins of the probability in the reliability table"
    )

    @field_validator("ks", "bins")
    @classmethod
    def _ascending(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if not values or list(values) != sorted(set(values)) or values[0] < 0:
            raise ValueError("wanted ascending numbers, none twice")
        return values


class Stored(Mapping[str, TopK]):
    """The rankings of one candidate on disk, each read when it is asked for and not kept."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __getitem__(self, split: str) -> TopK:
        return TopK.load(self.folder / f"{split}.npz")

    def __iter__(self) -> Iterator[str]:
        return iter(("valid", "test"))

    def __len__(self) -> int:
        return 2


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes
    ----------
    summary : dict
        candidates, base, champion, best (per metric), ks, thresholds, kinds, sizes of the test set.
    metrics : dict
        candidate -> metric -> value, every name of docs/reference/metrics.md; NaN where it does not
        exist.
    tables : dict
        bands, bins, intervals, comparisons, front, calibration, validation: lists of flat rows.
    """

    summary: Row
    metrics: dict[str, dict[str, float]]
    tables: dict[str, list[Row]]

    def write(self, folder: Path, metrics: Path, plots: Path) -> None:
        """Details into ``folder``, ``<candidate>.json`` into ``metrics``, CSV into ``plots``."""
        with atomic_folder(folder) as temporary:
            _write_json(temporary / "summary.json", self.summary)
            _write_json(temporary / "metrics.json", self.metrics)
            for name in TABLES:
                _write_rows(temporary / f"{name}.json", self.tables[name])
        for stale in metrics.glob("*.json"):
            if stale.stem not in self.metrics:
                stale.unlink()
        for candidate, values in self.metrics.items():
            shown = {m: values[m] for m in headline(self.summary["ks"])}
            present = {m: v for m, v in shown.items() if not math.isnan(v)}
            _write_json(metrics / f"{candidate}.json", present, digits=2)
        for name, (table, columns) in _plots(self.summary["ks"]).items():
            _write_csv(plots / f"{name}.csv", self.tables[table], columns)

    @staticmethod
    def load(folder: str | Path) -> Evaluation:
        """Read what `write` left in ``folder``."""
        content = {n: _read_json(Path(folder) / f"{n}.json") for n in ("metrics", *TABLES)}
        values = {name: _with_nan(row) for name, row in content.pop("metrics").items()}
        tables = {name: [_with_nan(row) for row in rows] for name, rows in content.items()}
        return Evaluation(_read_json(Path(folder) / "summary.json"), values, tables)


def headline(ks: Sequence[int]) -> list[str]:
    """The metrics of the small files and of the leaderboard, in order."""
    k = max(ks)
    names = [*(f"p_at_{i}" for i in ks), f"ndcg_at_{k}", *(f"psp_at_{i}" for i in ks)]
    return [*names, *(f"{m}_at_{k}" for m in ("rp", "tail_recall", "coverage")), *_F1]


# Of the thresholds the tuned one suits every candidate: not all probabilities are calibrated.
_F1 = ("micro_f1_tuned", "macro_f1_tuned")


def evaluate(
    candidates: Mapping[str, Mapping[str, TopK]], features: Features, params: EvaluateParams
) -> Evaluation:
    """Score every candidate (name -> its rankings of ``valid`` and ``test``)."""
    base = _base(list(candidates), params.base)
    if wrong := champion.complaints(params.best, params.ks):
        raise ConfigError("\n".join(wrong))
    truth = _Truth(features, params)
    results: dict[str, _Result] = {}
    with progress("evaluate", len(candidates), "candidates") as bar:
        for name, rankings in candidates.items():
            try:
                results[name] = _score(name, rankings, truth, params)
            except DataError as error:
                raise DataError(f"candidate {name}: {error}") from None
            shown = headline(params.ks[-1:])
            bar.advance(1, ", ".join(f"{m} {results[name].metrics[m]:.2f}" for m in shown[:3]))
    for result in results.values():
        result.metrics |= metrics.changes(result.metrics, results[base].metrics)
        result.on_valid |= metrics.changes(result.on_valid, results[base].on_valid)
    wanted = champion.rule(params.best, params.ks)
    chosen = champion.choose(wanted, {n: r.on_valid for n, r in results.items()}, base)
    best = {m: _best(results, m) for m in results[base].resampled}
    tables = {name: [row for r in results.values() for row in r.tables[name]] for name in TABLES}
    tables["front"] = front({name: r.metrics for name, r in results.items()}, params.ks)
    for metric, leader in best.items():
        tables["comparisons"] += _comparisons(metric, results, base, leader, params)
    for group in (chosen.metrics, *([m] for m in best if m not in chosen.metrics)):
        tables["validation"] += _validation(group, results, params)
    summary = truth.summary(params) | {
        "candidates": list(results),
        "base": base,
        "champion": chosen.row(),
        "best": best,
        "thresholds": {name: r.threshold for name, r in results.items()},
        "kinds": {name: r.kind for name, r in results.items()},
    }
    return Evaluation(summary, {name: r.metrics for name, r in results.items()}, tables)


class _Truth:
    """What all candidates are held against, read once."""

    def __init__(self, features: Features, params: EvaluateParams) -> None:
        self.valid, self.test = features.Y("valid"), features.Y("test")
        self.weights, self.bands = features.inverse_propensity, features.bands
        # Labels are counted in texts that are not scored (docs/explanation/metrics.md).
        self.valid_weights = features.train_inverse_propensity
        self.bin = frequency_bin(features.counts, params.bins)
        self.bin_names = bin_names(params.bins)
        self.complete = features.complete("test")

    def summary(self, params: EvaluateParams) -> Row:
        return {
            "texts": int(self.test.shape[0]),
            "valid_texts": int(self.valid.shape[0]),
            "texts_without_labels": int((np.diff(self.test.indptr) == 0).sum()),
            "labels": int(self.test.shape[1]),
            "bands": self._sizes(self.bands, BANDS),
            "bins": self._sizes(self.bin, self.bin_names),
            "complete": self.complete is not None,
            **params.model_dump(mode="json", exclude={"base", "bins", "best", "second_ranking"}),
        }

    def _sizes(self, group: NDArray, names: Sequence[str]) -> list[Row]:
        true = np.bincount(self.test.indices, minlength=self.test.shape[1])
        members = [group == g for g in range(len(names))]
        return [
            {
                "name": name,
                "labels": int(m.sum()),
                "tested_labels": int((true[m] > 0).sum()),
                "positives": int(true[m].sum()),
            }
            for name, m in zip(names, members, strict=True)
        ]


@dataclass
class _Result:
    """One candidate: its numbers, its resampled metrics, and its gain on every test text."""

    name: str
    kind: str
    threshold: float
    metrics: dict[str, float]
    tables: dict[str, list[Row]]
    resampled: dict[str, NDArray[np.float64]]  # metric -> (resamples,)
    gains: dict[str, NDArray[np.float64]]  # P and PSP at the largest k -> (n,)
    on_valid: dict[str, float]
    valid_resampled: dict[str, NDArray[np.float64]]


def _score(
    name: str, rankings: Mapping[str, TopK], truth: _Truth, params: EvaluateParams
) -> _Result:
    ks, k = params.ks, max(params.ks)
    valid = metrics.judge(rankings["valid"], truth.valid, truth.valid_weights, params.psndcg)
    threshold = metrics.choose_threshold(valid.topk, truth.valid)
    test = rankings["test"].validate(truth.test.shape[1])
    judged = metrics.judge(test, truth.test, truth.weights, params.psndcg)
    values = metrics.summarise(judged, truth.bands, ks, threshold)
    if truth.complete is not None:
        values |= _against_complete(test, truth, truth.complete, ks)
    if params.second_ranking:
        values |= _reordered(test, truth, params)
    ratios = _compared(judged, truth.bands, ks, threshold)
    resampled = bootstrap.resample(ratios, params.resamples, params.seed)
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    for table, column, group, names in (
        ("bands", "band", truth.bands, BANDS),
        ("bins", "bin", truth.bin, truth.bin_names),
    ):
        rows = metrics.by_group(judged, group, len(names), ks, threshold)
        heads = [{"candidate": name, column: part, "order": g} for g, part in enumerate(names)]
        tables[table] = [head | row for head, row in zip(heads, rows, strict=True)]
    tables["calibration"] = [{"candidate": name} | row for row in calibration(judged, k, params)]
    for metric, draws in resampled.items():
        low, high = bootstrap.interval(draws, params.confidence)
        row = {"metric": metric, "value": values[metric], "low": low, "high": high}
        tables["intervals"].append({"candidate": name} | row)
    gains = {m: ratios[m].numerator for m in (f"p_at_{k}", f"psp_at_{k}")}
    valid_ratios = _compared(valid, truth.bands, ks, threshold)
    # Other texts, so other draws: paired ones would mean something by accident.
    valid_resampled = bootstrap.resample(valid_ratios, params.resamples, (params.seed, 1))
    on_valid = metrics.summarise(valid, truth.bands, ks, threshold)
    return _Result(
        *(name, test.kind, threshold, values, tables, resampled, gains, on_valid, valid_resampled)
    )


def _compared(
    judged: metrics.Judged, bands: NDArray[np.int8], ks: Sequence[int], threshold: float
) -> dict[str, metrics.Ratio]:
    """The metrics that get intervals: those that are sums over texts."""
    k = max(ks)
    ranked = [(m, i) for m in ("p", "psp") for i in ks]
    ranked += [(m, k) for m in ("ndcg", "psndcg", "rp", "recall")]
    ratios = {f"{m}_at_{i}": judged.ratio(m, i) for m, i in ranked}
    for g, band in enumerate(BANDS):
        ratios[f"{band}_recall_at_{k}"] = judged.group_recall(k, bands == g)
    ratios["micro_f1"] = judged.micro_f1(metrics.fixed_threshold(judged.topk))
    ratios["micro_f1_tuned"] = judged.micro_f1(threshold)
    return ratios


def _against_complete(
    test: TopK, truth: _Truth, complete: sp.csr_matrix, ks: Sequence[int]
) -> dict[str, float]:
    """Plain metrics against the complete labels, and recall of those that were hidden."""
    values = metrics.summarise(metrics.judge(test, complete), truth.bands, ks)
    result = {f"complete_{m}_at_{k}": values[f"{m}_at_{k}"] for m in COMPLETE for k in ks}
    # What the observed labels lack; stored zeros are no labels to `judge`.
    hidden = metrics.judge(test, sp.csr_matrix(complete - complete.multiply(truth.test)))
    everyone = np.ones(truth.test.shape[1], np.bool_)
    for k in ks:
        result[f"missing_recall_at_{k}"] = hidden.group_recall(k, everyone).percent
    return result


def _reordered(test: TopK, truth: _Truth, params: EvaluateParams) -> dict[str, float]:
    """PSP and PSnDCG of the second ranking; NaN where scores say nothing but an order."""
    above = metrics.fixed_threshold(test)
    moved = reorder_top5(test, truth.weights, above, max(params.ks))
    judged = metrics.judge(moved, truth.test, truth.weights, params.psndcg)
    return {
        f"reordered_{m}_at_{k}": math.nan if math.isnan(above) else judged.ratio(m, k).percent
        for m in ("psp", "psndcg")
        for k in params.ks
    }


def calibration(judged: metrics.Judged, k: int, params: EvaluateParams) -> list[Row]:
    """Of the first k predictions of every text: how often a probability of about p was right.

    Empty bins are left out; a ranking that states no probabilities (margins) has no table.
    """
    if judged.topk.confidence is None:
        return []
    bins, real = params.calibration_bins, judged.topk.labels[:, :k] >= 0
    said = judged.claims[:, :k][real].astype(np.float64)
    right = judged.hits.claim[judged.hits.rank < k].astype(np.float64)
    bin_of, right_bin = (np.clip((s * bins).astype(int), 0, bins - 1) for s in (said, right))
    count = np.bincount(bin_of, minlength=bins)
    total, hits = np.bincount(bin_of, said, bins), np.bincount(right_bin, minlength=bins)
    return [
        {
            "bin": f"{b / bins:.2f}-{(b + 1) / bins:.2f}",
            "predictions": int(count[b]),
            "probability": 100 * float(total[b] / count[b]),
            "right": 100 * float(hits[b] / count[b]),
        }
        for b in np.flatnonzero(count)
    ]


def front(values: Mapping[str, Mapping[str, float]], ks: Sequence[int]) -> list[Row]:
    """P and PSP of every candidate; on the front if none is as good in both and better in one."""
    k = max(ks)
    points = {name: (v[f"p_at_{k}"], v[f"psp_at_{k}"]) for name, v in values.items()}
    rows = []
    for name, (p, psp) in points.items():
        beaten = any(a >= p and b >= psp and (a > p or b > psp) for a, b in points.values())
        shown = {f"{m}_at_{i}": values[name][f"{m}_at_{i}"] for i in ks for m in ("p", "psp")}
        rows.append({"candidate": name} | shown | {"on_front": not beaten})
    return rows


def _comparisons(
    metric: str, results: Mapping[str, _Result], base: str, leader: str, params: EvaluateParams
) -> list[Row]:
    """Every candidate against the base and against the best; a metric's intervals hold together."""
    names = list(results)
    values = np.array([r.metrics[metric] for r in results.values()])
    draws = np.array([r.resampled[metric] for r in results.values()])
    made = {
        "base": simultaneous.from_one(values, draws, names.index(base), params.confidence),
        "best": simultaneous.from_best(values, draws, names.index(leader), params.confidence),
    }
    rows = []
    for position, mine in enumerate(results.values()):
        for against, found in made.items():
            other = results[base if against == "base" else leader]
            row: Row = {"candidate": mine.name, "metric": metric, "against": against}
            row |= {"other": other.name} | _numbers(found, position)
            if metric in mine.gains:
                bouts = bootstrap.bouts(mine.gains[metric], other.gains[metric])
                row |= dict(zip(("wins", "ties", "losses"), bouts, strict=True))
            rows.append(row)
    return rows


def _validation(
    group: Sequence[str], results: Mapping[str, _Result], params: EvaluateParams
) -> list[Row]:
    """Every candidate on validation and on test, two samples with no text in common.

    The intervals of a group of metrics hold together.
    """
    pairs = [(metric, result) for metric in group for result in results.values()]
    valid = np.array([result.on_valid[metric] for metric, result in pairs])
    test = np.array([result.metrics[metric] for metric, result in pairs])
    # A metric that is no sum over texts was not drawn and has no interval.
    unknown = np.full(params.resamples, math.nan)
    draws = [
        result.valid_resampled.get(metric, unknown) - result.resampled.get(metric, unknown)
        for metric, result in pairs
    ]
    errors = np.array(draws) - (valid - test)[:, None]
    found = simultaneous.around(valid - test, errors, params.confidence)
    return [
        {"candidate": result.name, "metric": metric}
        | {"valid": float(valid[i]), "test": float(test[i])}
        | _numbers(found, i)
        for i, (metric, result) in enumerate(pairs)
    ]


def _numbers(found: simultaneous.Intervals, position: int) -> Row:
    """One candidate's difference, the ends of its interval, and whether it leaves out 0."""
    ends = {"difference": found.difference, "low": found.low, "high": found.high}
    numbers = {name: float(values[position]) for name, values in ends.items()}
    return numbers | {"real": bool(found.real[position])}


def _base(names: list[str], wanted: str | None) -> str:
    if not names:
        raise ConfigError("evaluate: there is no candidate; params.yaml trains nothing")
    if wanted is not None and wanted not in names:
        raise ConfigError(f"evaluate.base: no candidate {wanted!r}{suggestion(wanted, names)}")
    return wanted or names[0]


def _best(results: Mapping[str, _Result], metric: str) -> str:
    # NaN never leads; of equals the first.
    return max(results, key=lambda n: np.nan_to_num(results[n].metrics[metric], nan=-math.inf))


# --- files ---------------------------------------------------------------------------------------


def _plots(ks: Sequence[int]) -> dict[str, tuple[str, list[str]]]:
    """File -> table it shows and its columns."""
    k = max(ks)
    pairs = [f"{m}_at_{i}" for i in ks for m in ("p", "psp")]
    alone = [f"{m}_at_{k}" for m in ("recall", "coverage", "macro_f1", "p", "psp")]
    return {
        "front": ("front", ["candidate", *pairs, "on_front"]),
        "recall_by_frequency": ("bins", ["candidate", "bin", "order", f"recall_at_{k}"]),
        "bands": ("bands", ["candidate", "band", "order", *alone]),
        "calibration": ("calibration", ["candidate", "bin", "probability", "right", "predictions"]),
    }


def _plain(value: Any, digits: int) -> Any:
    """Rounded, NaN as None, all the way down."""
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, digits) + 0.0  # no minus zero
    if isinstance(value, dict):
        return {key: _plain(item, digits) for key, item in value.items()}
    return [_plain(item, digits) for item in value] if isinstance(value, list) else value


def _with_nan(row: Row) -> Row:
    return {name: math.nan if value is None else value for name, value in row.items()}


def _write_json(path: Path, content: Row | Mapping[str, Any], digits: int = 4) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(_plain(dict(content), digits), indent=1) + "\n")


def _write_rows(path: Path, rows: list[Row]) -> None:
    """A JSON list with one row per line, so that a diff shows rows."""
    lines = ",\n".join(json.dumps(_plain(row, 4)) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def _write_csv(path: Path, rows: list[Row], columns: list[str]) -> None:
    """Rows that have all the columns' values; an empty group has nothing to draw."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in ([_plain(row[column], 2) for column in columns] for row in rows):
            if None not in row:
                writer.writerow(row)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{path} is missing; run dvc repro evaluate") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is damaged ({error}); run dvc repro evaluate -f") from None
