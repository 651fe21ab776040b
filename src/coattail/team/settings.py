"""conf/team-server.yaml and the secrets around it: what a team's MLflow server needs to know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field

from coattail.config import Params, parse, read_yaml
from coattail.errors import ConfigError

CONFIG = Path("conf/team-server.yaml")
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
DEFAULTS = {"password", "password1234", "changeme", "secret", "my-secret-key", "admin", "mlflow"}
"""Secrets that everybody knows: from manuals, and from old versions of MLflow."""

# Names are those of MLflow, libpq and the AWS tools, so one environment serves all of them.
SECRETS = {
    "MLFLOW_AUTH_ADMIN_PASSWORD": 12,
    "MLFLOW_FLASK_SERVER_SECRET_KEY": 32,
    "PGPASSWORD": 12,
    "AWS_ACCESS_KEY_ID": 1,
    "AWS_SECRET_ACCESS_KEY": 12,
}
"""Environment variables that must be set, and how many characters each must have."""


class DatabaseParams(Params):
    """The PostgreSQL server; its password is PGPASSWORD."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=5432, ge=1, le=65535)
    user: Name = "mlflow"
    runs: Name = "mlflow"  # database of experiments, runs and models
    users: Name = "mlflow_auth"  # database of users and permissions

    def address(self, name: str) -> str:
        """The URI of one database. libpq adds the password from the environment."""
        return f"postgresql+psycopg://{quote(self.user)}@{self.host}:{self.port}/{name}"


class ArtifactParams(Params):
    """The S3-compatible storage; its keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""

    bucket: Name = "mlflow"
    prefix: str = Field(default="artifacts", pattern=r"^[A-Za-z0-9_./-]*$")
    endpoint: str | None = Field(default=None, pattern=r"^https?://")  # None: AWS itself

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


class TeamServerParams(Params):
    """Everything about the server that is no secret."""

    host: str = Field(default="127.0.0.1", min_length=1)  # address to listen on
    port: int = Field(default=5000, ge=1, le=65535)
    workers: int = Field(default=4, ge=1, le=64)  # processes that answer requests
    admin: Name = "admin"  # first user, made when the database of users is empty
    # What a user may do with what nobody granted them: read it, or not even see it.
    default_permission: Literal["READ", "NO_PERMISSIONS"] = "READ"
    # Password checks are kept this long; 0 checks each request, which is several times slower.
    auth_cache_seconds: int = Field(default=60, ge=0, le=3600)
    # Names under which people reach the server, with their port; all others are refused.
    allowed_hosts: list[str] = Field(default_factory=list)
    cors_origins: list[str] = Field(default_factory=list)  # web pages that may call it
    database: DatabaseParams = DatabaseParams()
    artifacts: ArtifactParams = ArtifactParams()


def read(path: str | Path = CONFIG) -> TeamServerParams:
    """The config file, checked."""
    params: TeamServerParams = parse(read_yaml(path), TeamServerParams, f"{path}: ")
    open_to_all = params.host not in ("127.0.0.1", "localhost", "::1")
    if "*" in [*params.allowed_hosts, *params.cors_origins]:
        raise ConfigError(
            f"{path}: '*' in allowed_hosts or cors_origins lets any web page use the server; "
            "name the hosts, e.g. mlflow.example.org:5000"
        )
    if open_to_all and not params.allowed_hosts:
        raise ConfigError(
            f"{path}: host is {params.host}, so others can reach the server, but allowed_hosts is "
            "empty; name the addresses people use, e.g. [mlflow.example.org:5000]"
        )
    return params


def check_secrets(
    environment: Mapping[str, str] = os.environ, names: tuple[str, ...] = tuple(SECRETS)
) -> None:
    """Refuse to go on with a secret that is missing, short or known to everybody."""
    wrong = [
        fault for name in names if (fault := _fault(name, environment.get(name, ""))) is not None
    ]
    if wrong:
        raise ConfigError(
            "\n".join(wrong) + "\nset it in the environment, e.g. from a file only you can read: "
            "set -a; . ./team.env; set +a  (docs/how-to/team.md)"
        )


def _fault(name: str, value: str) -> str | None:
    shortest = SECRETS[name]
    if not value:
        return f"{name} is not set"
    if value.lower() in DEFAULTS:
        return f"{name} is a password that everybody knows; make one: openssl rand -hex 24"
    if len(value) < shortest:
        return f"{name} has {len(value)} characters, wanted at least {shortest}"
    return None
