"""The whole of params.yaml: which section is read as what."""

from __future__ import annotations

from typing import Any

from coattail.config import parse, suggestion
from coattail.data.augment import AugmentParams
from coattail.data.corpus import PreprocessParams
from coattail.data.dataset_params import NOTHING, OWN, DatasetParams, TakeInParams, VectorsParams
from coattail.errors import ConfigError
from coattail.evaluation import champion
from coattail.evaluation.scoring import EvaluateParams
from coattail.labels.tree_params import TreeParams
from coattail.models.deep.deep_params import DeepParams
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.models.linear.linear_params import LinearParams
from coattail.models.ranking.ensemble import EnsembleParams
from coattail.models.ranking.trade_off import RerankParams
from coattail.pipeline.candidates import VARIANTS, candidates
from coattail.pipeline.result_params import PublishParams, ReportParams
from coattail.pipeline.runner import RunSettings

SECTIONS: dict[str, Any] = {
    "dataset": DatasetParams,
    "take_in": TakeInParams,
    "vectors": VectorsParams,
    "preprocess": PreprocessParams,
    "build_plt": TreeParams,
    "augment_tails": AugmentParams,
    "train_linear": LinearParams,
    "train_deep": DeepParams,
    "transfer": TransferParams,
    "ensemble": EnsembleParams,
    "rerank": RerankParams,
    "evaluate": EvaluateParams,
    "report": ReportParams,
    "publish": PublishParams,
}

WIRING = {"train_linear": ("train", "tree"), "train_deep": ("tree",)}
"""Keys with a default that must stand in params.yaml all the same: DVC makes paths of them."""


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
    problems += _problems(present, RunSettings, f"{where}: ")
    for name, model in SECTIONS.items():
        if name in content:
            problems += _section(name, content[name], model, where)
    if not problems:
        problems += _references(content, where)
    if problems:
        raise ConfigError("\n".join(problems))


def _section(name: str, value: Any, model: Any, where: str) -> list[str]:
    if name not in (*VARIANTS, "take_in"):
        return _problems(value, model, f"{where}: {name}")
    if not isinstance(value, dict):
        return [f"{where}: {name}: wanted named variants (or {{}}), got {value!r}"]
    found: list[str] = []
    for variant, params in value.items():
        if not str(variant).replace("-", "").replace("_", "").isalnum():
            found.append(f"{where}: {name}.{variant}: a name has letters, digits, - and _ only")
        found += _problems(params, model, f"{where}: {name}.{variant}")
    return found


def _problems(value: Any, model: Any, where: str) -> list[str]:
    try:
        parse(value, model, where)
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
    for stage, keys in WIRING.items():
        for name, section in (content[stage] or {}).items():
            found += [
                f"{where}: {stage}.{name}: {key} has to be written out, since dvc.yaml reads it"
                for key in keys
                if key not in section
            ]
    known = {f"{stage}@{name}" for stage in VARIANTS for name in content[stage] or {}}
    found += _taken_in(content, where)
    for candidate in made.values():
        for address in candidate.made_by:
            if "@" in address and address not in known:
                stage, name = address.split("@")
                found.append(
                    f"{where}: {candidate.stage}.{candidate.name} needs {stage}.{name}, "
                    f"which is not there{suggestion(name, list(content[stage] or {}))}"
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
