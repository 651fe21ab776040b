"""The candidates that params.yaml defines, what each is made from, and where its files are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coattail.config import suggestion
from coattail.errors import ConfigError
from coattail.files import atomic_file
from coattail.pipeline.stage_result import StageResult

RANKERS = ("train_linear", "train_deep", "transfer", "ensemble", "rerank")
"""Stages whose variants are candidates: each writes data/ranked/<variant>."""

VARIANTS = ("build_plt", "augment_tails", *RANKERS)
"""Stages that run once per named section of params.yaml."""


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
    plain = ["download", "preprocess"]
    variants = [f"{stage}@{name}" for stage in VARIANTS for name in params.get(stage) or {}]
    return [*plain, *variants, "evaluate"]


def stages_before_evaluation(params: dict[str, Any]) -> list[str]:
    """Stages whose results are in data/runs."""
    return [address for address in stage_addresses(params) if address != "evaluate"]


def candidates(params: dict[str, Any]) -> dict[str, Candidate]:
    """All candidates of params.yaml by name, in the order of the stages."""
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
    sources = tuple(section[key] for key in ("base", "first", "second") if key in section)
    for source in sources:
        if source not in home:
            raise ConfigError(
                f"params.yaml: {stage}.{name} builds on {source!r}, which is no candidate"
                f"{suggestion(source, list(home))}"
            )
    upstream = [_resolve(source, home, params, found, (*path, name)) for source in sources]
    made_by: list[str] = ["download", "preprocess"]
    for one in upstream:
        made_by += [address for address in one.made_by if address not in made_by]
    if "tree" in section:
        made_by.append(f"build_plt@{section['tree']}")
    train = str(section.get("train", ""))
    if train.startswith("augmented/"):
        made_by.append(f"augment_tails@{train.removeprefix('augmented/')}")
    made_by.append(f"{stage}@{name}")
    found[name] = Candidate(
        name,
        stage,
        _family(stage, upstream),
        tuple(dict.fromkeys(m for one in upstream for m in one.tail_methods))
        + _tail_methods(stage, section, train),
        tuple(made_by),
        sources,
    )
    return found[name]


def _family(stage: str, upstream: list[Candidate]) -> str:
    if stage == "rerank":
        return upstream[0].family
    return {"train_linear": "linear", "train_deep": "deep"}.get(stage, stage)


def _tail_methods(stage: str, section: dict[str, Any], train: str) -> tuple[str, ...]:
    methods = []
    if section.get("weighting", "none") != "none":
        methods.append(section["weighting"])
    if train.startswith("augmented/"):
        methods.append("taug")
    if section.get("mix", "none") != "none":
        methods.append(section["mix"])
    if stage == "transfer":
        methods.append(section.get("model", "httn"))
    if stage == "rerank":
        methods.append("rerank")
    return tuple(methods)


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
