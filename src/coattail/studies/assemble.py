"""From rows that are kept to the outcome: figures, differences, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from coattail import processor
from coattail.errors import DataError
from coattail.evaluation.metrics import CHANGES
from coattail.studies import factorial, figures, resolve
from coattail.studies.figures import Draws, Figure
from coattail.studies.kept import KeptRows, Ran
from coattail.studies.outcome import Found, RowFound, StudyOutcome, StudyRan, pair
from coattail.studies.resolve import Sources
from coattail.studies.study_params import StudyParams


def assemble(
    label: str, study: StudyParams, sources: Sources, kept: KeptRows, commit: str
) -> StudyOutcome:
    """All that is finished under today's params; a row without all its seeds is missing."""
    done = _done(study, sources, kept)
    if not done:
        raise DataError(f"study {label}: no row is finished; run it again")
    first = next(iter(done.values()))[0]
    for row, runs in done.items():
        if any((one.data, one.processor) != (first.data, first.processor) for one in runs):
            raise DataError(
                f"row {row} has other test texts, or another `processor` of params.yaml, than "
                f"{next(iter(done))}; run it again"
            )
    table = _Table(study, kept, list(done))
    found = Found(
        dataset=sources.dataset,
        data=first.data,
        processor=first.processor,
        texts=first.texts,
        labels=first.labels,
        labels_per_text=first.labels_per_text,
        seeds=list(study.seeds),
        resamples=study.resamples,
        rows={
            row: RowFound(
                params=resolve.row_digest(study, row, sources),
                rankings={str(s): r.ranking for s, r in zip(study.seeds, runs, strict=True)},
                figures=table.row(row),
                by_seed={name: table.seeds[row][name] for name in table.shown(row)},
                unconverged=list(dict.fromkeys(why for one in runs for why in one.unconverged)),
            )
            for row, runs in done.items()
        },
        differences={
            pair(row, against): table.difference(row, against)
            for row, against in pairs(study)
            if row in done and against in done
        },
        effects=table.effects(),
    )
    seconds = {row: [one.cpu_seconds for one in runs] for row, runs in done.items()}
    return StudyOutcome(label, found, StudyRan(commit, processor.name(), seconds))


def _done(study: StudyParams, sources: Sources, kept: KeptRows) -> dict[str, list[Ran]]:
    found: dict[str, list[Ran]] = {}
    for row in study.rows:
        runs = []
        for seed in study.seeds:
            one = kept.ran(row, seed)
            now = resolve.digest(resolve.params_of(study, row, seed, sources))
            runs += [one] if one is not None and one.params == now else []
        if len(runs) == len(study.seeds):
            found[row] = runs
    return found


@dataclass
class _Table:
    """Every figure of every finished row in all draws."""

    study: StudyParams
    kept: KeptRows
    rows: Sequence[str]
    draws: dict[str, Draws] = field(default_factory=dict)
    seeds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        times = self.study.resamples
        for row in self.rows:
            each = [figures.draws(self.kept.ratios(row, seed), times) for seed in self.study.seeds]
            self.draws[row], self.seeds[row] = figures.over_seeds(each, times)
        for row in self.rows:
            against = self.study.rows[row].against
            if against is not None and against in self.rows:
                self.draws[row] |= figures.changes(self.draws[row], self.draws[against])
                changed = figures.changes(self._by_seed(row), self._by_seed(against))
                self.seeds[row] |= {name: values.tolist() for name, values in changed.items()}

    def _by_seed(self, row: str) -> Draws:
        return {name: np.array(values) for name, values in self.seeds[row].items()}

    def shown(self, row: str) -> list[str]:
        return [name for name in self.study.columns if name in self.draws[row]]

    def row(self, row: str) -> dict[str, Figure]:
        return {
            name: figures.figure(self.draws[row][name], self.seeds[row][name])
            for name in self.shown(row)
        }

    def difference(self, row: str, against: str) -> dict[str, Figure]:
        """What a row has more than another. A change is one already."""
        return {
            name: figures.figure(
                self.draws[row][name] - self.draws[against][name],
                np.subtract(self.seeds[row][name], self.seeds[against][name]).tolist(),
            )
            for name in self.shown(row)
            if name in self.draws[against] and name not in CHANGES
        }

    def effects(self) -> dict[str, dict[str, Figure]]:
        """Of a factorial, as soon as all its rows are finished."""
        high = factorial.rows(self.study)
        if not high or not high.keys() <= set(self.rows):
            return {}
        metrics = [name for name in self.study.columns if name not in CHANGES]
        return {
            effect: {
                name: figures.figure(
                    factorial.contrast(effect, high, {r: self.draws[r][name] for r in high}),
                    factorial.contrast(effect, high, self._seeds(high, name)).tolist(),
                )
                for name in metrics
            }
            for effect in factorial.effects(self.study)
        }

    def _seeds(self, rows: Iterable[str], name: str) -> dict[str, list[float]]:
        return {row: self.seeds[row][name] for row in rows}


def pairs(study: StudyParams) -> list[tuple[str, str]]:
    """Rows that are compared: each with its control, and as claims ask."""
    found = [(name, row.against) for name, row in study.rows.items() if row.against]
    for claim in study.claims:
        found += pairwise(claim.rows)
        against = study.control(claim)
        if claim.row and against:
            found.append((claim.row, against))
    return list(dict.fromkeys(found))
