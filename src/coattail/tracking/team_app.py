"""MLflow's server with passwords, and three rules that MLflow's own rights cannot say.

    python -m coattail.tracking.team_app server --app-name basic-auth ...   # as `mlflow server`

A writer deletes runs of their own and nobody else's; nobody but an admin owns an experiment or a
model, whoever made it; a reader makes none. MLflow grants runs only all together and makes whoever
creates an experiment its owner, so that an accident decides who may delete everything in it.

This file runs inside the server. It replaces entries in MLflow's tables of rules, so a new MLflow
has to be looked at: tests/team/test_server.py asks a real server for each role and each verb.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

OWNER = "coattail.owner"
"""Tag of a run: the account that made it. Only the server writes it."""
HERE = "coattail.tracking.team_app:create_app"


def create_app() -> Any:
    """MLflow's application, as its `--app-name basic-auth` makes it, with our rules."""
    from mlflow.server import auth

    rules, after = auth.BEFORE_REQUEST_VALIDATORS, auth.AFTER_REQUEST_HANDLERS
    for key, rule in list(rules.items()):
        if rule is auth.validate_can_delete_run:
            rules[key] = _may_delete
        elif rule in (auth.validate_can_update_run, auth.validate_can_log_batch):
            rules[key] = _leaves_the_owner(rule)
        elif rule is auth.validate_can_create_run:
            after[key] = _note_owner
        elif rule is auth.validate_can_create_experiment:
            rules[key] = _writes_all("experiment")
        elif rule is auth.validate_can_create_registered_model:
            rules[key] = _writes_all("registered_model")
    grants = (
        auth.set_can_manage_experiment_permission,
        auth.set_can_manage_registered_model_permission,
    )
    for key in [key for key, handler in after.items() if handler in grants]:
        del after[key]
    return auth.create_app()


def _may_delete() -> bool:
    """Delete or restore a run: who made it, and who may delete everything."""
    from mlflow.server import auth
    from mlflow.server.handlers import _get_tracking_store

    if auth.validate_can_delete_run():
        return True
    if not auth.validate_can_update_run():
        return False
    run = _get_tracking_store().get_run(_asked().get("run_id", ""))
    return bool(run.data.tags.get(OWNER) == _user())


def _leaves_the_owner(rule: Callable[[], bool]) -> Callable[[], bool]:
    """A rule about changing a run, which nobody makes their own by changing its owner."""

    def check() -> bool:
        asked = _asked()
        keys = {asked.get("key"), *(tag.get("key") for tag in asked.get("tags") or [])}
        return OWNER not in keys and rule()

    return check


def _note_owner(response: Any) -> None:
    """Write down who made a run, after it was made."""
    from mlflow.entities import RunTag
    from mlflow.server.handlers import _get_tracking_store

    run_id = response.json["run"]["info"]["run_id"]
    _get_tracking_store().set_tag(run_id, RunTag(OWNER, _user()))


def _writes_all(resource: str) -> Callable[[], bool]:
    """Make a new experiment or model: who may write to all of them."""

    def check() -> bool:
        from mlflow.server import auth

        needed = auth.Requirement(resource, "*", "update")
        return bool(auth.authorize(_user(), (resource, "*"), [needed]))

    return check


def _asked() -> dict[str, Any]:
    from flask import request

    content = request.get_json(silent=True, force=True)
    return content if isinstance(content, dict) else {}


def _user() -> str:
    from mlflow.server import auth

    return str(auth.authenticate_request().username)


def main() -> None:
    """MLflow's command line; its server takes our application for its own."""
    import mlflow.server
    from mlflow.cli import cli

    mlflow.server._find_app = lambda _name: HERE
    sys.argv[0] = "mlflow"
    cli()


if __name__ == "__main__":
    main()
