"""`coattail tune`: Optuna over params of one variant, judged on validation, never on test."""

from __future__ import annotations

import json
import logging
import math
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from coattail.errors import ConfigError, DataError, ModelError
from coattail.experiments import search_space, trial
from coattail.experiments.compare import experiments
from coattail.experiments.search_plan import Judge, Plan
from coattail.experiments.search_space import Choice, Dimension
from coattail.pipeline import registry
from coattail.progress import progress
from coattail.tracking.record import Point
from coattail.tracking.trials import Search

log = logging.getLogger("coattail")

FOLDER = Path("data/tune")
STARTUP = 5  # trials that are never stopped early
GIVE_UP = 5  # failures in a row, with nothing to show, after which more are pointless


@dataclass(frozen=True)
class SearchResult:
    """What a search found: the best values, and every trial as (number, state, value, values)."""

    plan: Plan
    best: dict[str, Any]
    value: float
    number: int
    trials: list[tuple[int, str, float | None, dict[str, Any]]] = field(default_factory=list)


class _Poor(Exception):
    """Raised inside a trial that Optuna's pruner gives up."""


class Tuner:
    """A search that remembers: killed at any point, it goes on where it was."""

    def __init__(self, plan: Plan) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self.plan, self.judge = plan, Judge(plan.content)
        self.folder = FOLDER / plan.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.study = optuna.create_study(
            storage=f"sqlite:///{self.folder / 'study.db'}",
            study_name=plan.name,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=0),
        )
        for left in self._trials("RUNNING"):  # a session was killed
            self.study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        facts = {"family": plan.family, "stage": plan.stage, "metric": f"valid_{plan.metric}"}
        self.search = Search(str(plan.content["dataset"]["name"]), plan.variant, facts)

    def _trials(self, *states: str) -> list[Any]:
        return [t for t in self.study.get_trials(deepcopy=False) if t.state.name in states]

    def done(self) -> set[int]:
        """Positions that need no more work; those that failed in an earlier session do."""
        return {t.user_attrs["position"] for t in self._trials("COMPLETE", "PRUNED")}

    def run(self) -> SearchResult:
        plan, done = self.plan, self.done()
        over = {f"over.{one.name}": str(one).partition("=")[2] for one in plan.space}
        settings = {"trials": plan.size, "seed": plan.seed, "prune": plan.prune}
        self.search.open(self.study.user_attrs.get("run_id"), over | settings)
        self.study.set_user_attr("run_id", self.search.run_id)
        if plan.prune and plan.logs and not plan.watched:
            log.info("tune: networks log no %s per epoch, so no trial stops early", plan.metric)
        if done:
            log.info("tune: going on after %d of %d trials", len(done), plan.size)
        failures: list[str] = []
        try:
            with progress(f"tune {plan.variant}", plan.size, "trials") as bar:
                bar.advance(len(done), self._note())
                for position in (p for p in range(plan.size) if p not in done):
                    failure = self._trial(position)
                    failures += [failure] if failure else []
                    bar.advance(1, self._note())
                    if len(failures) >= GIVE_UP and not self._trials("COMPLETE"):
                        break
        except BaseException:
            self.search.end(self.search.run_id, "KILLED", {}, {})
            raise
        return self._close(failures)

    def _note(self) -> str:
        best = self._best()
        return (
            f"best {self.plan.metric} {best.value:.2f} (trial {best.user_attrs['position']})"
            if best
            else ""
        )

    def _best(self) -> Any | None:
        # Of equals the first.
        return max(self._trials("COMPLETE"), key=lambda t: (t.value, -t.number), default=None)

    def _trial(self, position: int) -> str | None:
        """Train and judge; the reason if it failed."""
        import optuna

        state = optuna.trial.TrialState
        one = self._ask(position)
        values = self._values(one)
        folder = self.folder / f"trial-{position:03d}"
        params = {**self.plan.params.model_dump(mode="json"), **values}
        run_id = self.search.trial(position, params)
        tags = {"trial": str(position)}
        try:
            scores = self._same(values) or self._train(folder, values, one, run_id)
            one.set_user_attr("values", values)
            one.set_user_attr("scores", scores)
            self.study.tell(one, scores[self.plan.metric])
            shown = {f"valid_{name}": value for name, value in scores.items()}
            self.search.end(run_id, "FINISHED", shown, tags | {"state": "complete"})
        except _Poor:
            self.study.tell(one, state=state.PRUNED)
            self.search.end(run_id, "KILLED", {}, tags | {"state": "pruned"})
        except (trial.TrialError, DataError, ConfigError) as error:
            one.set_user_attr("failure", str(error))
            self.study.tell(one, state=state.FAIL)
            self.search.end(run_id, "FAILED", {}, tags | {"state": "failed", "failure": str(error)})
            log.warning("tune: trial %d failed: %s", position, error)
            return str(error)
        except BaseException:
            self.study.tell(one, state=state.FAIL)
            self.search.end(run_id, "KILLED", {}, tags | {"state": "interrupted"})
            raise
        trial.forget(folder)  # what an interrupted one left is kept: it goes on from there
        return None

    def _ask(self, position: int) -> Any:
        """Draw a trial's values from the seed and the position alone, so that repeats are equal."""
        import optuna

        before = [t for t in self._trials("FAIL") if t.user_attrs.get("position") == position]
        fixed = before[-1].params if before else None
        if fixed is None and self.plan.grid is not None:
            fixed = self.plan.grid[position]
        elif fixed is None and position == 0:
            fixed = search_space.present(self.plan.space, self.plan.params)
        sampler: Any = optuna.samplers.TPESampler(seed=self.plan.seed * 10_007 + position)
        if fixed is not None:
            sampler = optuna.samplers.PartialFixedSampler(fixed, sampler)
        self.study.sampler = sampler
        one = self.study.ask({d.name: _distribution(d) for d in self.plan.space})
        one.set_user_attr("position", position)
        return one

    def _values(self, one: Any) -> dict[str, Any]:
        return {d.name: d.value(one.params[d.name]) for d in self.plan.space}

    def _same(self, values: dict[str, Any]) -> dict[str, float] | None:
        """Scores of an earlier trial with the very same values: they would come out again."""
        equal = [t for t in self._trials("COMPLETE") if t.user_attrs["values"] == values]
        return equal[0].user_attrs["scores"] if equal else None

    def _train(
        self, folder: Path, values: dict[str, Any], one: Any, run_id: str | None
    ) -> dict[str, float]:
        content = self.plan.changed(values)
        stage, variant = self.plan.stage, self.plan.variant
        registry.parsed(stage, content[stage][variant], f"{stage}.{variant}")
        sent = 0

        def watch(points: list[Point]) -> None:
            nonlocal sent
            self.search.points(run_id, points[sent:])
            for point in points[sent:]:
                if point.key == self.plan.watched:
                    one.report(point.value, point.step)
                    if one.should_prune():
                        raise _Poor
            sent = len(points)

        top = trial.train(folder, self.plan.stage, self.plan.variant, content, watch)
        scores = self.judge.score(top)
        if math.isnan(scores[self.plan.metric]):
            raise DataError(f"{self.plan.metric} does not exist on these validation texts")
        return {name: value for name, value in scores.items() if not math.isnan(value)}

    def _close(self, failures: list[str]) -> SearchResult:
        best = self._best()
        if best is None:
            reason = failures[-1] if failures else "all were stopped early"
            self.search.end(self.search.run_id, "FAILED", {}, {"failure": reason})
            raise ModelError(
                f"tune: no trial of {self.plan.variant} came to an end ({len(failures)} failed); "
                f"the last said: {reason}\nlogs are in {self.folder}; the same command tries again"
            )
        values, position = best.user_attrs["values"], best.user_attrs["position"]
        shown = {f"valid_{name}": value for name, value in best.user_attrs["scores"].items()}
        note = ", ".join(f"`{key}={value}`" for key, value in values.items())
        facts = {
            "best": f"trial {position}: {json.dumps(values)}",
            "mlflow.note.content": f"Best on validation: {self.plan.metric} {best.value:.2f} "
            f"with {note} (trial {position} of {self.plan.size}).",
        }
        self.search.end(self.search.run_id, "FINISHED", shown, facts)
        return SearchResult(self.plan, values, best.value, position, self._all())

    def _all(self) -> list[tuple[int, str, float | None, dict[str, Any]]]:
        last = {t.user_attrs["position"]: t for t in self._trials("COMPLETE", "PRUNED", "FAIL")}
        return [
            (position, t.state.name.lower(), t.value, self._values(t))
            for position, t in sorted(last.items())
        ]


