"""The report in plain text, for a terminal or a log."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from textwrap import fill

from coattail.config import read_yaml
from coattail.data.features import Features
from coattail.errors import DataError
from coattail.evaluation import leaderboard
from coattail.evaluation.scoring import Evaluation, Row
from coattail.evaluation.statements import title
from coattail.files import atomic_file
from coattail.pipeline.candidates import stage_addresses
from coattail.report.findings import Statement, findings, verdicts
from coattail.tracking import delivery, executions, journal
from coattail.tracking.store import dataset_name

PAGE = Path("report") / "report.html"
FILLED = Path("report.html")
"""Beside the project's files, where a person finds it to send it; git ignores it."""


def summary(data: Path = Path("data")) -> str:
    """Dataset, leaderboard, the best at each thing, real differences, where the page is."""
    evaluation = Evaluation.load(data / "evaluation")
    parts = [
        _dataset(Features(data / "features").stats),
        leaderboard.text(evaluation).strip("\n"),
        "\n".join(_found(one) for one in findings(evaluation)),
        _differences(evaluation),
        _place(data),
    ]
    return "\n\n".join(parts) + "\n"


def open_page(data: Path = Path("data")) -> None:
    """Show the page in the browser, with when and where everything ran."""
    webbrowser.open(filled_page(data).resolve().as_uri())


def filled_page(data: Path = Path("data")) -> Path:
    """A copy of the page with an account of the runs, which the page that DVC keeps cannot have."""
    page = data / PAGE
    if not page.exists():
        raise DataError(f"{page} is missing; run dvc repro report")
    records = journal.records(stage_addresses(read_yaml("params.yaml")), data)
    delivery.recall(records, dataset_name())
    with atomic_file(FILLED) as temporary:
        text = executions.fill(page.read_text(encoding="utf-8"), records)
        temporary.write_text(text, encoding="utf-8")
    return FILLED


def _dataset(stats: Row) -> str:
    texts = " + ".join(f"{stats[f'texts_{split}']:,}" for split in ("train", "valid", "test"))
    tail = stats["bands"]["tail"]
    return (
        f"{stats['dataset']}: {texts} texts (train + validation + test), "
        f"{stats['labels']:,} labels, {stats['labels_per_text']:.2f} per text;\n"
        f"{tail['labels']:,} labels are tail (at most {tail['most_texts']:,} texts each), "
        f"{stats['labels_unseen_in_train']:,} have no training text"
    )


def _found(one: Statement) -> str:
    line = f"{one.question + ':':<35}{one.winner}  {title(one.metric)} {one.value:.2f}"
    line += f" ({one.low:.2f} to {one.high:.2f})"
    if one.level:
        line += "\n" + fill(
            f"not told apart from {', '.join(one.level)}",
            leaderboard.WIDTH,
            initial_indent=" " * 35,
            subsequent_indent=" " * 35,
            break_on_hyphens=False,
        )
    return line


def _differences(evaluation: Evaluation) -> str:
    base = evaluation.summary["base"]
    metric = f"psp_at_{max(evaluation.summary['ks'])}"
    words = {"better": "better than", "level": "not told apart from", "worse": "worse than"}
    lines = [f"By {title(metric)}, beyond chance:"]
    for verdict, names in verdicts(evaluation, metric).items():
        if names:
            text = f"  {words[verdict]} {base}: {', '.join(names)}"
            lines.append(
                fill(text, leaderboard.WIDTH, subsequent_indent="    ", break_on_hyphens=False)
            )
    return "\n".join(lines) if len(lines) > 1 else f"{base} is the only candidate"


def _place(data: Path) -> str:
    page = data / PAGE
    if not page.exists():
        return f"The page {page} is not there yet: run dvc repro report"
    return f"The whole report: {page} (coattail report --open)"
