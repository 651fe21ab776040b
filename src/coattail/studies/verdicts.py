"""Verdicts: what the figures of a study say of each claim. Recomputed whenever they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from coattail.studies import factorial, published
from coattail.studies.figures import Figure, heading
from coattail.studies.outcome import Found, pair
from coattail.studies.study_params import ClaimParams, StudyParams

Word = Literal["holds", "holds weaker", "does not hold", "undecided", "cannot be tested here"]

VERDICTS: tuple[Word, ...] = get_args(Word)


@dataclass(frozen=True)
class Verdict:
    word: Word
    why: str


def judge(study: StudyParams, found: Found | None) -> list[Verdict]:
    """One verdict per claim, in order."""
    return [_claim(study, claim, found) for claim in study.claims]


def _claim(study: StudyParams, claim: ClaimParams, found: Found | None) -> Verdict:
    if claim.judged == "cannot_be_tested_here":
        return Verdict("cannot be tested here", claim.why)
    wanted = claim.rows or tuple(filter(None, (claim.row, study.control(claim))))
    if claim.effect is not None:
        wanted = tuple(factorial.rows(study))
    for row in wanted:
        if found is None or row not in found.rows:
            return Verdict("undecided", f"row {row} is missing")
    assert found is not None
    for row in wanted:
        if found.rows[row].unconverged:
            reason = "; ".join(found.rows[row].unconverged)
            return Verdict("undecided", f"row {row} did not converge: {reason}")
    return _together([_metric(study, claim, metric, found) for metric in claim.metrics])


def _metric(study: StudyParams, claim: ClaimParams, metric: str, found: Found) -> Verdict:
    if claim.judged == "order":
        return _order(claim.rows, metric, found)
    if claim.effect is not None:
        effect = found.effects.get(claim.effect, {}).get(metric)
        return _change(claim, effect, claim.effect, metric, None)
    assert claim.row is not None
    if claim.value is not None:
        figure = found.rows[claim.row].figures.get(metric)
        if figure is None:
            return _not_run(claim.row, metric)
        return _bound(claim, figure, metric)
    against = study.control(claim)
    assert against is not None
    difference = _difference(found, claim.row, against, metric)
    gain = published.gain(study, claim.row, against, metric)
    return _change(claim, difference, pair(claim.row, against), metric, gain)


def _change(
    claim: ClaimParams, found: Figure | None, what: str, metric: str, gain: float | None
) -> Verdict:
    if found is None:
        return _not_run(what, metric)
    if claim.judged == "not_below":
        return _not_below(claim, found, metric)
    return _moves(claim, found, metric, gain)


def _moves(claim: ClaimParams, found: Figure, metric: str, gain: float | None) -> Verdict:
    """Rises or falls: beyond chance, by more than the margin, as far as the paper's?"""
    up = claim.judged == "rises"
    low, high = (found.low, found.high) if up else (-found.high, -found.low)
    said = _said(found, metric)
    if math.isnan(low):
        return Verdict("undecided", f"{heading(metric)} has no figure here")
    if high <= claim.margin:
        return Verdict("does not hold", said)
    if low <= claim.margin:
        return Verdict("undecided", f"{said}: chance is not ruled out")
    least = None if gain is None else (gain if up else -gain)
    if least is not None and high < least:
        return Verdict("holds weaker", f"{said}; the paper has {gain:+.2f}")
    return Verdict("holds", said)


def _not_below(claim: ClaimParams, found: Figure, metric: str) -> Verdict:
    said = _said(found, metric)
    if math.isnan(found.low):
        return Verdict("undecided", f"{heading(metric)} has no figure here")
    if found.low >= -claim.margin:
        return Verdict("holds", said)
    if found.high < -claim.margin:
        return Verdict("does not hold", said)
    return Verdict("undecided", f"{said}: chance is not ruled out")


def _bound(claim: ClaimParams, found: Figure, metric: str) -> Verdict:
    assert claim.value is not None
    said = f"{heading(metric)} {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"
    if math.isnan(found.low):
        return Verdict("undecided", f"{heading(metric)} has no figure here")
    inside, outside = found.high <= claim.value, found.low > claim.value
    if claim.judged == "at_least":
        inside, outside = found.low >= claim.value, found.high < claim.value
    if inside:
        return Verdict("holds", said)
    return Verdict("does not hold" if outside else "undecided", said)


def _order(rows: Sequence[str], metric: str, found: Found) -> Verdict:
    """Each row above the next; between equals chance decides, which weakens the claim."""
    steps = [_difference(found, one, other, metric) for one, other in pairwise(rows)]
    if any(step is None for step in steps):
        return _not_run(" > ".join(rows), metric)
    there = [step for step in steps if step is not None]
    listed = ", ".join(
        f"{one} over {other} {step.value:+.2f} [{step.low:+.2f}, {step.high:+.2f}]"
        for (one, other), step in zip(pairwise(rows), there, strict=True)
    )
    said = f"{heading(metric)}: {listed}"
    if all(step.low > 0 for step in there):
        return Verdict("holds", said)
    if any(step.high < 0 for step in there):
        return Verdict("does not hold", said)
    if all(step.value > 0 for step in there):
        return Verdict("holds weaker", f"{said}: not every step is beyond chance")
    return Verdict("undecided", f"{said}: chance is not ruled out")


def _difference(found: Found, row: str, against: str, metric: str) -> Figure | None:
    """A difference as it was measured, or the same the other way round."""
    there = found.differences.get(pair(row, against), {}).get(metric)
    if there is not None:
        return there
    back = found.differences.get(pair(against, row), {}).get(metric)
    return None if back is None else Figure(-back.value, back.spread, -back.high, -back.low)


def _said(found: Figure, metric: str) -> str:
    return f"{heading(metric)} {found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _not_run(what: str, metric: str) -> Verdict:
    return Verdict(
        "undecided", f"{what} was not compared in {heading(metric)}; run the study again"
    )


def _together(parts: Sequence[Verdict]) -> Verdict:
    """One word for a claim on several figures; the reasons of all of them."""
    why = "; ".join(part.why for part in parts)
    words = {part.word for part in parts}
    if len(words) == 1:
        return Verdict(parts[0].word, why)
    if words & {"holds", "holds weaker"}:
        return Verdict("holds weaker", why)
    return Verdict("does not hold" if "does not hold" in words else "undecided", why)
