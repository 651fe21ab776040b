"""Run a study, or what is left of it: row by row, seed by seed."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from coattail.errors import ConfigError, DataError
from coattail.evaluation.metrics import CHANGES
from coattail.files import atomic_file
from coattail.pipeline.candidates import candidates
from coattail.pipeline.stage_result import flatten
from coattail.progress import progress
from coattail.studies import figures, kept, outcome, published, resolve, study_params, verdicts
from coattail.studies.assemble import assemble
from coattail.studies.outcome import StudyOutcome
from coattail.studies.resolve import Sources
from coattail.studies.study_params import StudyParams
from coattail.studies.work import FOLDER, RowError, Work
from coattail.tracking.study_runs import StudyRuns

log = logging.getLogger("coattail")

MEMORY = FOLDER / "folders.json"
"""Where the files of datasets are, as an earlier run was told."""


class Runner:
    """One session of a study."""

    def __init__(self, name: str, study: StudyParams, sources: Sources) -> None:
        self.study, self.sources = study, sources
        self.path = outcome.place(
            name, sources.dataset if sources.dataset != study.dataset else None
        )
        self.label = self.path.stem
        facts = {"title": study.title, "paper": study.paper, "seeds": list(study.seeds)}
        self.runs = StudyRuns(self.label, sources.dataset, facts)
        self.work = Work(self.label, self.runs.environment)
        self.kept = kept.KeptRows(self.work.folder / "rows")

    def run(self, rows: Sequence[str]) -> tuple[StudyOutcome, list[str]]:
        """Run rows; the outcome of all that is there, and what failed."""
        failures: list[str] = []
        try:
            commit, code = self.work.prepare()
            total = len(rows) * len(self.study.seeds)
            with progress(f"study {self.label}", total, "runs") as bar:
                for row in rows:
                    for seed in self.study.seeds:
                        failure = self._row(row, seed, code)
                        failures += [failure] if failure else []
                        bar.advance(1, f"{row}, seed {seed}{': failed' if failure else ''}")
            found = assemble(self.label, self.study, self.sources, self.kept, commit)
            outcome.save(found, self.path)
        except BaseException:
            self.runs.end("KILLED", {})
            raise
        said = verdicts.judge(self.study, found.found)
        shown = {f"claim {n}": f"{v.word}: {v.why}" for n, v in enumerate(said, 1)}
        self.runs.end("FAILED" if failures else "FINISHED", shown)
        return found, failures

    def _row(self, row: str, seed: int, code: str) -> str | None:
        """Run a row at one seed unless that is done; the reason if it failed."""
        content = resolve.params_of(self.study, row, seed, self.sources)
        there = self.kept.ran(row, seed)
        wanted = (resolve.digest(content), code, content.get("processor", "any"))
        if there is not None and (there.params, there.code, there.processor) == wanted:
            return None
        candidate = candidates(content)[self.study.rows[row].candidate]
        log.info("study %s: row %s, seed %d: %s", self.label, row, seed, candidate.address)
        try:
            self.work.run(content, candidate.address)
            ran, ratios = kept.look(self.study, row, content, code, self.work.clone / "data")
        except (RowError, DataError) as error:
            log.warning("study %s: row %s, seed %d failed: %s", self.label, row, seed, error)
            return f"row {row}, seed {seed}: {error}"
        self.kept.keep(row, seed, ran, ratios)
        params = dict(flatten(content[candidate.stage][candidate.name]))
        values = {name: ratio.percent for name, ratio in ratios.items()}
        self.runs.row(f"{row}-seed-{seed}", params, values)
        return None


def check(study: StudyParams, sources: Sources) -> None:
    """All that can be wrong with a study before it runs."""
    problems = figures.check(study.columns) + published.check(study)
    problems += [
        f"claims: {metric} is a change and has no differences; judge it by at_least or at_most"
        for claim in study.claims
        for metric in claim.metrics
        if metric in CHANGES and claim.judged not in ("at_least", "at_most")
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    resolve.check(study, sources)


def run(
    name: str, data: Sequence[str] = (), only: Sequence[str] = ()
) -> tuple[StudyOutcome, list[str]]:
    """Run a study; one process at a time."""
    study = study_params.load(name)
    unknown = [row for row in only if row not in study.rows]
    if unknown:
        raise ConfigError(f"study {name} has no row {unknown[0]!r}; there is {list(study.rows)}")
    sources = sources_of(study, data)
    check(study, sources)
    lock = FOLDER / f"{name}-{sources.dataset}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            rows = [row for row in study.rows if not only or row in only]
            return Runner(name, study, sources).run(rows)
    except Timeout:
        raise ConfigError(f"study {name} runs in another process already") from None


def sources_of(study: StudyParams, data: Sequence[str]) -> Sources:
    """Folders as told now or before; ENTRY=FOLDER of another dataset runs the study on that."""
    folders = json.loads(MEMORY.read_text(encoding="utf-8")) if MEMORY.exists() else {}
    dataset = study.dataset
    for one in data:
        entry, folder = one.split("=", 1) if "=" in one else (dataset, one)
        place = Path(folder).expanduser()
        folders[entry] = str(place.resolve()) if place.is_dir() else folder
        dataset = entry if not entry.startswith("vectors/") else dataset
    if data:
        with atomic_file(MEMORY) as path:
            path.write_text(json.dumps(folders, indent=1) + "\n", encoding="utf-8")
    return Sources(dataset, folders)
