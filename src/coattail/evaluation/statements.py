"""What an evaluation says of the champion in words: why it, what it loses, what to trust."""

from __future__ import annotations

import math

from coattail.evaluation.champion import Champion, clears, floor
from coattail.evaluation.scoring import Evaluation, Row

NAMED = 4
"""Losses told one by one; of more, the largest."""


def title(metric: str) -> str:
    """psp_at_5 -> PSP@5, tail_recall_at_5 -> tail recall@5."""
    name, _, k = metric.partition("_at_")
    short = {"p": "P", "ndcg": "nDCG", "psp": "PSP", "psndcg": "PSnDCG", "rp": "R-precision"}
    words = short.get(name, name.replace("_", " ").replace("f1", "F1"))
    return f"{words}@{k}" if k else words


def on_validation(evaluation: Evaluation, metric: str) -> dict[str, Row]:
    """Candidate -> its figures on validation and on test, and how far these are apart."""
    rows = evaluation.tables["validation"]
    return {row["candidate"]: row for row in rows if row["metric"] == metric}


def reason(evaluation: Evaluation) -> str:
    """Why this candidate is the champion, in a sentence or two."""
    chosen, base = Champion.of(evaluation.summary), evaluation.summary["base"]
    by = title(chosen.by)
    if not chosen.cleared:
        figures = on_validation(evaluation, chosen.by).values()
        if all(math.isnan(row["valid"]) for row in figures):
            return f"{base}, the base, as no candidate has a {by} on validation to be chosen by."
        return f"{base}, the base, as no candidate has {floors(chosen)} on validation."
    everyone, left = len(evaluation.summary["candidates"]), len(chosen.cleared)
    if everyone == 1:
        return f"{base}, the only candidate."
    kept = f" with {floors(chosen)}" if chosen.floors else ""
    if left == 1:
        text = f"{chosen.name}, the only one of {everyone} candidates{kept} on validation."
    else:
        of = f"all {everyone}" if left == everyone else f"the {left} of {everyone}"
        text = f"{chosen.name}, best {by} on validation of {of} candidates{kept}."
    if chosen.name == base:
        return text
    valid, test = (_gain(evaluation, chosen, base, split) for split in ("valid", "test"))
    return f"{text} Against {base} on validation: {valid}; on test: {test}."


def floors(chosen: Champion) -> str:
    """`P@1 >= base - 1.0 (72.61)`, one after the other."""
    parts = []
    for metric, written in chosen.at_least.items():
        least = chosen.floors[metric]
        value = "no figure" if least is None else f"{least:.2f}"
        relative = isinstance(written, str)
        parts.append(f"{title(metric)} >= {f'{written} ({value})' if relative else value}")
    return " and ".join(parts)


def facts(evaluation: Evaluation) -> dict[str, str]:
    """The same in pieces, for tags."""
    chosen, base = Champion.of(evaluation.summary), evaluation.summary["base"]
    found = {"candidate": chosen.name, "chosen_by": f"{title(chosen.by)} on validation"}
    found |= {"floors": floors(chosen)} if chosen.floors else {}
    if chosen.name != base:
        valid, test = (_gain(evaluation, chosen, base, split) for split in ("valid", "test"))
        found |= {"on_validation": f"{valid} against {base}", "on_test": f"{test} against {base}"}
    told = warnings(evaluation)
    return found | ({"warning": "; ".join(told)} if told else {})


def _gain(evaluation: Evaluation, chosen: Champion, base: str, split: str) -> str:
    """`PSP@5 +4.10, P@1 -0.60`: the champion minus the base in what the rule looks at."""
    parts = []
    for metric in chosen.metrics:
        rows = on_validation(evaluation, metric)
        parts.append(f"{title(metric)} {rows[chosen.name][split] - rows[base][split]:+.2f}")
    return ", ".join(parts)


def warnings(evaluation: Evaluation) -> list[str]:
    """What speaks against the champion, and has to be said aloud."""
    chosen, base = Champion.of(evaluation.summary), evaluation.summary["base"]
    if not chosen.cleared:
        return [f"{base} is published because nothing else could be chosen"]
    lost = _losses(evaluation, chosen.name)
    said = []
    if lost:
        parts = [f"{-row['difference']:.2f} {title(row['metric'])}" for row in lost[:NAMED]]
        more = len(lost) - len(parts)
        parts += [f"{more} more metrics" if more > 1 else "another metric"] if more else []
        listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        said.append(f"{chosen.name} loses {listed} to {base} on test, beyond chance")
    return said + _broken(evaluation, chosen, base)


def _losses(evaluation: Evaluation, name: str) -> list[Row]:
    """Where a candidate is worse than the base on test beyond chance, the largest loss first."""
    ks = evaluation.summary["ks"]
    watched = [f"{m}_at_{k}" for m in ("p", "psp") for k in ks] + [f"ndcg_at_{max(ks)}"]
    watched += [f"{band}_recall_at_{max(ks)}" for band in ("head", "torso", "tail")]
    rows = [
        row
        for row in evaluation.tables["comparisons"]
        if row["candidate"] == name and row["against"] == "base" and row["metric"] in watched
    ]
    lost = [row for row in rows if row["real"] and row["difference"] < 0]
    return sorted(lost, key=lambda row: float(row["difference"]))


def _broken(evaluation: Evaluation, chosen: Champion, base: str) -> list[str]:
    """Floors that held on validation and do not on test."""
    said = []
    for metric, written in chosen.at_least.items():
        rows = on_validation(evaluation, metric)
        test, least = rows[chosen.name]["test"], floor(written, rows[base]["test"])
        if least is not None and not clears(test, least):
            said.append(
                f"the floor {title(metric)} >= {written} held on validation and does not on test: "
                f"{test:.2f}, wanted {least:.2f}"
            )
    return said


def unlike_test(evaluation: Evaluation) -> dict[str, list[str]]:
    """Metric of the rule -> candidates whose validation and test differ beyond chance."""
    shown = Champion.of(evaluation.summary).metrics
    found = {metric: on_validation(evaluation, metric).values() for metric in shown}
    real = {m: [row["candidate"] for row in rows if row["real"]] for m, rows in found.items()}
    return {metric: names for metric, names in real.items() if names}


def gap(evaluation: Evaluation) -> str:
    """Whether validation and test tell the same story, in the metrics the rule looks at."""
    means = []
    for metric in Champion.of(evaluation.summary).metrics:
        rows = on_validation(evaluation, metric).values()
        known = [row["difference"] for row in rows if not math.isnan(row["difference"])]
        means.append(f"{title(metric)} {sum(known) / len(known):+.2f}" if known else "")
    if not any(means):
        return "Validation against test: there are no figures on both."
    told = f"Validation minus test, mean of the candidates: {', '.join(filter(None, means))}; "
    unlike = unlike_test(evaluation)
    if not unlike:
        return f"{told}no more than chance."
    everyone = len(evaluation.summary["candidates"])
    parts = []
    for metric, names in unlike.items():
        who = ", ".join(names) if len(names) <= 2 else f"{len(names)} of {everyone} candidates"
        parts.append(f"{title(metric)} ({who})")
    return (
        f"{told}beyond chance in {' and '.join(parts)}. Where texts have a date or come in groups, "
        "cut validation from train by them, as test was (docs/how-to/own-data.md)."
    )
