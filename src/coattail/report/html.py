"""Pieces of the page as HTML; every text that comes from data goes through `escape`."""

from __future__ import annotations

import math
from html import escape

from coattail.evaluation.champion import Champion
from coattail.evaluation.leaderboard import BETTER, WORSE, columns
from coattail.evaluation.statements import title
from coattail.labels.frequency import BANDS
from coattail.report.collect import Content
from coattail.report.examples import KINDS, Example, Prediction
from coattail.report.findings import Statement, findings, verdicts


def number(value: float, digits: int = 2) -> str:
    """Two decimals at most; a dash where there is no number."""
    return "–" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def lead(content: Content) -> str:
    """The run in three sentences."""
    summary, evaluation = content.evaluation.summary, content.evaluation
    metric = f"psp_at_{content.k}"
    told = verdicts(evaluation, metric)
    base = f"<b>{escape(summary['base'])}</b>"
    counted = ", ".join(f"{len(told[word])} {word}" for word in ("better", "worse") if told[word])
    compared = f"Against {base}, by {title(metric)}: {counted or 'none better or worse'}"
    level = f", {len(told['level'])} not told apart" if told["level"] else ""
    return (
        f"{len(content.candidates)} candidates on {summary['texts']:,} test texts with "
        f"{summary['labels']:,} labels. {compared}{level} "
        f"({summary['confidence']:.0%} paired bootstrap, all at once). Figures are percent."
    )


def cards(content: Content) -> str:
    """Who is best at what."""
    return "".join(_card(one) for one in findings(content.evaluation))


def _card(one: Statement) -> str:
    if not one.level:
        apart = "ahead of all others beyond the interval"
    elif len(one.level) <= 2:
        apart = f"not told apart from {', '.join(escape(name) for name in one.level)}"
    else:
        apart = (
            f'<span title="{escape(", ".join(one.level))}">'
            f"not told apart from {len(one.level)} others</span>"
        )
    interval = f"{number(one.low)} – {number(one.high)}"
    return (
        f'<div class="card"><span class="muted">{escape(one.question)}</span>'
        f"<b>{escape(one.winner)}</b>"
        f"<span>{escape(title(one.metric))} <b>{number(one.value)}</b> "
        f'<span class="muted">({interval})</span></span>'
        f'<span class="muted small">{apart}</span></div>'
    )


def dataset(content: Content) -> str:
    """Sizes of the dataset and of its bands."""
    stats = content.stats
    rows = [
        ("texts", " / ".join(f"{stats[f'texts_{s}']:,}" for s in ("train", "valid", "test"))),
        ("labels", f"{stats['labels']:,}"),
        ("labels in at most 5 texts", f"{stats['labels_in_at_most_5_texts']:,}"),
        ("labels without a training text", f"{stats['labels_unseen_in_train']:,}"),
        ("labels per text", number(stats["labels_per_text"])),
        ("texts per label", number(stats["texts_per_label"])),
    ]
    if stats.get("words_per_text"):
        rows.append(("words per text", number(stats["words_per_text"], 1)))
    facts = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    source = content.params["dataset"].get("title") or content.dataset
    return (
        f'<p class="muted small">{escape(str(source))}; texts are train / validation / test</p>'
        f'<div class="scroll"><table class="facts">{facts}</table></div>{_band_sizes(content)}'
    )


