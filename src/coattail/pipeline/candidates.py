"""The candidates that params.yaml defines, what each is made from, and where its files are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coattail.config import suggestion
from coattail.errors import ConfigError
from coattail.files import atomic_file
from coattail.pipeline import registry
from coattail.pipeline.registry import RANKERS
from coattail.pipeline.stage_result import LATE, StageResult


@dataclass(frozen=True)
class Candidate:
    """A ranking that `evaluate` scores, with everything that made it."""

    name: str
    stage: str  # the section that defines it
    family: str  # linear, deep, transfer or ensemble
    tail_methods: tuple[str, ...]
    made_by: tuple[str, ...]  # stage addresses, upstream first: build_plt@flat, train_linear@dismec
    sources: tuple[str, ...] = field(default=())  # candidates it reranks or combines

    @property
    def address(self) -> str:
        return f"{self.stage}@{self.name}"


def stage_addresses(params: dict[str, Any]) -> list[str]:
    """Every stage of the pipeline that leaves a result, as DVC names it."""
    found: list[str] = []
    for one in registry.SECTIONS:
        if one.leaves:
            variants = [f"{one.name}@{name}" for name in params.get(one.name) or {}]
            found += variants if one.named else [one.stage or one.name]
    return found


def stages_before_evaluation(params: dict[str, Any]) -> list[str]:
    """Stages whose results are in data/runs."""
    return [address for address in stage_addresses(params) if address not in LATE]


def candidates(params: dict[str, Any]) -> dict[str, Candidate]:
    """All candidates of params.yaml by name, in the order of the stages."""
    registry.check_installed(params)
    home: dict[str, str] = {}
    for stage in RANKERS:
        for name in params.get(stage) or {}:
            if name in home:
                raise ConfigError(
                    f"params.yaml: {stage}.{name} has the name of {home[name]}.{name}; "
                    "a candidate's name is used once, so rename one of them"
                )
            home[name] = stage
    found: dict[str, Candidate] = {}
    for name in home:
        _resolve(name, home, params, found, ())
    return {name: found[name] for name in home}


def _resolve(
    name: str,
    home: dict[str, str],
    params: dict[str, Any],
    found: dict[str, Candidate],
    path: tuple[str, ...],
) -> Candidate:
    if name in found:
        return found[name]
    if name in path:
        raise ConfigError(f"params.yaml: candidates form a circle: {' -> '.join([*path, name])}")
    stage = home[name]
    section: dict[str, Any] = params[stage][name]
    known = registry.stage(stage)
    sources = tuple(section[key] for key in known.sources if key in section)
    for source in sources:
        if source not in home:
            raise ConfigError(
                f"params.yaml: {stage}.{name} builds on {source!r}, which is no candidate"
                f"{suggestion(source, list(home))}"
            )
    upstream = [_resolve(source, home, params, found, (*path, name)) for source in sources]
    made_by: list[str] = list(registry.MAKES_THE_DATA)
    for one in upstream:
        made_by += [address for address in one.made_by if address not in made_by]
    made_by += [*registry.upstream(section), f"{stage}@{name}"]
    found[name] = Candidate(
        name,
        stage,
        registry.family(stage, section) or upstream[0].family,
        tuple(dict.fromkeys(m for one in upstream for m in one.tail_methods))
        + registry.tail_methods(stage, section),
        tuple(made_by),
        sources,
    )
    return found[name]


def chain_of(name: str, known: dict[str, Candidate]) -> dict[str, Candidate]:
    """A candidate and, through its sources, everything it ranks with."""
    found = {name: known[name]}
    for source in known[name].sources:
        found |= chain_of(source, known)
    return found


def write(path: Path, params: dict[str, Any], made: dict[str, StageResult]) -> None:
    """data/candidates.json: every candidate, and the md5 of what every stage before computed."""
    content = {
        "candidates": {name: asdict(one) for name, one in candidates(params).items()},
        "results": {address: one.md5 for address, one in made.items()},
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def names(path: Path) -> list[str]:
    """Names of the candidates in data/candidates.json, in the order of the stages."""
    return list(json.loads(path.read_text(encoding="utf-8"))["candidates"])
