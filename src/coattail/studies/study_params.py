"""studies/<name>.yaml: what a study asks, what it runs, and how its claims are judged."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from coattail.config import Params, parse, read_yaml, suggestion
from coattail.errors import ConfigError
from coattail.pipeline.schema import SECTIONS

FOLDER = Path("studies")
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")

Paper = Literal["AttentionXML", "HTTN", "PW", "ReRank", "TailMix"]
Judged = Literal[
    "rises", "falls", "not_below", "at_most", "at_least", "order", "cannot_be_tested_here"
]
MOVES = ("rises", "falls", "not_below")
"""Rules about a difference."""
Names = Annotated[tuple[str, ...], Field(strict=False)]


class PublishedAs(Params):
    """Where a row's figures stand in the paper."""

    method: str = Field(description="the row's name in studies/published.csv")
    also: str | None = Field(None, description="its name in the paper's other tables")
    plus_gain: bool = Field(
        False, description="the paper prints a base and gains: this row is the base plus the gain"
    )


class RowParams(Params):
    """One row: a candidate under its params, once per seed."""

    title: str = Field(min_length=1, description="what readers see")
    candidate: str = Field(description="variant that ranks, out of the presets and params")
    params: dict[str, Any] = Field(
        default_factory=dict, description="changes to params.yaml for this row alone"
    )
    published: PublishedAs | None = Field(
        None, description="the paper's figures beside ours; null: it has none"
    )
    against: str | None = Field(None, description="row that this one's gains are counted from")
    differs: Names = Field(
        (),
        description="all that differs from `against`, as stage.key or as a stage that only one of "
        "the two has; checked",
    )

    high: Names | None = Field(
        None, description="factors that are high in this row; null: it is not of the factorial"
    )

    @model_validator(mode="after")
    def _a_control_says_how_it_differs(self) -> Self:
        if (self.against is None) != (not self.differs):
            raise ValueError("`against` and `differs` belong together")
        return self


class ClaimParams(Params):
    """One sentence that is true or not, and the rule that decides."""

    says: str = Field(min_length=1, description="the claim, in one sentence")
    judged: Judged = Field(
        description="rises, falls: the whole paired interval is above, below 0; not_below: its "
        "lower end is not under -margin; at_most, at_least: the figure's whole interval; order: "
        "`rows`, best first; cannot_be_tested_here: `why` tells"
    )
    row: str | None = Field(None, description="row that is judged")
    against: str | None = Field(None, description="row it is held against; null: the row's own")
    effect: str | None = Field(
        None, description="instead of a row: a factor, or two of them as `one x other`"
    )
    rows: Names = Field((), description="order: the rows, best first")
    metrics: Names = Field((), description="figures that are judged, each by itself")
    margin: float = Field(0.0, ge=0.0, description="points that do not matter")
    value: float | None = Field(None, description="at_most, at_least: the bound")
    why: str = Field("", description="cannot_be_tested_here: the reason")

    @model_validator(mode="after")
    def _has_what_its_rule_needs(self) -> Self:
        rule = self.judged
        if rule == "cannot_be_tested_here":
            if not self.why:
                raise ValueError("cannot_be_tested_here needs `why`")
            return self
        if not self.metrics:
            raise ValueError(f"{rule} needs `metrics`")
        if rule == "order" and len(self.rows) < 2:
            raise ValueError("order needs two `rows` or more")
        if self.effect is not None and rule not in MOVES:
            raise ValueError(f"an effect is judged by one of {', '.join(MOVES)}")
        if rule != "order" and (self.row is None) == (self.effect is None):
            raise ValueError(f"{rule} needs a `row` or an `effect`")
        if (rule in ("at_most", "at_least")) != (self.value is not None):
            raise ValueError("at_most and at_least need a `value`, and only they do")
        return self


