"""`coattail doctor --server`: is the team's server there, safe, and usable by me?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from ipaddress import ip_address
from secrets import token_bytes
from typing import Any
from urllib.parse import urlsplit

from coattail.errors import CoattailError, TrackingError
from coattail.team.client import API, API3, Server, explain
from coattail.team.finding import Finding

EXPERIMENT = "coattail-doctor"  # one for all; each user has one run in it, so nothing piles up
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
SKEW_SECONDS = 60
SLOW_SECONDS = 0.04  # a password check takes several times as long, a cached one far less
SAMPLES = 8  # more than a server usually has workers: each keeps its own cache


def examine(server: Server, experiment: str) -> Iterator[Finding]:
    """Every check in turn; ``experiment`` is where this project's runs go."""
    try:
        yield from _reachable(server)
    except CoattailError as error:
        yield Finding("problem", str(error))
        return
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: _encrypted(server),
        lambda: _strangers(server),
        lambda: _foreign_host(server),
        lambda: _clock(server),
    ]
    for check in checks:
        yield from _guarded(check)
    if server.user is None:
        yield Finding(
            "problem",
            "no credentials to try",
            "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        )
        return
    if server.request("GET", f"{API}/users/current").status_code != 200:
        yield Finding(
            "problem",
            f"the server does not accept user {server.user} with this password",
            "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; "
            f"an admin can set a new one: coattail team user {server.user} --password-stdin",
        )
        return
    yield Finding("ok", f"the server knows user {server.user}")
    yield from _guarded(lambda: _version(server))
    yield from _guarded(lambda: _speed(server))
    yield from _guarded(lambda: _writing(server, experiment))


def _guarded(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except CoattailError as error:
        yield Finding("problem", str(error))


def _reachable(server: Server) -> Iterator[Finding]:
    status = server.request("GET", "/health").status_code
    if status != 200:
        raise TrackingError(
            f"{server.address}/health answers {status}, wanted 200; is this an MLflow server?"
        )
    yield Finding("ok", f"{server.address} answers")


def _version(server: Server) -> Iterator[Finding]:
    theirs, ours = server.request("GET", "/version").text.strip()[:40], version("mlflow")
    if theirs == ours:
        yield Finding("ok", f"MLflow {ours} on both sides")
    elif theirs.split(".")[:1] == ours.split(".")[:1]:
        yield Finding("note", f"MLflow is {theirs} there and {ours} here", "upgrade the older one")
    else:
        yield Finding(
            "problem", f"MLflow is {theirs} there and {ours} here", "use the same major version"
        )


def _encrypted(server: Server) -> Iterator[Finding]:
    address = urlsplit(server.address)
    host = address.hostname or ""
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if address.scheme == "http" and not local:
        yield Finding(
            "note",
            "the address is http, so passwords travel unencrypted",
            "put a proxy with a certificate in front, or go through ssh -L",
        )


def _strangers(server: Server) -> Iterator[Finding]:
    answer = server.stranger().request("GET", f"{API}/experiments/get", params={"experiment_id": 0})
    if answer.status_code == 401:
        yield Finding("ok", "callers without credentials are refused")
    else:
        yield Finding(
            "problem",
            f"a caller without credentials gets {answer.status_code}, wanted 401",
            "start the server with make team-server, which turns passwords on",
        )


def _foreign_host(server: Server) -> Iterator[Finding]:
    foreign = {"Host": "stranger.invalid"}
    answer = server.request(
        "GET", f"{API}/experiments/get", params={"experiment_id": 0}, headers=foreign
    )
    if answer.status_code == 200:
        yield Finding(
            "problem",
            "the server answers under any host name, so a web page could use it from a browser",
            "name the hosts in allowed_hosts of conf/team-server.yaml",
        )
    else:
        yield Finding("ok", "requests under a foreign host name are refused")


def _clock(server: Server) -> Iterator[Finding]:
    stamp = server.request("GET", "/health").headers.get("date")
    if stamp is None:
        return
    skew = abs((datetime.now(UTC) - parsedate_to_datetime(stamp)).total_seconds())
    if skew > SKEW_SECONDS:
        yield Finding(
            "problem",
            f"the server's clock and ours are {skew:.0f} seconds apart; runs will be misordered",
            "keep time with NTP on both machines",
        )
    else:
        yield Finding("ok", "the clocks agree")


def _speed(server: Server) -> Iterator[Finding]:
    """Without its cache the server hashes a password on each request; that shows as time."""
    stranger = server.stranger()
    known = min(_seconds(server) for _ in range(SAMPLES))
    unknown = min(_seconds(stranger) for _ in range(SAMPLES))
    cost = max(known - unknown, 0.0)
    if cost > SLOW_SECONDS:
        yield Finding(
            "note",
            f"each request spends {1000 * cost:.0f} ms on the password",
            "set auth_cache_seconds: 60 in conf/team-server.yaml",
        )
    else:
        yield Finding("ok", f"a known password costs {1000 * cost:.0f} ms per request")


def _seconds(server: Server) -> float:
    begun = time.perf_counter()
    server.request("GET", f"{API}/users/current")
    return time.perf_counter() - begun


def _writing(server: Server, experiment: str) -> Iterator[Finding]:
    allowed = _permission(server, experiment)
    if allowed == "READ":
        yield Finding(
            "ok",
            f"user {server.user} is a reader: may look at everything and write nothing; what they "
            "compute stays in their project",
        )
        return
    if allowed not in ("EDIT", "MANAGE"):
        yield Finding(
            "problem",
            f"user {server.user} may not write to experiment {experiment} (has {allowed})",
            f"an admin can change that: coattail team user {server.user} --role writer",
        )
        return
    yield Finding("ok", f"user {server.user} may write ({allowed})")
    place = _own_run(server)
    content = token_bytes(100_000)
    path = f"{ARTIFACTS}/{place}/doctor-{server.user}.bin"
    begun = time.perf_counter()
    sent = server.request("PUT", path, data=content)
    if not sent.ok:
        raise TrackingError(
            f"the server did not store an artifact: {sent.status_code} {explain(sent)}; "
            "check its S3 storage and keys"
        )
    back = server.request("GET", path)
    if back.content != content:
        raise TrackingError(
            f"an artifact came back changed: {len(back.content)} bytes with status "
            f"{back.status_code}, wanted {len(content)} bytes; check the S3 storage"
        )
    yield Finding("ok", f"an artifact went there and back in {time.perf_counter() - begun:.1f} s")


def _permission(server: Server, experiment: str) -> str:
    """What we may do where the project's runs go, or anywhere if that is not there yet."""
    if server.call("GET", f"{API}/users/current")["user"].get("is_admin"):
        return "MANAGE"  # admins need no grant, so the question below would miss it
    found = _experiment(server, experiment)
    ask = {"username": server.user, "resource_type": "experiment", "resource_id": found or "*"}
    answer = server.call("GET", f"{API3}/users/permissions/get", params=ask)
    return str(answer.get("permission"))


def _experiment(server: Server, name: str) -> str | None:
    ask = {"experiment_name": name}
    answer = server.request("GET", f"{API}/experiments/get-by-name", params=ask)
    if answer.status_code == 404:
        return None
    if not answer.ok:
        raise TrackingError(f"experiment {name}: {answer.status_code} {explain(answer)}")
    return str(answer.json()["experiment"]["experiment_id"])


def _own_run(server: Server) -> str:
    """Our run in the doctor's experiment, with a metric logged; its place among artifacts."""
    found = _experiment(server, EXPERIMENT)
    if found is None:
        made = server.call("POST", f"{API}/experiments/create", json={"name": EXPERIMENT})
        found = str(made["experiment_id"])
    ask: dict[str, Any] = {"experiment_ids": [found], "max_results": 1}
    ask["filter"] = f"attributes.run_name = 'doctor-{server.user}'"
    runs = server.call("POST", f"{API}/runs/search", json=ask).get("runs", [])
    if not runs:
        new = {"experiment_id": found, "run_name": f"doctor-{server.user}"}
        runs = [server.call("POST", f"{API}/runs/create", json=new)["run"]]
    run = str(runs[0]["info"]["run_id"])
    milliseconds = int(1000 * time.time())
    point = {"run_id": run, "key": "checked", "value": 1.0, "timestamp": milliseconds}
    server.call("POST", f"{API}/runs/log-metric", json=point)
    done = {"run_id": run, "status": "FINISHED", "end_time": milliseconds}
    server.call("POST", f"{API}/runs/update", json=done)
    return f"{found}/{run}/artifacts"
