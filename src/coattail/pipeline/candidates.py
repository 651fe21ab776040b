"""The candidates that params.yaml defines, what each is made from, and where its files are."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coattail.config import suggestion
from coattail.errors import ConfigError

log = logging.getLogger("coattail")

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
    """Every stage of the pipeline that leaves a run record, as DVC names it."""
    plain = ["download", "preprocess"]
    variants = [f"{stage}@{name}" for stage in VARIANTS for name in params.get(stage) or {}]
    return [*plain, *variants, "evaluate"]


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


def remove_strays(
    params: dict[str, Any], *folders: str, data: Path = Path("data"), dry_run: bool = False
) -> list[Path]:
    """Delete results in ``folders`` of variants that params.yaml no longer has; return the paths.

    Stages that read a whole folder (all rankings, all run records) would otherwise depend on what
    happened to be left there. DVC has the files in its cache, so nothing is lost.
    """
    made = {"plt": ("build_plt",), "augmented": ("augment_tails",)}
    strays: list[Path] = []
    for folder in folders:
        if folder == "runs":
            names = {f"{address}.json" for address in stage_addresses(params)}
        else:
            stages = made.get(folder, RANKERS)
            names = {name for stage in stages for name in params.get(stage) or {}}
        there = [path for path in sorted((data / folder).glob("*")) if path.name[0] != "."]
        strays += [path for path in there if path.name not in names]
    for path in strays:
        if not dry_run:
            log.info("removed %s: params.yaml has no such variant", path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return strays


FOLDERS = ("plt", "augmented", "models", "ranked", "runs")
"""Folders of data/ with one entry per variant."""


def chain_of(name: str, known: dict[str, Candidate]) -> dict[str, Candidate]:
    """A candidate and, through its sources, everything it ranks with."""
    found = {name: known[name]}
    for source in known[name].sources:
        found |= chain_of(source, known)
    return found
