"""What a search of `coattail tune` is: checked before the first training, judged on validation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coattail.arrays import TopK
from coattail.config import Params, parse, read_yaml, suggestion
from coattail.data.features import Features
from coattail.errors import ConfigError, DataError
from coattail.evaluation import metrics
from coattail.evaluation.scoring import EvaluateParams
from coattail.experiments import search_space
from coattail.experiments.search_space import Choice, Dimension
from coattail.pipeline import code_digest, model_digest, registry
from coattail.pipeline.candidates import candidates
from coattail.tracking.store import data_hash


@dataclass(frozen=True)
class Plan:
    """One search: what is varied, what counts, how long."""

    variant: str
    stage: str
    family: str
    content: dict[str, Any]  # params.yaml
    params: Params  # of the variant, as they are
    space: list[Dimension]
    metric: str
    trials: int
    seed: int
    prune: bool = True

    @property
    def section(self) -> dict[str, Any]:
        section: dict[str, Any] = self.content[self.stage][self.variant]
        return section

    @cached_property
    def grid(self) -> list[dict[str, Any]] | None:
        return search_space.grid(self.space, self.trials)

    @property
    def size(self) -> int:
        return len(self.grid) if self.grid is not None else self.trials

    @property
    def watched(self) -> str | None:
        """What poor trials are stopped by: the metric itself, where training logs it per epoch.

        Models of ``transfer`` judge an epoch by head labels or by likeness, not by any metric.
        """
        logged = self.prune and self.logs and self.metric in metrics.FOLLOWED
        return f"valid_{self.metric}" if logged else None

    @property
    def logs(self) -> bool:
        """Whether training logs metrics of validation at all."""
        return registry.kind_of(self.stage, self.section).logs_validation

    @property
    def name(self) -> str:
        """Equal searches have equal names; another dataset, code, space or start is another."""
        state = [self.section, [str(one) for one in self.space], self.metric, self.seed]
        state += [self.prune, data_hash(), self.grid is not None, _code(self.stage, self.section)]
        upstream = (one.name for one in registry.SECTIONS if one.named_by[0])
        state += [self.content.get(section) for section in upstream]
        if sources := _sources(
            self.stage, self.space, self.params
        ):  # other rankings are another search
            state += [_digest(Path("data", source, "valid.npz")) for source in sources]
        text = json.dumps(state, sort_keys=True, default=str)
        return f"{self.variant}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"

    def changed(self, values: dict[str, Any]) -> dict[str, Any]:
        """params.yaml with ``values`` in the variant."""
        stage = {**self.content[self.stage], self.variant: {**self.section, **values}}
        return {**self.content, self.stage: stage}

    def command(self, values: dict[str, Any], name: str) -> list[str]:
        """`dvc exp run` that makes the values an experiment, beside the workspace."""
        words = ["dvc", "exp", "run", "--temp", "-n", name]
        for key, value in values.items():
            new = "" if key in self.section else "+"
            shown = value if isinstance(value, str) else json.dumps(value)
            words += ["-S", f"{new}{self.stage}.{self.variant}.{key}={shown}"]
        return words


def plan(
    variant: str, over: Sequence[str], metric: str, trials: int, seed: int = 0, prune: bool = True
) -> Plan:
    """Check everything that can be checked before the first training."""
    content = read_yaml("params.yaml")
    known = candidates(content)
    if variant not in known:
        raise ConfigError(f"tune: no variant {variant!r}{suggestion(variant, list(known))}")
    stage = known[variant].stage
    section = content[stage][variant]
    params: Params = registry.parsed(stage, section, f"params.yaml: {stage}.{variant}")
    if not over:
        raise ConfigError(f"tune: nothing to vary; {search_space.EXAMPLES}\n{_listed(params)}")
    space = search_space.read(over, section, params)
    _check_data(stage, space, params)
    names = Judge(content).names
    if metric not in names:
        raise ConfigError(f"tune: no metric {metric!r}{suggestion(metric, names)}")
    family = known[variant].family
    return Plan(variant, stage, family, content, params, space, metric, trials, seed, prune)


def _code(stage: str, section: dict[str, Any]) -> str:
    """Digests of stage and model: trials of other code cannot be held beside each other."""
    kind = registry.kind_of(stage, section)
    paths = [code_digest.FOLDER / f"{stage}.txt", model_digest.FOLDER / f"{kind.name}.txt"]
    return "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())


def _listed(params: Params) -> str:
    fields = {
        k: v for k, v in params.model_dump(mode="json").items() if k not in search_space.FIXED
    }
    return "params and present values: " + ", ".join(f"{k}={v}" for k, v in fields.items())


def _check_data(stage: str, space: Sequence[Dimension], params: Params) -> None:
    """Data that training reads must be there, for every choice."""
    needed = ["features", *_sources(stage, space, params)]
    for one in registry.SECTIONS:
        key, before = one.named_by
        folder = "" if before else f"{one.folders[0]}/" if key else ""
        needed += [f"{folder}{value}" for value in _values(key, space, params) if key]
    for name in needed:
        if not Path("data", name).exists():
            raise DataError(f"tune: data/{name} is missing; run dvc repro first")


def _sources(stage: str, space: Sequence[Dimension], params: Params) -> list[str]:
    """Folders of the rankings that a variant reads, for every choice."""
    keys = registry.stage(stage).sources
    return [f"ranked/{name}" for key in keys for name in _values(key, space, params)]


def _values(key: str, space: Sequence[Dimension], params: Params) -> tuple[Any, ...]:
    """What a param may be in a search: the choices, or what it is; nothing if there is none."""
    chosen = {one.name: one.values for one in space if isinstance(one, Choice)}
    return chosen.get(key, (getattr(params, key),)) if hasattr(params, key) else ()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Judge:
    """Metrics of a ranking on the validation texts."""

    def __init__(self, content: dict[str, Any]) -> None:
        features = Features("data/features")
        section = content.get("evaluate") or {}
        self.params: EvaluateParams = parse(section, EvaluateParams, "params.yaml: evaluate")
        self.Y = features.Y("valid")
        self.weights, self.bands = features.train_inverse_propensity, features.bands

    def score(self, top: TopK) -> dict[str, float]:
        top = top.validate(self.Y.shape[1])
        return metrics.score(top, self.Y, self.weights, self.bands, self.params.ks)

    @cached_property
    def names(self) -> list[str]:
        """All metrics there are, from a ranking that says label 0 to everyone."""
        n = self.Y.shape[0]
        first = TopK(np.zeros((n, 1), np.int32), np.zeros((n, 1), np.float32), "margin")
        return list(self.score(first))
