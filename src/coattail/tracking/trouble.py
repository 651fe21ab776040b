"""What a store that says no, or nothing, means for the reader: one sentence with the remedy."""

from __future__ import annotations

import os
from typing import Any

from coattail.errors import TrackingError

PATIENCE = 4  # seconds for a server to say whether it is there
GATEWAY = (502, 503, 504)
"""What a proxy says of a server behind it that is away."""


def sentence(error: BaseException, place: str, user: str) -> str:
    """Why the store at ``place`` failed, in our words where we know it."""
    status = _status(error)
    if status == 401:
        return _unknown_user(place)
    if status == 403:
        return (
            f"the MLflow server {place} forbids {user} to do this (403): a reader looks and does "
            f"not write; an admin can change that: coattail team user {user} --role writer"
        )
    if status in GATEWAY or _is_lost(error):
        return _away(place)
    return str(error).strip().split("\n")[0][:300]


def check_server(address: str, place: str) -> None:
    """Raise within seconds if the server is away or does not know us; MLflow retries for long.

    ``place`` is the address as it may be shown.
    """
    if not address.startswith(("http://", "https://")):
        return
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request
    from requests import RequestException

    try:
        status = http_request(
            get_default_host_creds(address),
            "/api/2.0/mlflow/experiments/get-by-name",
            "GET",
            params={"experiment_name": "Default"},
            timeout=PATIENCE,
            max_retries=0,
            raise_on_status=False,
        ).status_code
    except (RequestException, MlflowException, OSError):
        raise TrackingError(_away(place)) from None
    if status == 401:
        raise TrackingError(_unknown_user(place))
    if status in GATEWAY:
        raise TrackingError(_away(place))


def _away(place: str) -> str:
    return (
        f"the MLflow server {place} does not answer; is it running, is MLFLOW_TRACKING_URI right? "
        f"Look closer: coattail doctor --server {place}"
    )


def _unknown_user(place: str) -> str:
    who = os.environ.get("MLFLOW_TRACKING_USERNAME", "a caller without a name")
    return (
        f"the MLflow server {place} does not accept {who} with this password (401); set "
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; an admin can set a new one: "
        "coattail team user NAME --password-stdin"
    )


def _status(error: BaseException) -> int:
    """The HTTP status that MLflow's exception stands for."""
    tell: Any = getattr(error, "get_http_status_code", None)
    told = str(error)
    for status in (401, 403, *GATEWAY):
        if f"error code {status} " in told or f"too many {status} " in told:
            return status
    return int(tell()) if tell else 0


def _is_lost(error: BaseException) -> bool:
    words = ("Max retries exceeded", "Connection refused", "Connection aborted", "timed out")
    return isinstance(error, ConnectionError) or any(word in str(error) for word in words)