class StudyParams(Params):
    """A whole study."""

    title: str = Field(min_length=1, description="one line for people")
    paper: Paper = Field(description="whose claims these are")
    tables: Names = Field(
        min_length=1, description="tables of the paper, as published.csv has them"
    )
    paper_dataset: str | None = Field(
        None, description="the paper's dataset that is set beside ours; null: no figures"
    )
    dataset: str = Field(description="entry of conf/dataset")
    regime: str = Field(min_length=1, description="how our data differ from the paper's")
    use: Names = Field((), description="presets of conf/ that the rows are taken from")
    params: dict[str, Any] = Field(
        default_factory=dict, description="changes to params.yaml, after the presets"
    )
    seeds: Annotated[tuple[int, ...], Field(strict=False, min_length=1)] = Field(
        (0,), description="each row is run once per seed; written into every variant that has one"
    )
    columns: Names = Field(min_length=1, description="figures, as docs/explanation/metrics.md has")
    resamples: int = Field(2000, ge=100, le=100_000, description="of texts and seeds, paired")
    unconverged: float = Field(
        0.01, ge=0.0, le=1.0, description="share of classifiers that may end at their limit"
    )
    factors: Names = Field(
        (), description="what is low or high: every combination of them is a row, see `high`"
    )
    rows: dict[str, RowParams] = Field(min_length=1, description="rows by name")
    claims: Annotated[tuple[ClaimParams, ...], Field(strict=False, min_length=1)] = Field(
        description="what is judged"
    )

    @model_validator(mode="after")
    def _names_what_is_there(self) -> Self:
        problems = [
            f"params: no section {name!r}{suggestion(name, list(SECTIONS))}"
            for part in (self.params, *(row.params for row in self.rows.values()))
            for name in part
            if name not in SECTIONS
        ]
        named = [(f"rows.{name}.against", row.against) for name, row in self.rows.items()]
        for number, claim in enumerate(self.claims):
            where = f"claims.{number}"
            named += [(f"{where}.row", claim.row), (f"{where}.against", claim.against)]
            named += [(f"{where}.rows", one) for one in claim.rows]
            problems += [
                f"{where}.metrics: {metric!r} is not among the columns"
                for metric in claim.metrics
                if metric not in self.columns
            ]
        problems += [
            f"{where}: no row {name!r}{suggestion(name, list(self.rows))}"
            for where, name in named
            if name is not None and name not in self.rows
        ]
        problems += self._problems_of_the_factorial()
        if len(set(self.seeds)) < len(self.seeds):
            problems.append("seeds: one stands twice")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems_of_the_factorial(self) -> list[str]:
        there = [frozenset(row.high) for row in self.rows.values() if row.high is not None]
        unknown = sorted(frozenset().union(*there) - set(self.factors))
        if unknown:
            return [f"rows: {unknown[0]!r} in `high` is not among the factors"]
        if self.factors and (len(there), len(set(there))) != (2 ** len(self.factors),) * 2:
            wanted, many = 2 ** len(self.factors), len(self.factors)
            return [
                f"factors: {many} of them make {wanted} rows, each with another `high`; got "
                f"{len(there)} rows, {len(set(there))} of them different"
            ]
        pairs = {" x ".join(pair) for pair in combinations(self.factors, 2)}
        return [
            f"claims.{number}.effect: no {claim.effect!r} of {sorted({*self.factors, *pairs})}"
            for number, claim in enumerate(self.claims)
            if claim.effect is not None and claim.effect not in {*self.factors, *pairs}
        ]

    def control(self, claim: ClaimParams) -> str | None:
        """The row that a claim's row is held against."""
        if claim.row is None or claim.judged in ("at_most", "at_least", "order"):
            return None
        return claim.against or self.rows[claim.row].against


def names(folder: Path = FOLDER) -> list[str]:
    """All studies, in order."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load(name: str, folder: Path = FOLDER) -> StudyParams:
    """A study by name; every mistake of its file in one error."""
    if not NAME.fullmatch(name) or name not in names(folder):
        raise ConfigError(f"{folder}/ has no study {name!r}{suggestion(name, names(folder))}")
    path = folder / f"{name}.yaml"
    study: StudyParams = parse(read_yaml(path), StudyParams, f"{path}: ")
    without = [
        f"{path}: claims.{number}: {claim.row} has no row to be held against; name one in `against`"
        for number, claim in enumerate(study.claims)
        if claim.judged in MOVES and claim.effect is None and study.control(claim) is None
    ]
    if without:
        raise ConfigError("\n".join(without))
    return study
