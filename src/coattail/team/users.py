"""Users of the team server and what they may do: three roles instead of a table of permissions."""

from __future__ import annotations

import re
import secrets
from typing import Any, Literal

from coattail.errors import ConfigError, TrackingError
from coattail.team.client import API, API3, Server, explain
from coattail.team.settings import DEFAULTS

Role = Literal["reader", "writer", "admin"]
Known = Role | Literal["unknown"]
GRANTS: dict[Role, str] = {"reader": "READ", "writer": "EDIT", "admin": "EDIT"}
RESOURCES = ("experiment", "registered_model")  # runs and model versions follow their owner
SHORTEST = 12


def fresh_password() -> str:
    return secrets.token_urlsafe(18)


def put(server: Server, name: str, role: Role | None, password: str | None) -> None:
    """Make user ``name`` (a writer, if no role is named), or change what is named of them."""
    if not re.fullmatch(r"[A-Za-z0-9_.@-]+", name):
        raise ConfigError(f"user name {name!r}: wanted letters, digits and any of _ . @ -")
    if password is not None and (len(password) < SHORTEST or password.lower() in DEFAULTS):
        raise ConfigError(
            f"the password of {name} has {len(password)} characters or is one that everybody "
            f"knows; wanted at least {SHORTEST} characters"
        )
    account = {"username": name, "password": password}
    if name == server.user and password is not None:  # nobody needs an admin for that
        account["current_password"] = server.password
    if not exists(server, name):
        if password is None:
            raise ConfigError(f"{server.address} has no user {name}; a new one needs a password")
        server.call("POST", f"{API}/users/create", json=account)
        role = role or "writer"
    elif password is not None:
        server.call("PATCH", f"{API}/users/update-password", json=account)
    if role is not None:
        _give(server, name, role)


def _give(server: Server, name: str, role: Role) -> None:
    admin = {"username": name, "is_admin": role == "admin"}
    server.call("PATCH", f"{API}/users/update-admin", json=admin)
    for resource in RESOURCES:
        grant = {"username": name, "resource_type": resource, "resource_id": "*"}
        # A grant cannot be changed, only taken back; a new user has none to take back.
        answer = server.request("POST", f"{API3}/users/permissions/revoke", json=grant)
        if not answer.ok and answer.status_code != 404:
            raise TrackingError(f"{server.address}: {answer.status_code} {explain(answer)}")
        grant["permission"] = GRANTS[role]
        server.call("POST", f"{API3}/users/permissions/grant", json=grant)


def exists(server: Server, name: str) -> bool:
    response = server.request("GET", f"{API}/users/get", params={"username": name})
    if response.status_code == 404:
        return False
    if response.status_code in (401, 403):
        raise TrackingError(
            f"{server.address}: {server.user or 'a caller without a name'} may not manage users "
            f"({response.status_code}); use an admin's MLFLOW_TRACKING_USERNAME and _PASSWORD"
        )
    if not response.ok:
        raise TrackingError(f"{server.address}: {response.status_code} {explain(response)}")
    return True


def remove(server: Server, name: str) -> None:
    """Take the user away. Runs stay; MLflow keeps no more of them than the name."""
    if not exists(server, name):
        raise ConfigError(f"{server.address} has no user {name}")
    server.call("DELETE", f"{API}/users/delete", json={"username": name})


def listing(server: Server) -> list[tuple[str, Known]]:
    """Every user and the role that their permissions amount to, as far as we may know."""
    users = server.call("GET", f"{API}/users/list").get("users", [])
    return sorted((str(user["username"]), role_of(server, user)) for user in users)


def role_of(server: Server, user: dict[str, Any]) -> Known:
    """The role of a user; only an admin may ask about others than themselves."""
    if user.get("is_admin"):
        return "admin"
    ask = {"username": user["username"], "resource_type": "experiment", "resource_id": "*"}
    answer = server.request("GET", f"{API3}/users/permissions/get", params=ask)
    if answer.status_code == 403:
        return "unknown"
    if not answer.ok:
        raise TrackingError(f"{server.address}: {answer.status_code} {explain(answer)}")
    return "writer" if answer.json().get("permission") in ("EDIT", "MANAGE") else "reader"