def _distribution(one: Dimension) -> Any:
    from optuna import distributions

    if isinstance(one, Choice):
        return distributions.CategoricalDistribution(one.labels)
    if one.whole:
        low, high = int(one.low), int(one.high)
        return distributions.IntDistribution(low, high, log=one.log, step=int(one.step or 1))
    return distributions.FloatDistribution(one.low, one.high, log=one.log, step=one.step)


def tune(plan: Plan) -> SearchResult:
    """Run the search, or what is left of it; one process at a time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(FOLDER / f"{plan.name}.lock", timeout=0):
            return Tuner(plan).run()
    except Timeout:
        raise ConfigError(f"tune: this search of {plan.variant} runs in another process") from None


def make_experiment(outcome: SearchResult) -> tuple[str, bool]:
    """Run the best values as an ordinary experiment; its name, and whether it is new."""
    marker = FOLDER / outcome.plan.name / "experiment.json"
    there = json.loads(marker.read_text()) if marker.exists() else {}
    if there.get("values") == outcome.best and there.get("name") in experiments():
        return str(there["name"]), False
    name = free_name(outcome.plan)
    command = outcome.plan.command(outcome.best, name)
    done = subprocess.run([sys.executable, "-m", *command])
    if done.returncode != 0:
        raise ModelError(f"tune: the experiment failed; try it by hand: {shlex.join(command)}")
    marker.write_text(json.dumps({"name": name, "values": outcome.best}) + "\n")
    return name, True


def free_name(plan: Plan) -> str:
    """``tune-<variant>-best``, with a number if an earlier search has that name."""
    taken, name = experiments(), f"tune-{plan.variant}-best"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)
