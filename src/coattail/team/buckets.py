"""Buckets of the server's storage, and keys of SeaweedFS for each person."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coattail.errors import ConfigError
from coattail.files import atomic_file
from coattail.team.server import s3_client
from coattail.team.settings import TeamServerParams, check_secrets

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
AT_ONCE = 1000  # S3 removes no more with one request


SECONDS = 60
"""A storage that was started a moment ago listens before it can store."""


def make(params: TeamServerParams, name: str) -> str:
    """Make a bucket and see that it takes an object; say what was done."""
    client = _client(params)
    _wait(client, params, name)
    with _told(params, name):
        there = name in [one["Name"] for one in client.list_buckets()["Buckets"]]
        if not there:
            client.create_bucket(Bucket=name)
        client.put_object(Bucket=name, Key="coattail-check", Body=b"1")
        client.delete_object(Bucket=name, Key="coattail-check")
    return f"bucket {name} {'was there' if there else 'is made'}, and it takes files"


def _wait(client: Any, params: TeamServerParams, name: str) -> None:
    """Until the storage answers at all; its refusals are for the next call to tell."""
    from botocore.exceptions import (  # type: ignore[import-untyped]
        BotoCoreError,
        ClientError,
    )

    end = time.monotonic() + SECONDS
    while True:
        try:
            client.list_buckets()
            return
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status < 500 or time.monotonic() > end:
                return
        except BotoCoreError:
            if time.monotonic() > end:
                with _told(params, name):
                    raise
        time.sleep(0.5)


def empty(params: TeamServerParams, name: str) -> int:
    """Remove every object of a bucket; return how many there were."""
    client, count = _client(params), 0
    with _told(params, name):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            keys = [{"Key": one["Key"]} for one in page.get("Contents", [])]
            for start in range(0, len(keys), AT_ONCE):
                part = keys[start : start + AT_ONCE]
                client.delete_objects(Bucket=name, Delete={"Objects": part, "Quiet": True})
            count += len(keys)
    return count


def _client(params: TeamServerParams) -> Any:
    check_secrets(names=KEYS)
    return s3_client(params)


@contextmanager
def _told(params: TeamServerParams, name: str) -> Iterator[None]:
    """What the storage complains of, as one sentence."""
    from botocore.exceptions import (  # type: ignore[import-untyped]
        BotoCoreError,
        ClientError,
    )

    where = params.artifacts.endpoint or "AWS"
    try:
        yield
    except BotoCoreError as error:
        raise ConfigError(f"S3 at {where} does not answer: {error}") from None
    except ClientError as error:
        raise ConfigError(
            f"S3 at {where}, bucket {name}: {error}; is the storage full (weed wants "
            "-volume.max), are the keys those of its owner?"
        ) from None


def add_key(file: Path, person: str, bucket: str) -> dict[str, str]:
    """Give a person keys to one bucket in SeaweedFS's file; return them by their usual names."""
    content = _identities(file)
    if person in [one["name"] for one in content["identities"]]:
        raise ConfigError(f"{file} has keys of {person} already; take them away first: --remove")
    keys = {"accessKey": secrets.token_hex(10), "secretKey": secrets.token_hex(20)}
    actions = [f"{action}:{bucket}" for action in ("Read", "Write", "List", "Tagging")]
    identity = {"name": person, "actions": actions, "credentials": [keys]}
    content["identities"].append(identity)
    _write(file, content)
    return dict(zip(KEYS, keys.values(), strict=True))


def remove_key(file: Path, person: str) -> None:
    """Take a person's keys away."""
    content = _identities(file)
    kept = [one for one in content["identities"] if one["name"] != person]
    if len(kept) == len(content["identities"]):
        raise ConfigError(f"{file} has no keys of {person}")
    _write(file, content | {"identities": kept})


def _identities(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text())
        return content | {"identities": list(content["identities"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file} is not SeaweedFS's list of identities ({error}); docs/how-to/team.md makes one"
        ) from None


def _write(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, readable by its owner alone."""
    with atomic_file(file) as path:
        path.touch(mode=0o600)
        path.write_text(json.dumps(content, indent=1) + "\n")
