"""The whole of params.yaml: which section is read as what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from coattail.config import parse, suggestion
from coattail.data.dataset_params import NOTHING, OWN
from coattail.errors import ConfigError
from coattail.evaluation import champion
from coattail.evaluation.scoring import EvaluateParams
from coattail.pipeline import registry
from coattail.pipeline.candidates import candidates
from coattail.pipeline.runner import RunSettings

SECTIONS = tuple(one.name for one in registry.SECTIONS)


def check(content: dict[str, Any], where: str = "params.yaml") -> None:
    """Raise one ConfigError that lists every mistake in ``content``."""
    settings = tuple(RunSettings.model_fields)
    problems: list[str] = []
    for name in content:
        if name not in SECTIONS and name not in settings:
            known = [*SECTIONS, *settings]
            problems.append(f"{where}: unknown section {name!r}{suggestion(name, known)}")
    problems += [
        f"{where}: section {name!r} is missing" for name in SECTIONS if name not in content
    ]
    present = {key: content[key] for key in settings if key in content}
    problems += _complaints(lambda: parse(present, RunSettings, f"{where}: "))
    for name in SECTIONS:
        if name in content:
            problems += _section(name, content[name], where)
    if not problems:
        problems += _references(content, where)
    if problems:
        raise ConfigError("\n".join(problems))


def _section(name: str, value: Any, where: str) -> list[str]:
    if not registry.stage(name).named:
        return _complaints(lambda: registry.parsed(name, value, f"{where}: {name}"))
    if not isinstance(value, dict):
        return [f"{where}: {name}: wanted named variants (or {{}}), got {value!r}"]
    found: list[str] = []
    for variant, params in value.items():
        if not str(variant).replace("-", "").replace("_", "").isalnum():
            found.append(f"{where}: {name}.{variant}: a name has letters, digits, - and _ only")
        place = f"{where}: {name}.{variant}"
        found += _complaints(partial(registry.parsed, name, params, place))
    return found


def _complaints(look: Callable[[], Any]) -> list[str]:
    """Lines of the error that ``look`` raises, if it does."""
    try:
        look()
    except ConfigError as error:
        return str(error).split("\n")
    return []


def _references(content: dict[str, Any], where: str) -> list[str]:
    """Names that point at other sections: trees, augmented sets, candidates."""
    found: list[str] = []
    try:
        made = candidates(content)
    except ConfigError as error:
        return [str(error)]
    found += _complaints(lambda: registry.check_models(content))
    for stage in registry.SECTIONS:
        for name, section in ((content[stage.name] or {}) if stage.wiring else {}).items():
            place = f"{where}: {stage.name}.{name}"
            found += [
                f"{place}: {key} has to be written out, since dvc.yaml reads it"
                for key in stage.wiring
                if key not in section
            ]
    known = {f"{stage}@{name}" for stage in registry.VARIANTS for name in content[stage] or {}}
    found += _taken_in(content, where)
    for candidate in made.values():
        for address in candidate.made_by:
            if "@" in address and address not in known:
                needed, name = address.split("@")
                found.append(
                    f"{where}: {candidate.stage}.{candidate.name} needs {needed}.{name}, "
                    f"which is not there{suggestion(name, list(content[needed] or {}))}"
                )
    scored: EvaluateParams = parse(content["evaluate"], EvaluateParams, f"{where}: evaluate")
    found += [f"{where}: {line}" for line in champion.complaints(scored.best, scored.ks)]
    base = scored.base
    if base is not None and base not in made:
        found.append(f"{where}: evaluate.base: no candidate {base!r}{suggestion(base, list(made))}")
    return found


def _taken_in(content: dict[str, Any], where: str) -> list[str]:
    """The folder in use is the one that is looked at."""
    taken = content["dataset"].get("taken_in")
    if taken is None:
        return [f"{where}: dataset: taken_in has to be written out, since dvc.yaml reads it"]
    wanted = [] if taken == NOTHING else [content["dataset"]["name"]]
    named = list(content["take_in"] or {})
    right = taken == NOTHING or taken == f"{OWN}/{wanted[0]}"
    if right and named == wanted:
        return []
    return [
        f"{where}: dataset.name {content['dataset']['name']!r}, dataset.taken_in {taken!r} and the "
        f"entries {named} of take_in do not belong together; coattail use NAME --data FOLDER "
        "writes all three"
    ]
