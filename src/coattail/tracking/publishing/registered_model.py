"""The registered model: one version per distinct model, and which of them is the champion."""

from __future__ import annotations

import logging
from typing import Any

from coattail.tracking.publishing.candidate_runs import AUTHOR, models_of
from coattail.tracking.publishing.shown import Shown
from coattail.tracking.store import Store, insist

log = logging.getLogger("coattail")

ALIAS = "champion"
MODEL = "coattail.model"
"""Tag of a version: md5 of what its stages computed."""
PARENT = "coattail.parent"
"""Tag of a version: the execution that registered it."""
RULE = ("data.md5", "chosen_by")
"""Tags of a version: only where they are equal do two figures on validation compare."""
VALID = "valid"
"""Tag of a version: its figure on validation, by which it was chosen."""


def register(store: Store, shown: Shown, run_id: str, parent: str, tags: dict[str, str]) -> str:
    """The version of the champion's model, made if nobody has registered it; empty: no model.

    A model that is registered already gets no second version, and its alias stays where it is.
    """
    models = models_of(store, run_id) if shown.log_model else []
    if not models:
        return ""
    name, digest = f"coattail-{shown.dataset}", shown.model_of(shown.best)
    known = store.client.search_model_versions(f"name = '{name}' and tags.`{MODEL}` = '{digest}'")
    if known:
        first = min(known, key=lambda one: int(one.version))
        if first.tags.get(PARENT) == parent:  # an interrupted publish came as far as this
            _choose(store, name, first)
        return str(first.version)
    _make_model(store, name, shown)
    about = {"candidate": shown.best, MODEL: digest, PARENT: parent} | shown.facts
    about |= {AUTHOR: tags["user"]} | {key: tags[key] for key in ("data.md5",) if key in tags}
    about |= {} if shown.best_valid is None else {VALID: f"{shown.best_valid:.6f}"}
    version = store.client.create_model_version(
        name,
        f"models:/{models[0]}",
        run_id,
        tags=about,
        description=chosen(shown),
        model_id=models[0],
    )
    _choose(store, name, version)
    return str(version.version)


def chosen(shown: Shown) -> str:
    """The champion and why, as Markdown."""
    lines = [f"Champion: {shown.reason}"] if shown.reason else []
    lines += [f"**{warning}**" for warning in shown.warnings]
    return "".join(f"{line}\n\n" for line in lines)


def _make_model(store: Store, name: str, shown: Shown) -> None:
    from mlflow.exceptions import MlflowException

    try:
        store.client.create_registered_model(name, description=_how_to_load(name, shown))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _how_to_load(name: str, shown: Shown) -> str:
    return (
        f"Tags texts with labels of {shown.dataset}. Versions are the champions of runs of the "
        f"pipeline, chosen on validation. A new version becomes `{ALIAS}` unless the one that is "
        "has a better figure on validation, by the same rule on the same data.\n\n"
        f"    mlflow.pyfunc.load_model('models:/{name}@{ALIAS}')\n"
    )


def _choose(store: Store, model: str, version: Any) -> None:
    """Give a version the alias, unless the present champion is better by what both are known by."""
    present = _champion(store, model)
    if present is not None and _figure(present, version) > _figure(version, present):
        log.info(
            "publish: %s/%s stays the champion: %s on validation, against %s of version %s",
            *(model, present.version, present.tags[VALID], version.tags[VALID], version.version),
        )
        return
    insist(lambda: store.client.set_registered_model_alias(model, ALIAS, version.version))


def _champion(store: Store, model: str) -> Any | None:
    aliases = store.client.get_registered_model(model).aliases
    return store.client.get_model_version(model, aliases[ALIAS]) if ALIAS in aliases else None


def _figure(one: Any, other: Any) -> float:
    """A version's figure on validation, where the other has one that compares with it."""
    same = all(one.tags.get(key) == other.tags.get(key) for key in RULE)
    return float(one.tags[VALID]) if same and VALID in one.tags and VALID in other.tags else 0.0
