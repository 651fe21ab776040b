"""`coattail doctor`: does the DVC remote take a file and give it back?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as Damaged
from pathlib import Path
from secrets import token_hex

from coattail.team.finding import Finding

CONFIGS = (".dvc/config", ".dvc/config.local")
SECONDS = 60  # for DVC to load and the remote to answer

TRY = """
import sys
from dvc.repo import Repo
odb = Repo().cloud.get_remote_odb(None)
path = odb.fs.join(odb.path, "coattail-doctor", sys.argv[1])
what = "lets nobody look"
try:
    odb.fs.exists(odb.path)
    what = "did not take a file"
    odb.fs.makedirs(odb.fs.parent(path), exist_ok=True)
    odb.fs.pipe_file(path, sys.argv[1].encode())
    what = "did not give a file back"
    assert odb.fs.cat_file(path) == sys.argv[1].encode(), "it came back changed"
    odb.fs.remove(path)
except Exception as error:
    print(what + ": " + (str(error).strip() or type(error).__name__).splitlines()[0])
    sys.exit(1)
"""
"""In a process of its own: DVC takes a second to load, and a remote may never answer."""


def examine() -> Iterator[Finding]:
    """Put a file, get it, remove it, as whoever asks; nothing where there is no remote."""
    name, address = default_remote()
    if not name:
        return
    where = f"DVC remote {name} ({address})"
    try:
        done = subprocess.run(
            [sys.executable, "-c", TRY, token_hex(8)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        yield Finding("problem", f"{where} does not answer within {SECONDS} s", remedy(address))
        return
    if done.returncode == 0:
        yield Finding("ok", f"{where} takes files and gives them back")
        return
    said = (done.stdout or done.stderr).strip().split("\n")[-1][:300]
    yield Finding("problem", f"{where} {said}", remedy(address))


def default_remote() -> tuple[str, str]:
    """Name and address of the remote that `dvc push` uses; two empty words if there is none."""
    name, addresses = "", {}
    for path in CONFIGS:
        config = ConfigParser(interpolation=None)
        try:
            config.read(Path(path), encoding="utf-8")
        except Damaged:
            continue
        name = config.get("core", "remote", fallback=name)
        for section in config.sections():
            if section.startswith("'remote"):
                addresses[section.split('"')[1]] = config.get(section, "url", fallback="")
    return name, addresses.get(name, "")


def remedy(address: str) -> str:
    """What to look at, by the kind of remote."""
    if address.startswith("s3:"):
        bucket = address.removeprefix("s3://").split("/")[0]
        return (
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and endpointurl in .dvc/config; "
            f"make the bucket: coattail team bucket {bucket}"
        )
    if address.startswith("ssh:"):
        return "check with: ssh and the host's name; the key is named in ~/.ssh/config"
    return "is it mounted, and may you write there?"
