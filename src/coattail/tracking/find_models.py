"""Find models, candidates and their runs in the store, by any name a person has for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from coattail.errors import TrackingError
from coattail.tracking.origin import FOUND_BY
from coattail.tracking.publishing.registered_model import ALIAS
from coattail.tracking.store import KIND, Store

RUN_ID = re.compile(r"^[0-9a-f]{32}$")
ADDRESS = re.compile(r"^(?:models:/)?(?P<name>[^@/]+)(?:@(?P<alias>[^@/]+)|/(?P<version>\d+))?$")


def model_run(store: Store, name: str) -> Any:
    """The run behind ``name``: a registered model, name@alias, name/version, candidate or run id.

    A registered model alone means its champion, or its newest version if it has no champion.
    """
    if RUN_ID.match(name):
        run = store.run(name)
        if run is None:
            raise TrackingError(f"the store {store.shown_uri} has no run {name}")
        return run
    found = ADDRESS.match(name)
    version = _version(store, **found.groupdict()) if found else None
    if version is not None:
        return store.client.get_run(version.run_id)
    quoted = name.replace("'", "")
    same = store.search(f"attributes.run_name = '{quoted}'", f"tags.`{KIND}` = 'candidate'", most=1)
    if not same:
        known = sorted(model.name for model in store.client.search_registered_models())
        there = f"registered are {', '.join(known)}" if known else "no model is registered"
        raise TrackingError(
            f"the store {store.shown_uri} knows no model, candidate or run {name!r}; {there}"
        )
    return same[0]


def _version(store: Store, name: str, alias: str | None, version: str | None) -> Any | None:
    from mlflow.exceptions import MlflowException

    client = store.client
    try:
        if version:
            return client.get_model_version(name, version)
        if alias:
            return client.get_model_version_by_alias(name, alias)
        model = client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        return None
    if ALIAS in model.aliases:
        return client.get_model_version_by_alias(name, ALIAS)
    versions = client.search_model_versions(f"name = '{name}'")
    return max(versions, key=lambda one: int(one.version), default=None)


def versions_of(store: Store, run_id: str) -> list[str]:
    """Registered versions of a run's model: ``coattail-demo/3``, its aliases behind it."""
    names = []
    for found in store.client.search_model_versions(f"run_id = '{run_id}'"):
        aliases = store.client.get_model_version(found.name, found.version).aliases
        names.append(f"{found.name}/{found.version}" + "".join(f" @{alias}" for alias in aliases))
    return sorted(names)


def versions_by_run(store: Store) -> dict[str, list[str]]:
    """The same for all runs at once."""
    aliases: dict[tuple[str, str], list[str]] = {}
    for model in store.client.search_registered_models():
        for alias, version in model.aliases.items():
            aliases.setdefault((model.name, str(version)), []).append(f" @{alias}")
    found: dict[str, list[str]] = {}
    token = None
    while True:
        page = store.client.search_model_versions(max_results=1000, page_token=token)
        for one in page:
            marks = "".join(aliases.get((one.name, str(one.version)), []))
            found.setdefault(one.run_id, []).append(f"{one.name}/{one.version}{marks}")
        token = page.token
        if not token:
            return {run_id: sorted(names) for run_id, names in found.items()}


def candidates_found_by(store: Store, words: Iterable[str]) -> list[Any]:
    """Candidates that one of the words may lead to, each once; whoever asks looks closer.

    Runs from before there was the tag to search in are all of them.
    """
    found = {}
    for word in dict.fromkeys(words):
        like = re.sub("['\"`]", "", word)
        for run in candidate_runs(store, f"tags.`{FOUND_BY}` LIKE '%{like}%'"):
            found[run.info.run_id] = run
    old = candidate_runs(store, f"tags.`{FOUND_BY}` IS NULL")
    found |= {run.info.run_id: run for run in old}
    return sorted(found.values(), key=lambda run: -run.info.start_time)


def candidate_runs(store: Store, *conditions: str) -> list[Any]:
    """Candidates of every experiment in the store that meet the conditions, newest first."""
    found: list[Any] = []
    experiments = [one.experiment_id for one in store.client.search_experiments()]
    token = None
    while True:
        page = store.client.search_runs(
            experiments,
            " and ".join([f"tags.`{KIND}` = 'candidate'", *conditions]),
            order_by=["attributes.start_time DESC"],
            max_results=1000,
            page_token=token,
        )
        found += page
        token = page.token
        if not token:
            return found
