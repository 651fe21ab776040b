"""The few calls of MLflow's REST interface that checks and user management need.

Plain HTTP rather than MLflow's client: a check must see the exact status of one request, without
retries, and must not need seconds of imports.
"""

from __future__ import annotations

import contextlib
import os
import re
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
from requests.auth import HTTPBasicAuth

from coattail.errors import TrackingError

API = "/api/2.0/mlflow"
API3 = "/api/3.0/mlflow"
TIMEOUT = (4, 30)  # seconds to be there, seconds to answer


def _nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authentication of a stranger: none, also if a .netrc knows better."""
    return request


class Server:
    """A team server and the credentials to use it with (none: ask as a stranger)."""

    def __init__(self, address: str, user: str | None = None, password: str | None = None) -> None:
        parts = urlsplit(address)
        if parts.username:  # https://ada:secret@host is allowed too, but never shown
            user = user or unquote(parts.username)
            password = password or unquote(parts.password or "")
        host = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.user = user
        self.password = password
        self._credentials = HTTPBasicAuth(user, password or "") if user else _nobody

    @classmethod
    def of_environment(cls, address: str | None = None) -> Server:
        """The server and the user that MLFLOW_TRACKING_* name, as MLflow itself reads them."""
        address = address or os.environ.get("MLFLOW_TRACKING_URI", "")
        if not address.startswith(("http://", "https://")):
            raise TrackingError(
                f"no team server named: got {address or 'nothing'}, wanted an address such as "
                "https://mlflow.example.org; set MLFLOW_TRACKING_URI"
            )
        stored = _credentials_file()
        user, password = (
            os.environ.get(name.upper()) or stored.get(name)
            for name in ("mlflow_tracking_username", "mlflow_tracking_password")
        )
        return cls(address, user, password)

    def stranger(self) -> Server:
        """The same server, without credentials."""
        return Server(self.address)

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        """One request, whatever its status."""
        try:
            return requests.request(
                method,
                self.address + path,
                auth=self._credentials,
                timeout=TIMEOUT,
                allow_redirects=False,
                **options,
            )
        except requests.RequestException as error:
            # The cause stands last; around it are only names of Python's classes.
            reason = re.split(r"\[Errno -?\d+\] ", str(error))[-1].strip("'\")] ")
            raise TrackingError(
                f"{self.address} cannot be reached: {_short(reason)}; is the server running, is "
                "the address right, does a firewall let you through?"
            ) from None

    def call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """One request that must succeed, and its answer."""
        response = self.request(method, path, **options)
        if response.status_code in (401, 403):
            who = f"user {self.user}" if self.user else "a caller without a name"
            kind = "does not know the password of" if response.status_code == 401 else "forbids"
            raise TrackingError(
                f"{self.address} {kind} {who} ({response.status_code} for {path}); set "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or ask an admin"
            )
        if not response.ok:
            raise TrackingError(f"{self.address}{path}: {response.status_code} {explain(response)}")
        if not response.content or "json" not in response.headers.get("content-type", ""):
            return {}
        return dict(response.json())


def _credentials_file() -> dict[str, str]:
    """What ~/.mlflow/credentials says, where MLflow's own client looks too."""
    config = ConfigParser(interpolation=None)
    with contextlib.suppress(OSError, ConfigError):
        config.read(Path.home() / ".mlflow" / "credentials")
    return dict(config["mlflow"]) if config.has_section("mlflow") else {}


def explain(response: requests.Response) -> str:
    """MLflow's own words for why it said no."""
    try:
        return _short(str(response.json()["message"]))
    except (ValueError, KeyError, TypeError):
        return _short(response.text)


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
