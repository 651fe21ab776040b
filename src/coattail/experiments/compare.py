"""`coattail compare`: candidates of git revisions, experiments and MLflow runs in one table."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

from rich.table import Table

from coattail.config import suggestion
from coattail.errors import ConfigError, DataError
from coattail.evaluation import leaderboard
from coattail.evaluation.scoring import TABLES, Evaluation
from coattail.tracking.candidate_metrics import RUN_ID, results
from coattail.tracking.circumstances import NOTHING, Circumstances, of_lock, of_run

Metrics = dict[str, float]
WORKSPACE = "workspace"
EXPERIMENT = re.compile(r"refs/exps/[0-9a-f]{2}/[0-9a-f]{38}/(?P<name>[^/]+)")
ROUNDED = 0.00501  # metrics/*.json have two digits


@dataclass(frozen=True)
class Source:
    """Where numbers come from: ``kind`` is workspace, revision, experiment or run."""

    name: str  # as rows call it
    kind: str
    address: str  # commit or run id; empty for the workspace
    candidates: dict[str, Metrics]
    made: Circumstances = NOTHING


@dataclass(frozen=True)
class Comparison:
    """The candidates of all sources, one row each."""

    sources: list[Source]

    @property
    def rows(self) -> dict[str, Metrics]:
        """``candidate@source`` -> its metrics."""
        return {
            f"{candidate}@{source.name}": metrics
            for source in self.sources
            for candidate, metrics in source.candidates.items()
        }

    @property
    def metrics(self) -> list[str]:
        """Every metric that some row has, in the order of the first row that has it."""
        return list(dict.fromkeys(name for row in self.rows.values() for name in row))

    def only(self, candidates: Sequence[str]) -> Comparison:
        """The same with these candidates alone; each must be somewhere."""
        there = {name for source in self.sources for name in source.candidates}
        for name in candidates:
            if name not in there:
                raise ConfigError(f"compare: no candidate {name!r}{suggestion(name, list(there))}")
        return self._keep(set(candidates))

    def check(self, metrics: Sequence[str]) -> None:
        """Refuse metrics that no row has."""
        known = self.metrics
        for name in metrics:
            if name not in known:
                raise ConfigError(f"compare: no metric {name!r}{suggestion(name, known)}")

    def changed(self) -> Comparison:
        """The same without candidates whose numbers are equal in every source."""
        there = {name for source in self.sources for name in source.candidates}
        seen = {n: [source.candidates.get(n) for source in self.sources] for n in there}
        return self._keep({n for n, found in seen.items() if not all(map(_same(found[0]), found))})

    def _keep(self, names: set[str]) -> Comparison:
        kept = [
            replace(s, candidates={n: m for n, m in s.candidates.items() if n in names})
            for s in self.sources
        ]
        return Comparison(kept)

    def warnings(self) -> list[str]:
        """Sources of the same code, data and params that were computed on other processors."""
        found = []
        for one, other in combinations(self.sources, 2):
            if how := one.made.beside(other.made):
                both = set(one.candidates) & set(other.candidates)
                same = all(_same(one.candidates[n])(other.candidates[n]) for n in both)
                end = "no figure differs" if same else "so differences of figures come from there"
                found.append(
                    f"{one.name} and {other.name} differ in the processor alone: {how}; {end}"
                )
        return found


def _same(first: Metrics | None) -> Any:
    def same(other: Metrics | None) -> bool:
        if first is None or other is None:
            return first is other
        both = set(first) & set(other)
        return all(abs(first[name] - other[name]) < ROUNDED for name in both)

    return same


def compare(names: Sequence[str] = ()) -> Comparison:
    """Read every source; without a name the workspace and HEAD."""
    wanted = list(dict.fromkeys(names or (WORKSPACE, "HEAD")))
    sources = [_source(name) for name in wanted]
    if not any(source.candidates for source in sources):
        raise DataError(f"compare: no metrics in {', '.join(wanted)}; run dvc repro first")
    return Comparison(sources)


def _source(name: str) -> Source:
    if name == WORKSPACE:
        small = {
            p.stem: _parsed(p.read_text(), str(p)) for p in sorted(Path("metrics").glob("*.json"))
        }
        lock = Path("dvc.lock").read_text() if Path("dvc.lock").exists() else ""
        return Source(name, WORKSPACE, "", _detailed(small, _details_here()), of_lock(lock))
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if commit:
        return Source(name, "revision", commit, *_of_commit(commit))
    commit = _experiment(name)
    if commit:
        return Source(name, "experiment", commit, *_of_commit(commit))
    if RUN_ID.fullmatch(name):
        found = results(name)
        if found:
            return Source(_short(*found, name), "run", name, found[1], of_run(name))
    known = [WORKSPACE, "HEAD", *_names(), *dict.fromkeys(experiments())]
    raise ConfigError(
        f"compare: {name!r} is no git revision, experiment or id of an MLflow run"
        f"{suggestion(name, known)}"
    )


def _short(run_name: str, candidates: dict[str, Metrics], run_id: str) -> str:
    """A run by the start of its id; a parent's name says more and goes first."""
    alone = list(candidates) == [run_name]
    return run_id[:8] if alone else f"{run_name}:{run_id[:8]}"


