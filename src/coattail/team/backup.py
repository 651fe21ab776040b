"""Save everything the team server knows into a folder, and bring it back.

A backup is a folder: one dump per database, every artifact under its own name, and a manifest with
the hash of each file. The databases are dumped before the artifacts are copied: a run that ends in
between may add artifacts that no dump names, but no dump names an artifact that is not there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coattail.errors import ConfigError, DataError
from coattail.files import atomic_folder
from coattail.progress import progress
from coattail.team.server import check_bucket, check_database, s3_client
from coattail.team.settings import TeamServerParams, check_secrets

log = logging.getLogger("coattail")

NEEDED = ("PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
THREADS = 8


def backup(params: TeamServerParams, folder: Path) -> dict[str, Any]:
    """Write a backup into ``folder``, which must not exist; return its manifest."""
    if folder.exists():
        raise ConfigError(f"{folder} exists already; a backup needs a new folder, e.g. one per day")
    _check(params)
    manifest: dict[str, Any] = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "mlflow": version("mlflow"),
        "prefix": params.artifacts.prefix,
        "files": {},
    }
    with atomic_folder(folder) as temporary:
        temporary.chmod(0o700)  # it holds the hashes of everybody's passwords
        for kind, name in _databases(params).items():
            _pg(params, "pg_dump", "--format=custom", "-d", name, f"--file={temporary / kind}.dump")
        _download(params, temporary / "artifacts")
        for path in sorted(temporary.rglob("*")):
            if path.is_file():
                manifest["files"][str(path.relative_to(temporary))] = _sha256(path)
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def restore(params: TeamServerParams, folder: Path) -> dict[str, Any]:
    """Bring a backup back into empty databases and an empty bucket; return its manifest."""
    manifest = verify(folder)
    _check(params, make_bucket=True)
    for name in _databases(params).values():
        tables = _pg(
            params,
            "psql",
            *("-X", "-At", "-d", name, "-c"),
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'",
        )
        if tables.strip() != "0":
            raise ConfigError(
                f"database {name} is not empty ({tables.strip()} tables), and a restore would mix "
                f"old and new; stop the server, then: dropdb {name} && createdb {name}"
            )
    ours = _artifacts(folder)
    foreign = [key for key in _keys(params) if key not in ours]
    if foreign:
        raise ConfigError(
            f"bucket {params.artifacts.bucket} has {len(foreign)} objects that are not in the "
            f"backup, e.g. {foreign[0]}; empty it: coattail team bucket {params.artifacts.bucket} "
            "--empty, or name a new bucket in the config"
        )
    # Artifacts first: a second try may repeat them, while a database must be restored once.
    _upload(params, ours)
    for kind, name in _databases(params).items():
        dump = str(folder / f"{kind}.dump")
        _pg(params, "pg_restore", "--no-owner", "--single-transaction", "-d", name, dump)
    return manifest


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a backup whose every file is there and unchanged."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        raise ConfigError(f"{folder} is no backup: it has no manifest.json") from None
    for name, digest in manifest["files"].items():
        path = folder / name
        if not path.is_file() or _sha256(path) != digest:
            state = "has changed" if path.is_file() else "is missing"
            raise DataError(f"{path} {state} since the backup was made; use another backup")
    return dict(manifest)


def _check(params: TeamServerParams, make_bucket: bool = False) -> None:
    check_secrets(names=NEEDED)
    check_database(params)
    check_bucket(params, make_bucket)


def _databases(params: TeamServerParams) -> dict[str, str]:
    return {"runs": params.database.runs, "users": params.database.users}


def _pg(params: TeamServerParams, program: str, *words: str) -> str:
    """Run a PostgreSQL program against the server; its own words if it fails."""
    # Debian keeps each version's programs apart; the newest can talk to every older server.
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parts[-2]))
    found = shutil.which(program, path=":".join([*map(str, reversed(places)), os.environ["PATH"]]))
    if found is None:
        raise ConfigError(f"{program} is not installed; on Debian: apt-get install postgresql")
    database = params.database
    where = ["-h", database.host, "-p", str(database.port), "-U", database.user, "--no-password"]
    done = subprocess.run([found, *where, *words], capture_output=True, text=True)
    if done.returncode:
        raise DataError(f"{program} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _keys(params: TeamServerParams) -> list[str]:
    """Names of the artifacts in the bucket, without the prefix."""
    prefix = _prefix(params)
    pages = s3_client(params).get_paginator("list_objects_v2")
    return [
        one["Key"].removeprefix(prefix)
        for page in pages.paginate(Bucket=params.artifacts.bucket, Prefix=prefix)
        for one in page.get("Contents", [])
        if not one["Key"].endswith("/")  # some storages list folders too
    ]


def _prefix(params: TeamServerParams) -> str:
    return f"{params.artifacts.prefix.strip('/')}/" if params.artifacts.prefix.strip("/") else ""


def _download(params: TeamServerParams, folder: Path) -> None:
    client, bucket, prefix = s3_client(params), params.artifacts.bucket, _prefix(params)
    keys = _keys(params)
    folder.mkdir()

    def fetch(key: str) -> None:
        path = folder / key
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"artifact {key} in bucket {bucket} would be written outside {folder}")
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, prefix + key, str(path))

    with progress("backup", len(keys), "artifacts") as bar, ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(fetch, keys):
            bar.advance()


def _artifacts(folder: Path) -> dict[str, Path]:
    """Key -> file of every artifact in a backup."""
    root = folder / "artifacts"
    return {str(p.relative_to(root)): p for p in sorted(root.rglob("*")) if p.is_file()}


def _upload(params: TeamServerParams, artifacts: dict[str, Path]) -> None:
    client, bucket, prefix = s3_client(params), params.artifacts.bucket, _prefix(params)

    def send(item: tuple[str, Path]) -> None:
        client.upload_file(str(item[1]), bucket, prefix + item[0])

    total = len(artifacts)
    with progress("restore", total, "artifacts") as bar, ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(send, artifacts.items()):
            bar.advance()


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
