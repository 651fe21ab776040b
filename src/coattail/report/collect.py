"""Everything the page shows, read from the files DVC keeps."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coattail.arrays import TopK
from coattail.config import parse, read_yaml
from coattail.data.features import Features
from coattail.errors import DataError
from coattail.evaluation.scoring import EvaluateParams, Evaluation, Row
from coattail.files import atomic_file
from coattail.labels.frequency import BANDS
from coattail.pipeline.candidates import Candidate, candidates, stage_addresses
from coattail.pipeline.result_params import ReportParams
from coattail.pipeline.stage_result import StageResult, results
from coattail.progress import progress
from coattail.report.examples import Example, choose, read_texts, said
from coattail.report.explanations import Explainer, norm_table
from coattail.report.label_table import LabelTable, label_table
from coattail.report.tail_labels import TailLabels, tail_labels

CURVE = "valid_ndcg_at_5"  # what every network logs per epoch
POINTS = 400  # of the frequency curve; a screen shows no more


@dataclass(frozen=True)
class Content:
    """What the page is made of.

    Attributes
    ----------
    params : dict
        params.yaml.
    candidates : dict
        By name, in the order of the stages.
    records : dict
        Results of stages by address.
    curve : dict
        ``rank``, ``count`` and ``band`` of labels by frequency, thinned.
    names, counts, bands : list
        Of every label that the page names: label id -> name, texts, band.
    norms : list of rows
        Classifier norms by frequency.
    """

    params: dict[str, Any]
    stats: Row
    evaluation: Evaluation
    candidates: dict[str, Candidate]
    records: dict[str, StageResult]
    curve: dict[str, list[int]]
    names: dict[int, str]
    counts: dict[int, int]
    bands: dict[int, str]
    labels: LabelTable
    tail: TailLabels
    examples: list[Example]
    norms: list[Row]
    explained: bool  # whether any candidate's words can be shown

    @property
    def dataset(self) -> str:
        return str(self.params["dataset"]["name"])

    @property
    def k(self) -> int:
        return int(max(self.evaluation.summary["ks"]))


def collect(
    params: ReportParams, data: Path = Path("data"), params_file: Path = Path("params.yaml")
) -> Content:
    """Read evaluation, rankings, texts, models and results of stages."""
    content = read_yaml(params_file)
    known = candidates(content)
    evaluation = Evaluation.load(data / "evaluation")
    missing = set(known) - set(evaluation.metrics)
    if missing:
        raise DataError(f"data/evaluation lacks {', '.join(sorted(missing))}; run dvc repro")
    features, k = Features(data / "features"), max(evaluation.summary["ks"])
    rankings = {name: _first(data / "ranked" / name / "test.npz", k) for name in known}
    explainer = Explainer(data, known, params.words)
    table = label_table(rankings, features, k, params.labels)
    examples = _examples(rankings, features, explainer, params, k)
    scored: EvaluateParams = parse(content["evaluate"], EvaluateParams, f"{params_file}: evaluate")
    named = _named(table, examples)
    return Content(
        params=content,
        stats=features.stats,
        evaluation=evaluation,
        candidates=known,
        records=results(stage_addresses(content), data),
        curve=_curve(features),
        names={label: features.label_names[label] for label in named},
        counts={label: int(features.counts[label]) for label in named},
        bands={label: BANDS[features.bands[label]] for label in named},
        labels=table,
        tail=tail_labels(rankings, features, k),
        examples=examples,
        norms=norm_table(explainer, scored.bins),
        explained=any(explainer.explains(name) for name in known),
    )


def training_curves(content: Content) -> list[Row]:
    """Validation figures of every network after every epoch, as their stages logged them."""
    return [
        {"candidate": name, "epoch": point.step + 1, CURVE: point.value}
        for name, candidate in content.candidates.items()
        for point in content.records[candidate.address].history
        if point.key == CURVE
    ]


def write_plots(content: Content, folder: Path) -> None:
    """Classifier norms and training curves as CSV, all candidates in one file, for `dvc plots`."""
    columns = ["candidate", "bin", "order", "norm", "relative", "labels"]
    _write_csv(folder / "norms.csv", columns, content.norms)
    _write_csv(folder / "training.csv", ["candidate", "epoch", CURVE], training_curves(content))


def _write_csv(path: Path, columns: list[str], rows: list[Row]) -> None:
    with atomic_file(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            cells = (row[column] for column in columns)
            writer.writerow([f"{c:.4g}" if isinstance(c, float) else c for c in cells])


def _first(path: Path, k: int) -> TopK:
    """The first k columns alone, so that a dozen rankings fit in memory."""
    return replace(TopK.load(path).head(k), parts=None).copy()


def _curve(features: Features) -> dict[str, list[int]]:
    counts, bands = features.counts, features.bands
    order = np.lexsort((np.arange(len(counts)), bands, -counts))
    spread = np.geomspace(1, max(len(order), 1), POINTS).round().astype(np.int64)
    shown = np.unique(spread) - 1 if len(order) else np.empty(0, np.int64)
    picked = order[shown]
    return {
        "rank": (shown + 1).tolist(),
        "count": counts[picked].tolist(),
        "band": bands[picked].tolist(),
    }


def _examples(
    rankings: Mapping[str, TopK],
    features: Features,
    explainer: Explainer,
    params: ReportParams,
    k: int,
) -> list[Example]:
    Y = features.Y("test")
    chosen = choose(rankings, Y, features.bands, k, params.examples)
    texts = read_texts(features, [row for _, row in chosen])
    made = []
    with progress("examples", len(chosen), "texts") as bar:
        for kind, row in chosen:
            inside = slice(Y.indptr[row], Y.indptr[row + 1])
            labels = Y.indices[inside][Y.data[inside] != 0]
            # Rare ones last, as they are read: the head is what everybody knows.
            true = tuple(sorted(labels.tolist(), key=lambda one: (-features.counts[one], one)))
            answers = {}
            for name, top in rankings.items():
                given = said(top, row, k, true)
                words = explainer.words_of(name, row, [one.label for one in given])
                answers[name] = [replace(one, words=w) for one, w in zip(given, words, strict=True)]
            title, text = texts[row]
            shown = text[: params.text]
            cut = len(text) > len(shown)
            made.append(Example(kind, row, title, shown, cut, true, answers))
            bar.advance(1)
    return made


def _named(table: LabelTable, examples: list[Example]) -> list[int]:
    shown = set(table.label.tolist())
    for example in examples:
        shown |= set(example.true)
        shown |= {one.label for given in example.said.values() for one in given}
    return sorted(shown)