# --- git -----------------------------------------------------------------------------------------


def _git(*words: str) -> str:
    """What git prints, or nothing where it fails."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"compare: git cannot be asked ({error}); is it installed?") from None
    return done.stdout.rstrip("\n") if done.returncode == 0 else ""


def _names() -> list[str]:
    found = _git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
    return found.splitlines()


def experiments() -> dict[str, list[str]]:
    """Commits of every experiment's name; one name may be used on several baselines."""
    found: dict[str, list[str]] = {}
    lines = _git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps").splitlines()
    for line in lines:
        commit, _, ref = line.partition(" ")
        match = EXPERIMENT.fullmatch(ref)
        if match:
            found.setdefault(match["name"], []).append(commit)
    return found


def _experiment(name: str) -> str:
    commits = experiments().get(name, [])
    if len(commits) > 1:
        head = _git("rev-parse", "HEAD")
        commits = [one for one in commits if _git("rev-parse", f"{one}^") == head] or commits
    if len(commits) > 1:
        raise ConfigError(
            f"compare: {len(commits)} experiments are called {name!r}; give the commit instead: "
            f"{', '.join(commit[:10] for commit in commits)}"
        )
    return commits[0] if commits else ""


def _of_commit(commit: str) -> tuple[dict[str, Metrics], Circumstances]:
    """metrics/*.json of a commit; a commit from before there were any has no candidates."""
    listed = _git("ls-tree", "--name-only", commit, "metrics/").splitlines()
    small = {
        PurePosixPath(path).stem: _parsed(
            _git("show", f"{commit}:./{path}"), f"{commit[:10]}:{path}"
        )
        for path in listed
        if path.endswith(".json")
    }
    lock = _git("show", f"{commit}:./dvc.lock")
    return _detailed(small, _details_in_cache(lock)), of_lock(lock)


# --- metrics -------------------------------------------------------------------------------------