def _band_sizes(content: Content) -> str:
    bands = content.stats["bands"]
    positives = sum(bands[band]["positives"] for band in BANDS) or 1
    rows = "".join(
        f'<tr><th><i class="dot {band}"></i>{band}</th><td>{bands[band]["labels"]:,}</td>'
        f"<td>{100 * bands[band]['positives'] / positives:.0f} %</td>"
        f"<td>{bands[band]['fewest_texts']:,} – {bands[band]['most_texts']:,}</td>"
        f"<td>{bands[band]['test_positives']:,}</td></tr>"
        for band in BANDS
    )
    heads = ("band", "labels", "share", "texts per label", "in test")
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def leaderboard(content: Content) -> str:
    """The table of `coattail leaderboard`, with intervals; sorted by the page's script."""
    evaluation, shown = content.evaluation, columns(content.evaluation.summary["ks"])
    order = f"psp_at_{content.k}"
    best = {
        m: max((v[m] for v in evaluation.metrics.values() if not math.isnan(v[m])), default=None)
        for m in shown
    }
    head = "".join(
        f'<th aria-sort="{"descending" if metric == order else "none"}">'
        f'<button type="button">{escape(text.replace(chr(10), " "))}</button></th>'
        for metric, text in shown.items()
    )
    spread = {(r["candidate"], r["metric"]): r for r in evaluation.tables["intervals"]}
    real = {
        (r["candidate"], r["metric"]): BETTER if r["difference"] > 0 else WORSE
        for r in evaluation.tables["comparisons"]
        if r["against"] == "base" and r["real"]
    }
    rows = []
    for name in sorted(content.candidates, key=lambda n: _last(evaluation.metrics[n][order])):
        cells = []
        for metric in shown:
            value, row = evaluation.metrics[name][metric], spread.get((name, metric))
            half = f"± {(row['high'] - row['low']) / 2:.2f}" if row else ""
            mark = real.get((name, metric), "")
            style = ' class="best"' if value == best[metric] else ""
            cells.append(
                f'<td data-value="{_sortable(value)}"{style}>{number(value)}'
                f'<i class="mark {"up" if mark == BETTER else "down"}">{mark}</i>'
                f"<small>{half}</small></td>"
            )
        family = f"<small>{escape(roles(content, name))}</small>"
        head_cell = f'<th scope="row" data-value="{escape(name)}">{escape(name)}{family}</th>'
        rows.append(f"<tr>{head_cell}{''.join(cells)}</tr>")
    first = '<th aria-sort="none"><button type="button">candidate</button></th>'
    return (
        '<div class="scroll"><table class="sortable" id="board">'
        f"<thead><tr>{first}{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def roles(content: Content, name: str) -> str:
    """Family of a candidate, and whether it is the base or the champion."""
    summary = content.evaluation.summary
    parts = [content.candidates[name].family]
    parts += ["base"] if name == summary["base"] else []
    parts += ["champion"] if name == Champion.of(summary).name else []
    return ", ".join(parts)


def _last(value: float) -> float:
    return math.inf if math.isnan(value) else -value


def _sortable(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def examples(content: Content) -> str:
    """A card per text, the first one open."""
    return "".join(_example(content, one, i) for i, one in enumerate(content.examples))


def _example(content: Content, one: Example, position: int) -> str:
    true = "".join(_label(content, label) for label in one.true) or "none"
    rows = []
    for name, given in one.said.items():
        cells = [_said(content, prediction) for prediction in given]
        cells += ["<td></td>"] * (content.k - len(cells))
        hits = sum(prediction.hit for prediction in given)
        head = f'<th scope="row">{escape(name)}<small>{hits} right</small></th>'
        rows.append(f"<tr>{head}{''.join(cells)}</tr>")
    ranks = "".join(f"<th>{rank}</th>" for rank in range(1, content.k + 1))
    text = escape(one.text) + ("…" if one.cut else "")
    return (
        f'<details class="example"{" open" if position == 0 else ""}>'
        f'<summary><span class="badge">{KINDS[one.kind]}</span> {escape(one.name)}</summary>'
        f'<div class="text">{text}</div><p class="true"><b>True labels</b> {true}</p>'
        f'<div class="scroll"><table class="said"><thead><tr><th>candidate</th>{ranks}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _label(content: Content, label: int) -> str:
    band = content.bands[label]
    facts = f"{band}, {content.counts[label]:,} texts"
    return f'<span class="label {band}" title="{facts}">{escape(content.names[label])}</span>'


def _said(content: Content, one: Prediction) -> str:
    words = ", ".join(escape(word) for word, _ in one.words)
    weights = ", ".join(f"{escape(word)} {weight:.2f}" for word, weight in one.words)
    why = f'<small title="{weights}">{words}</small>' if words else ""
    band = content.bands[one.label]
    mark = "<b>✓</b> " if one.hit else ""
    said = f"score {one.score:.2f}"
    if one.probability is not None:
        said = f"probability {one.probability:.2f}"
    return (
        f'<td class="{"hit" if one.hit else "miss"}" title="{said}">{mark}'
        f'<span class="{band}">{escape(content.names[one.label])}</span>{why}</td>'
    )


def notes(content: Content) -> dict[str, str]:
    """The sentences above the pictures."""
    summary, k = content.evaluation.summary, content.k
    base = escape(summary["base"])
    left = content.labels.left_out
    return {
        "leaderboard_note": f"Press a heading to sort. {BETTER} and {WORSE}: better or worse than "
        f"{base} beyond chance, by {summary['confidence']:.0%} paired bootstrap intervals that "
        "hold for all candidates of a column at once. ± is half the "
        f"{summary['confidence']:.0%} interval of the figure itself. Bold: best of the column.",
        "real_note": "The same test texts are drawn again and again "
        f"({summary['resamples']:,} times) and candidates are compared on each draw. The intervals "
        f"of a metric hold for all candidates at once with {summary['confidence']:.0%}. One that "
        "leaves out 0 is a real difference. Wins, ties and losses count texts.",
        "bands_note": "The head is made of the most frequent labels, the tail of the rarest. "
        f"Recall@{k}: of the true labels of a band, the share among the first {k} answers. "
        "Coverage: the share of the band's labels found at least once.",
        "tail_note": f"F1 of every tail label among the first {k} answers, each candidate's best "
        "label first. The further to the right a line stays above 0, the more rare labels are "
        "found at all; point at it for their number.",
        "front_note": f"P@{k} asks for right answers, PSP@{k} weights rare ones up. A candidate is "
        "on the front (ringed) if no other is better in both.",
        "calibration_note": f"Of the first {k} answers with a probability of about p, how many "
        "were right? A line below the diagonal promises too much; the mean gap sums it up in "
        "points. Margins promise no probability and have no line. A reranked candidate orders by "
        "something else; its line is that of the probability beside its scores."
        if content.evaluation.tables["calibration"]
        else "The scores of all candidates are margins, which promise no probability.",
        "labels_note": f"Recall: of the test texts with the label, the share that have it among "
        f"their first {k} answers. Precision: of those answers, the share that are right."
        + (
            f" {left:,} labels are left out; these are an even sample by frequency." if left else ""
        ),
        "examples_note": "Test texts chosen by rule: rare labels that only some find, "
        "disagreement, and texts that everyone or no one gets right. ✓ marks a true label; colour "
        "is the label's band."
        + (
            " Small words spoke most for the label: the strongest features of a linear model, the "
            "attention of a network. Point at them to see weights."
            if content.explained
            else ""
        ),
    }
