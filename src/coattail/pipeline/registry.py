"""What the pipeline knows of its stages and models: the only place that tells them apart by name.

A stage is a record here, a model one in the ``*_kinds`` of its room or in a plugin. Nothing of them
is imported before it is used. Who wants to know something of a stage or model asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coattail.config import parse
from coattail.errors import ConfigError
from coattail.models import find_kind, kinds
from coattail.models.deep.deep_kinds import KINDS as NETWORKS
from coattail.models.deep.transfer.transfer_kinds import KINDS as TRANSFERRED
from coattail.models.kinds import ModelKind, imported
from coattail.models.linear.linear_kinds import KINDS as LINEAR


@dataclass(frozen=True)
class StageKind:
    """A section of params.yaml, which is a stage with one exception (``vectors``).

    Attributes
    ----------
    name : the section.
    params : ``module:Name`` of its settings; of models, of all that coattail has itself.
    base : ``module:Class`` that the settings of any of its models have as a base.
    stage : the stage that the section belongs to, if it has another name.
    named : whether it has named variants, each of which runs on its own.
    leaves : whether it leaves a result in data/runs or beside it.
    makes_data : whether all candidates share it.
    folders : folders of data/ with one entry per variant.
    curves : whether each variant leaves a curve in plots/training.
    kinds : models that it trains; a stage with one says so without ``model:``.
    family : how the leaderboard calls its candidates; "" is the family of the first source.
    sources : params that name other candidates.
    wiring : params with a default that must be written out all the same: DVC makes paths of them.
    named_by : the param that names one of its variants, and what stands before the name there.
    tail_methods : what it does for rare labels, in one word each.
    load : ``module:function``, folder -> trained model.
    opens_models : whether it runs the code of every candidate's model.
    """

    name: str
    params: str
    base: str = ""
    stage: str = ""
    named: bool = False
    leaves: bool = True
    makes_data: bool = False
    folders: tuple[str, ...] = ()
    curves: bool = False
    kinds: tuple[ModelKind, ...] = ()
    family: str = ""
    sources: tuple[str, ...] = ()
    wiring: tuple[str, ...] = ()
    named_by: tuple[str, str] = ("", "")
    tail_methods: tuple[str, ...] = ()
    load: str = ""
    opens_models: bool = False

    @property
    def ranks(self) -> bool:
        """Whether its variants are candidates: each writes data/ranked/<variant>."""
        return bool(self.kinds)

    @property
    def chooses(self) -> bool:
        """Whether its variants say which model they are, so that plugins can bring more."""
        return bool(self.base)


OF_MODELS = ("models", "ranked")
DATASETS = "coattail.data.dataset_params"
RANKING = "coattail.models.ranking"
DEEP = "coattail.models.deep"

SECTIONS = (
    StageKind("dataset", f"{DATASETS}:DatasetParams", stage="download", makes_data=True),
    StageKind("take_in", f"{DATASETS}:TakeInParams", named=True, leaves=False),
    StageKind("plugins", "coattail.pipeline.model_digest:PluginParams", named=True, leaves=False),
    StageKind("vectors", f"{DATASETS}:VectorsParams", leaves=False),
    StageKind("preprocess", "coattail.data.corpus:PreprocessParams", makes_data=True),
    StageKind(
        "build_plt",
        "coattail.labels.tree_params:TreeParams",
        named=True,
        folders=("plt",),
        named_by=("tree", ""),
    ),
    StageKind(
        "augment_tails",
        "coattail.data.augment:AugmentParams",
        named=True,
        folders=("augmented",),
        named_by=("train", "augmented/"),
        tail_methods=("taug",),
    ),
    StageKind(
        "train_linear",
        "coattail.models.linear.linear_params:LinearParams",
        base="coattail.models.linear.linear_params:WiredParams",
        named=True,
        folders=OF_MODELS,
        kinds=LINEAR,
        family="linear",
        wiring=("train", "tree"),
        load="coattail.models.linear.linear_models:load",
    ),
    StageKind(
        "train_deep",
        f"{DEEP}.deep_params:DeepParams",
        base=f"{DEEP}.deep_params:NetworkParams",
        named=True,
        folders=OF_MODELS,
        curves=True,
        kinds=NETWORKS,
        family="deep",
        wiring=("tree",),
        load=f"{DEEP}.deep_models:load",
    ),
    StageKind(
        "transfer",
        f"{DEEP}.transfer.transfer_params:TransferParams",
        base=f"{DEEP}.transfer.transfer_params:EncoderParams",
        named=True,
        folders=OF_MODELS,
        curves=True,
        kinds=TRANSFERRED,
        family="transfer",
        load=f"{DEEP}.transfer.transfer_models:load",
    ),
    StageKind(
        "ensemble",
        f"{RANKING}.ensemble:EnsembleParams",
        named=True,
        folders=OF_MODELS,
        kinds=(
            ModelKind(
                "ensemble",
                "ensemble",
                "rankings",
                f"{RANKING}.ensemble:EnsembleParams",
                f"{RANKING}.ensemble:Ensemble",
            ),
        ),
        family="ensemble",
        sources=("first", "second"),
        load=f"{RANKING}.ensemble:Ensemble.load",
    ),
    StageKind(
        "rerank",
        f"{RANKING}.trade_off:RerankParams",
        named=True,
        folders=OF_MODELS,
        kinds=(
            ModelKind(
                "rerank",
                "rerank",
                "rankings and texts",
                f"{RANKING}.trade_off:RerankParams",
                f"{RANKING}.rerank:Reranker",
                tail_methods=("rerank",),
            ),
        ),
        sources=("base",),
        load=f"{RANKING}.rerank:Reranker.load",
    ),
    StageKind("evaluate", "coattail.evaluation.scoring:EvaluateParams"),
    StageKind(
        "report",
        "coattail.pipeline.result_params:ReportParams",
        leaves=False,
        opens_models=True,
    ),
    StageKind(
        "publish",
        "coattail.pipeline.result_params:PublishParams",
        leaves=False,
        opens_models=True,
    ),
)

VARIANTS = tuple(one.name for one in SECTIONS if one.named and one.leaves)
"""Stages that run once per named section of params.yaml and leave a result."""
RANKERS = tuple(one.name for one in SECTIONS if one.ranks)
"""Stages whose variants are candidates."""
CHOOSING = tuple(one.name for one in SECTIONS if one.chooses)
"""Stages whose variants say which model they are."""
OPENING = tuple(one.name for one in SECTIONS if one.opens_models)
"""Stages that run the code of every candidate's model."""
MAKES_THE_DATA = tuple(one.stage or one.name for one in SECTIONS if one.makes_data)
"""Stages that all candidates share."""
TAIL_PARAMS = ("weighting", "mix")
"""Params whose value, if it is not none, is a method for the tail."""


