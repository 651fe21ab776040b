"""The params.yaml of a row, and by what two rows differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from coattail.config import PARAMS, parse_yaml, read_yaml
from coattail.errors import ConfigError
from coattail.pipeline import overlay, registry, schema
from coattail.pipeline.candidates import candidates
from coattail.pipeline.pointing import Own, point
from coattail.pipeline.registry import VARIANTS
from coattail.pipeline.runner import RunSettings
from coattail.pipeline.schema import SECTIONS
from coattail.pipeline.stage_result import flatten
from coattail.studies.study_params import StudyParams

Content = dict[str, Any]

WIRED = ("train", "tree", "base", "first", "second")
"""Keys that name another variant: that one is compared itself."""
KINDS = ("model", "method", "format")
"""Keys that decide which others there are."""
READ = (
    *("format", "file", "files", "propensity", "demo"),
    *("label_separator", "text_column", "label_column"),
)
"""What a dataset or vectors say of their content; the rest is where it lies, or for people."""
APART = 100  # seeds of siblings that have seeds of their own stay different


@dataclass(frozen=True)
class Sources:
    """The dataset that rows are run on, and where its files are."""

    dataset: str
    folders: Mapping[str, str] = field(default_factory=dict)  # entry -> folder or mirror

    def of(self, entry: str) -> str | None:
        return self.folders.get(entry)


def params_of(study: StudyParams, row: str, seed: int, sources: Sources) -> Content:
    """A whole params.yaml that holds what ranks the row, and nothing else."""
    content = _base(sources)
    for name in study.use:
        for section, values in _read(overlay.find(name)).items():
            if section == "dataset":
                raise ConfigError(f"use: {name} is a dataset; name it in `dataset`")
            _take(content, section, values)
    for part in (study.params, study.rows[row].params):
        for section, values in part.items():
            _change(content, section, values)
    candidate = study.rows[row].candidate
    made = candidates(content)
    if candidate not in made:
        raise ConfigError(f"rows.{row}: no candidate {candidate!r}; there is {sorted(made)}")
    for stage in VARIANTS:
        kept = {
            n: v for n, v in content[stage].items() if f"{stage}@{n}" in made[candidate].made_by
        }
        content[stage] = {n: _seeded(stage, n, v, seed) for n, v in kept.items()}
    schema.check(content, f"row {row}")
    return content


def _base(sources: Sources) -> Content:
    """No variants, defaults everywhere, the dataset, and how work runs here."""
    content: Content = {name: {} for name in SECTIONS}
    content["vectors"] = {"name": None}
    content["build_plt"] = {"flat": {"method": "flat"}}  # presets count on it
    written = _read(PARAMS)
    content |= {key: written[key] for key in RunSettings.model_fields if key in written}
    path = overlay.find(sources.dataset)
    entry = _read(path)
    if "dataset" not in entry:
        raise ConfigError(f"{sources.dataset} is no dataset; coattail data list shows all")
    content["dataset"] = deepcopy(entry["dataset"])
    content["take_in"] = {}
    folder = sources.of(sources.dataset)
    if folder is not None:
        known = overlay.known_datasets()
        pointed = point(written, entry, folder, Own(), known)
        for section, values in pointed.changes.items():
            _merge(content[section], values)
        content["take_in"] = parse_yaml(pointed.take_in, PARAMS)["take_in"]
    return content


def _read(path: Path) -> Content:
    """A YAML file, parsed once: every row at every seed begins with the same ones."""
    if not path.exists():
        return read_yaml(path)  # which says what to do
    return deepcopy(_parsed(path, path.read_text(encoding="utf-8")))


@cache
def _parsed(path: Path, text: str) -> Content:
    return parse_yaml(text, path)


def _take(content: Content, section: str, values: Any) -> None:
    """A section of a preset: variants replace those of the same name, null takes one out."""
    if section not in VARIANTS:
        _change(content, section, values)
        return
    for name, variant in (values or {}).items():
        if variant is None:
            content[section].pop(name, None)
        else:
            content[section][name] = deepcopy(variant)


def _change(content: Content, section: str, values: Any) -> None:
    """Values of a study: they change keys of what is there, or add."""
    if section not in SECTIONS:
        raise ConfigError(f"params: no section {section!r}")
    if not isinstance(values, dict):
        content[section] = deepcopy(values)
        return
    _merge(content[section], values)


def _merge(there: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(there.get(key), dict):
            _merge(there[key], value)
        else:
            there[key] = deepcopy(value)


def _seeded(stage: str, name: str, section: Content, seed: int) -> Content:
    if not hasattr(registry.parsed(stage, section, f"{stage}.{name}"), "seed"):
        return section
    return section | {"seed": seed + APART * section.get("seed", 0)}


def digest(content: Content) -> str:
    """What a row computes, wherever its files are and on whichever processor."""
    kept = {name: content[name] for name in ("preprocess", *VARIANTS)}
    for section in ("dataset", "vectors"):
        kept[section] = {key: v for key, v in content[section].items() if key in READ}
    text = json.dumps(kept, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row_digest(study: StudyParams, row: str, sources: Sources) -> str:
    """Of a row at all its seeds."""
    each = [digest(params_of(study, row, seed, sources)) for seed in study.seeds]
    return hashlib.sha256(" ".join(each).encode()).hexdigest()[:16]


def differences(one: Content, candidate: str, other: Content, second: str) -> set[str]:
    """By what two rows differ: stage.key, or a stage that only one of them has."""
    mine, theirs = _described(one, candidate), _described(other, second)
    found = set(mine) ^ set(theirs)
    for stage in set(mine) & set(theirs):
        keys = mine[stage].keys() | theirs[stage].keys()
        apart = {key for key in keys if mine[stage].get(key) != theirs[stage].get(key)}
        kind = apart & set(KINDS)  # another model has other keys, which says nothing more
        found |= {f"{stage}.{key}" for key in kind or apart}
    return found


def _described(content: Content, candidate: str) -> dict[str, dict[str, Any]]:
    """Every stage behind a candidate with all its values, defaults included."""
    found: dict[str, dict[str, Any]] = {}
    for section in ("dataset", "vectors", "preprocess"):
        found[section] = _values(section, content[section], section)
    for address in candidates(content)[candidate].made_by:
        stage, _, name = address.partition("@")
        if name:
            number = sum(key.split("#")[0] == stage for key in found)
            key = f"{stage}#{number + 1}" if number else stage
            found[key] = _values(stage, content[stage][name], address)
    return found


def _values(section: str, values: Content, where: str) -> dict[str, Any]:
    params: Any = registry.parsed(section, values, where)
    plain = dict(flatten(params.model_dump(mode="json")))
    away = (*WIRED, "source", "taken_in")
    return {key: value for key, value in plain.items() if key not in away}


def check(study: StudyParams, sources: Sources | None = None) -> dict[str, Content]:
    """Params of all rows at the first seed; refuses what cannot run or differs otherwise."""
    sources = sources or Sources(study.dataset)
    rows = {name: params_of(study, name, study.seeds[0], sources) for name in study.rows}
    wrong: list[str] = []
    for name, row in study.rows.items():
        if row.against is None:
            continue
        control = study.rows[row.against]
        found = differences(rows[name], row.candidate, rows[row.against], control.candidate)
        if found != set(row.differs):
            wrong.append(
                f"rows.{name}.differs: from {row.against} it differs in {sorted(found)}, "
                f"not in {sorted(row.differs)}"
            )
    if wrong:
        raise ConfigError("\n".join(wrong))
    return rows
