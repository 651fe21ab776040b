"""Start MLflow for a team: PostgreSQL, artifacts through the server to S3, users with passwords."""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coattail.errors import ConfigError
from coattail.team.settings import TeamServerParams, check_secrets

log = logging.getLogger("coattail")

# By default a worker that is silent for 5 seconds is killed and started anew. On a busy machine the
# imports alone take longer, and the server would never come up.
UVICORN = "--timeout-worker-healthcheck 120 --timeout-graceful-shutdown 10"


def start(params: TeamServerParams, make_bucket: bool = False) -> None:
    """Check everything that can be checked beforehand, then become the server's process."""
    check_secrets()
    check_packages()
    check_database(params)
    check_bucket(params, make_bucket)
    state = state_folder()
    environment = os.environ | server_environment(params, write_auth_config(params, state))
    log.warning("team server on http://%s:%d (stop with Ctrl-C)", params.host, params.port)
    os.execve(sys.executable, command(params), environment)


def command(params: TeamServerParams) -> list[str]:
    """The command line of the server. It names no secret: every process can be read with ps."""
    words = [sys.executable, "-m", "coattail.tracking.team_app", "server"]
    words += ["--host", params.host, "--port", str(params.port)]
    words += ["--workers", str(params.workers), "--app-name", "basic-auth"]
    words += ["--backend-store-uri", params.database.address(params.database.runs)]
    words += ["--artifacts-destination", params.artifacts.address]
    words += ["--uvicorn-opts", UVICORN]
    if params.allowed_hosts:
        words += ["--allowed-hosts", ",".join(params.allowed_hosts)]
    if params.cors_origins:
        words += ["--cors-allowed-origins", ",".join(params.cors_origins)]
    return words


def server_environment(params: TeamServerParams, auth_config: Path) -> dict[str, str]:
    """What MLflow reads from its environment, besides the secrets that are there already."""
    values = {
        "MLFLOW_AUTH_CONFIG_PATH": str(auth_config),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Jobs of MLflow's assistants; nothing here uses them, and they cost processes.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    if params.artifacts.endpoint:
        values["MLFLOW_S3_ENDPOINT_URL"] = params.artifacts.endpoint
    return values


def state_folder() -> Path:
    """Where the server keeps its auth.ini: systemd's choice, else a folder that git ignores."""
    folder = Path(os.environ.get("STATE_DIRECTORY") or ".dvc/tmp/team-server").resolve()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def write_auth_config(params: TeamServerParams, folder: Path) -> Path:
    """auth.ini for MLflow, readable by its owner alone. Passwords stay in the environment."""
    path = folder / f"auth-{params.port}.ini"
    lines = [
        "[mlflow]",
        f"default_permission = {params.default_permission}",
        f"database_uri = {params.database.address(params.database.users)}",
        f"admin_username = {params.admin}",
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth",
        f"auth_cache_ttl_seconds = {params.auth_cache_seconds}",
    ]
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def check_packages() -> None:
    """The server needs more than the pipeline does."""
    missing = [name for name in ("psycopg", "flask_wtf", "boto3") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the team server needs {', '.join(missing)}, not installed here; "
            "run make setup, or pip install '.[team]'"
        )


def check_database(params: TeamServerParams) -> None:
    """Both databases must exist and let us in; MLflow would only say so in a long traceback."""
    import psycopg

    database = params.database
    for name in (database.runs, database.users):
        try:
            with psycopg.connect(
                host=database.host,
                port=database.port,
                user=database.user,
                dbname=name,
                connect_timeout=10,
            ):
                pass
        except psycopg.OperationalError as error:
            reason = str(error).strip().split("\n")[0]
            raise ConfigError(
                f"database {name} on {database.host}:{database.port} does not let "
                f"{database.user} in: {reason}; make it: createdb -O {database.user} {name}, "
                "and check PGPASSWORD"
            ) from None


def check_bucket(params: TeamServerParams, make: bool = False) -> None:
    """The bucket must exist and accept our keys, or the first artifact would be lost."""
    from botocore.exceptions import (  # type: ignore[import-untyped]
        BotoCoreError,
        ClientError,
    )

    bucket, where = params.artifacts.bucket, params.artifacts.endpoint or "AWS"
    client = s3_client(params)
    try:
        try:
            client.head_bucket(Bucket=bucket)
        except ClientError as error:
            if not make or _code(error) != "404":
                raise
            client.create_bucket(Bucket=bucket)
    except ClientError as error:
        known = {
            "404": f"there is no bucket {bucket}; coattail team start --make-bucket makes it",
            "403": "it refuses the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        }
        raise ConfigError(f"S3 at {where}: {known.get(_code(error), str(error))}") from None
    except BotoCoreError as error:
        raise ConfigError(f"S3 at {where} does not answer: {error}") from None


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def s3_client(params: TeamServerParams) -> Any:
    """A boto3 client of the storage, with keys from the environment and short patience."""
    import boto3
    from botocore.config import Config  # type: ignore[import-untyped]

    patience = Config(connect_timeout=10, read_timeout=60, retries={"max_attempts": 3})
    region = os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    return boto3.session.Session().client(
        "s3", endpoint_url=params.artifacts.endpoint, region_name=region, config=patience
    )