def stage(name: str) -> StageKind:
    """What is known of a section of params.yaml."""
    return next(one for one in SECTIONS if one.name == name)


def built_in() -> list[ModelKind]:
    """All kinds of models that coattail has itself."""
    return [kind for one in SECTIONS for kind in one.kinds]


def explaining() -> list[str]:
    """Modules that explain our models to the report."""
    return sorted({module for kind in built_in() for module in kind.explains})


def kind(stage_name: str, model: str | None) -> ModelKind:
    """A kind of model of a stage: coattail's own or a plugin's."""
    found = stage(stage_name)
    if not found.chooses:
        return found.kinds[0]
    named = find_kind.named(str(model), found.kinds, stage_name)
    readable = {one.reads for one in found.kinds}
    if named.reads not in readable:
        raise ConfigError(
            f"the plugin {named.package} is broken: its {named.name} reads {named.reads!r}; a "
            f"model of {stage_name} reads {' or '.join(sorted(readable))}; ask its author"
        )
    return named


def kind_of(stage_name: str, section: Mapping[str, Any]) -> ModelKind:
    """The kind of model of a candidate, as params.yaml has it."""
    return kind(stage_name, section.get("model"))


def kind_in(stage_name: str, folder: Path) -> ModelKind:
    """The kind of the trained model in a folder (of the first part, where it has parts)."""
    if not stage(stage_name).chooses:
        return kind(stage_name, None)
    name, own = find_kind.name_in(folder), {one.name for one in stage(stage_name).kinds}
    parts = sorted(folder.glob("*/params.json")) if name not in own else []
    return kind(stage_name, find_kind.name_in(parts[0].parent) if parts else name)