def _parsed(content: str, where: str) -> Metrics:
    try:
        values = json.loads(content)
        return {str(name): float(value) for name, value in values.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{where} holds no metrics ({error}); dvc repro evaluate -f") from None


def _detailed(small: dict[str, Metrics], details: dict[str, Any]) -> dict[str, Metrics]:
    """Small metrics with all others of the detailed evaluation, where that is the same one.

    metrics/*.json, which git has, is the truth. The details are in DVC's cache, and may be gone or
    belong to another checkout.
    """
    found = {}
    for name, values in small.items():
        more = {k: v for k, v in (details.get(name) or {}).items() if v is not None}
        same = all(abs(more.get(k, math.inf) - v) < ROUNDED for k, v in values.items())
        found[name] = values | more if same else values
    return found


def _details_here() -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(Path("data/evaluation/metrics.json").read_text())
    except (OSError, ValueError):
        return {}
    return content


LOCKED = re.compile(r"- path: data/evaluation\n\s+hash: md5\n\s+md5: ([0-9a-f]{32}\.dir)")


def _details_in_cache(lock: str) -> dict[str, Any]:
    """metrics.json of a dvc.lock's data/evaluation from DVC's cache on this machine, if there."""
    match = LOCKED.search(lock)
    if not match:
        return {}
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            cache = Path(repo.cache.local.path)
        listing = json.loads(_object(cache, match[1]).read_text())
        md5 = next(one["md5"] for one in listing if one["relpath"] == "metrics.json")
        content: dict[str, Any] = json.loads(_object(cache, md5).read_text())
    except (DvcException, OSError, ValueError, StopIteration):
        return {}  # not fetched, or garbage-collected: git has the main figures
    return content


def _object(cache: Path, md5: str) -> Path:
    return cache / md5[:2] / md5[2:]


# --- what is shown -------------------------------------------------------------------------------


def table(
    comparison: Comparison,
    sort: str | None = None,
    metrics: Sequence[str] = (),
    plain: bool = False,
) -> Table:
    """The leaderboard of a comparison, with ``metrics`` as columns if any are named."""
    comparison.check([*metrics, *([sort] if sort else [])])
    ks = _ks(comparison.metrics)
    usual = leaderboard.columns(ks)
    shown = {name: usual.get(name, name.replace("_at_", "@")) for name in metrics} or usual
    best = sort or (metrics[0] if metrics else f"psp_at_{max(ks)}")
    # A row says nothing about metrics it lacks; the table shows them as a dash.
    empty = dict.fromkeys([*shown, best], math.nan)
    rows = {name: empty | values for name, values in comparison.rows.items()}
    evaluation = Evaluation({"ks": list(ks), "base": None}, rows, {name: [] for name in TABLES})
    caption = _caption(
        comparison, plain, any(math.isnan(r[m]) for r in rows.values() for m in shown)
    )
    return leaderboard.render(evaluation, best, plain, shown, caption)


def _ks(metrics: Sequence[str]) -> list[int]:
    """The ranks that precision was taken at."""
    found = [int(m[1]) for m in (re.fullmatch(r"p_at_(\d+)", name) for name in metrics) if m]
    return sorted(found) or [1, 3, 5]


def _caption(comparison: Comparison, plain: bool, gaps: bool) -> str:
    parts = []
    for source in comparison.sources:
        where = f" ({source.address[:10]})" if source.kind in ("revision", "experiment") else ""
        count = len(source.candidates)
        parts.append(f"{source.name}{where}: {count or 'no'} candidate{'' if count == 1 else 's'}")
    best = "*" if plain else "bold underlined"
    lines = [f"Percent. {best}: best of its column. {'; '.join(parts)}."]
    if gaps:
        lines.append(
            "-: not among the metrics that git keeps, and not in this machine's DVC cache."
        )
    return " ".join(lines)


def records(comparison: Comparison, metrics: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One flat dict per row, every metric (or ``metrics``) in it; None where there is none."""
    names = list(metrics) or comparison.metrics
    return [
        {
            "candidate": candidate,
            "source": source.name,
            "kind": source.kind,
            "address": source.address,
            **{name: _number(values.get(name, math.nan)) for name in names},
        }
        for source in comparison.sources
        for candidate, values in source.candidates.items()
    ]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def as_json(comparison: Comparison, metrics: Sequence[str] = ()) -> str:
    """The rows as a JSON list."""
    return json.dumps(records(comparison, metrics), indent=1) + "\n"


def as_csv(comparison: Comparison, metrics: Sequence[str] = ()) -> str:
    """The rows as CSV; an empty cell where a row has no value."""
    rows = records(comparison, metrics)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else ["candidate"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
