"""The champion: the candidate that is published and tags new texts, chosen on validation alone.

The rule is one metric and floors for others. Test figures play no part, so that the champion's test
figures are what it is worth, and not the luck of the one that looked best on them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from coattail.config import Params, suggestion
from coattail.errors import DataError
from coattail.evaluation.metrics import names

WRITTEN = re.compile(r"base(?:\s*(?P<sign>[+-])\s*(?P<points>\d+(?:\.\d+)?))?")


def _written(value: Any) -> float | str:
    """A floor as params.yaml has it; refuse what is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value):
        return float(value)
    if isinstance(value, str) and WRITTEN.fullmatch(value):
        return value
    raise ValueError("wanted a number, base, base - x or base + x (x in points of the metric)")


Floor = Annotated[Any, AfterValidator(_written)]


class BestParams(Params):
    """Which candidate is the champion: one metric, and floors for others."""

    by: str | None = Field(
        None, description="metric on validation that decides; null: PSP at the largest k"
    )
    at_least: dict[str, Floor] | None = Field(
        None,
        description="metric on validation -> floor: a number, `base`, `base - x` or `base + x`; "
        "null: `base - 1.0` in precision at the smallest k; {}: no floor",
    )


@dataclass(frozen=True)
class BestRule:
    """`BestParams` with its defaults filled in."""

    by: str
    at_least: dict[str, float | str]


def rule(params: BestParams, ks: Sequence[int]) -> BestRule:
    usual: dict[str, float | str] = {f"p_at_{min(ks)}": "base - 1.0"}
    floors = usual if params.at_least is None else params.at_least
    return BestRule(params.by or f"psp_at_{max(ks)}", floors)


def complaints(params: BestParams, ks: Sequence[int]) -> list[str]:
    """What the rule names that is no metric, as lines for an error."""
    wanted, known = rule(params, ks), names(ks)
    places = {"by": wanted.by} | {f"at_least.{metric}": metric for metric in wanted.at_least}
    return [
        f"evaluate.best.{place}: no metric {metric!r}{_meant(metric, known)}"
        for place, metric in places.items()
        if metric not in known
    ]


def _meant(metric: str, known: list[str]) -> str:
    near = suggestion(metric, known)
    return near if "did you mean" in near else "; docs/explanation/metrics.md lists them"


@dataclass(frozen=True)
class Champion:
    """Who was chosen and by what.

    Attributes
    ----------
    floors : dict
        Metric -> its floor on validation; None where the base has no figure to measure from.
    cleared : list
        Candidates that have a figure and are at or above every floor.
    """

    name: str
    by: str
    at_least: dict[str, float | str]
    floors: dict[str, float | None]
    cleared: list[str]

    @staticmethod
    def of(summary: Mapping[str, Any]) -> Champion:
        """As data/evaluation/summary.json has it."""
        try:
            return Champion(**summary["champion"])
        except (KeyError, TypeError):
            raise DataError("data/evaluation knows no champion; run dvc repro evaluate") from None

    @property
    def metrics(self) -> list[str]:
        """Everything the rule looked at, once each."""
        return list(dict.fromkeys([self.by, *self.at_least]))

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def falls_short(self, metric: str, value: float) -> bool:
        """Whether a figure on validation is below its floor; a missing one is."""
        return metric in self.floors and not clears(value, self.floors[metric])


def choose(
    wanted: BestRule, on_validation: Mapping[str, Mapping[str, float]], base: str
) -> Champion:
    """The best by the rule, of equals the first; the base if nobody clears the floors."""
    floors = {
        metric: floor(written, on_validation[base][metric])
        for metric, written in wanted.at_least.items()
    }
    cleared = [
        name
        for name, values in on_validation.items()
        if not math.isnan(values[wanted.by])
        and all(clears(values[metric], least) for metric, least in floors.items())
    ]
    best = max(cleared, key=lambda name: on_validation[name][wanted.by], default=base)
    return Champion(best, wanted.by, wanted.at_least, floors, cleared)


def clears(value: float, least: float | None) -> bool:
    """Floors are held against figures as they are: chance on validation is not allowed for."""
    # Figures are read back rounded, so a floor is not missed by a rounding error.
    return least is not None and value >= least - 1e-4


def floor(written: float | str, of_base: float) -> float | None:
    """A floor in points, where the base has ``of_base``; None if the base has no figure."""
    if not isinstance(written, str):
        return written
    match = WRITTEN.fullmatch(written)
    if match is None or math.isnan(of_base):
        return None
    points = float(match["points"] or 0)
    return of_base - points if match["sign"] == "-" else of_base + points