def load(stage_name: str, folder: Path) -> Any:
    """The trained model in a folder."""
    module, _, path = stage(stage_name).load.partition(":")
    owner, _, method = path.rpartition(".")
    if owner:
        return getattr(imported(f"{module}:{owner}", f"the model of {stage_name}"), method)(folder)
    return imported(f"{module}:{method}", f"the model of {stage_name}")(folder)


# --- settings ------------------------------------------------------------------------------------


def params_type(name: str, value: Any = None) -> Any:
    """What a section (or a variant of it) is read as; a plugin's settings join where it is used."""
    found = stage(name)
    own = imported(found.params, f"the params of {name}")
    model = value.get("model") if found.chooses and isinstance(value, dict) else None
    if not isinstance(model, str) or model in {one.name for one in found.kinds}:
        return own
    brought = kind(name, model)
    check_plugin(brought)
    return kinds.union([*found.kinds, brought])


def parsed(name: str, value: Any, where: str) -> Any:
    """The settings of a section or variant, or one error that lists all mistakes."""
    try:
        wanted = params_type(name, value)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return parse(value, wanted, where)


def check_plugin(brought: ModelKind) -> None:
    """See that the classes of a plugin's kind fit its stage."""
    from coattail.models import plugins

    plugins.check(brought, imported(stage(brought.stage).base, f"the base of {brought.stage}"))


def used(params: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Stage and model of every candidate that says which model it is, as params.yaml has it."""
    return {
        f"{name}.{variant}": (name, str(section.get("model")))
        for name in CHOOSING
        for variant, section in (params.get(name) or {}).items()
        if isinstance(section, dict)
    }


def check_models(params: Mapping[str, Any]) -> None:
    """Refuse models that nobody knows, and those of plugins that ``plugins`` does not name."""
    declared = params.get("plugins") or {}
    wrong: list[str] = []
    own = {one.name for one in built_in()}
    for variant, (name, model) in used(params).items():
        if model in own and model in {one.name for one in stage(name).kinds}:
            continue
        if model in declared:
            continue  # stage `plugins` looks at it
        try:
            found = kind(name, model)
        except ConfigError as error:
            wrong.append(f"params.yaml: {variant}: {error}")
        else:
            entry = f"plugins: {{{model}: {{package: {found.package}}}}}"
            wrong.append(
                f"params.yaml: {variant}: {model!r} is a model of the plugin {found.package}; "
                f"write {entry}, so that DVC sees its code"
            )
    wrong += [
        f"params.yaml: plugins.{name}: {name!r} is a model of coattail itself; the plugin's author "
        "has to give his another name"
        for name in declared
        if name in own
    ]
    if wrong:
        raise ConfigError("\n".join(wrong))


def check_installed(params: Mapping[str, Any]) -> None:
    """Refuse a project with candidates of a plugin that is not installed here."""
    declared = params.get("plugins") or {}
    if not declared:
        return
    from coattail.models import plugins

    for _, model in used(params).values():
        entry = declared.get(model)
        if isinstance(entry, dict) and plugins.kind(model) is None:
            raise plugins.missing(model, str(entry.get("package")))


# --- candidates ----------------------------------------------------------------------------------


def upstream(section: Mapping[str, Any]) -> list[str]:
    """Addresses of the variants that a candidate names: its tree, its training set."""
    found = []
    for one in SECTIONS:
        key, before = one.named_by
        value = str(section.get(key, "")) if key else ""
        if value and value.startswith(before):
            found.append(f"{one.name}@{value.removeprefix(before)}")
    return found


def tail_methods(stage_name: str, section: Mapping[str, Any]) -> tuple[str, ...]:
    """What a candidate itself does for rare labels."""
    weighting, mix = (
        () if section.get(key, "none") == "none" else (str(section[key]),) for key in TAIL_PARAMS
    )
    made = [stage(address.partition("@")[0]).tail_methods for address in upstream(section)]
    own = kind_of(stage_name, section).tail_methods
    return (*weighting, *(one for methods in made for one in methods), *mix, *own)


def family(stage_name: str, section: Mapping[str, Any]) -> str:
    """How the leaderboard calls a candidate; "" is the family of its first source."""
    return kind_of(stage_name, section).family or stage(stage_name).family


def growing() -> list[str]:
    """Models that can take a label without being trained again."""
    return [one.name for one in built_in() if one.add_label]
