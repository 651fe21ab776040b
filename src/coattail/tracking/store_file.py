"""A look into a store that is a file without MLflow, which takes a second or two to load."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from coattail.tracking.store import address

SQLITE = "sqlite:///"
REVISION = re.compile(r'^(down_)?revision(?:: str)? = "(\w+)"', re.MULTILINE)


def at_rest() -> bool:
    """Whether the store is a file that MLflow, as installed, reads, and none of its runs is open.

    False is no verdict: MLflow has to be asked.
    """
    path = Path(address().removeprefix(SQLITE))
    if not address().startswith(SQLITE) or not path.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            versions = {version for (version,) in file.execute("SELECT * FROM alembic_version")}
            opened = "SELECT 1 FROM runs WHERE status = 'RUNNING' LIMIT 1"
            return versions == _schema() and file.execute(opened).fetchone() is None
    except sqlite3.Error:
        return False


def _schema() -> set[str]:
    """The version of the tables that the installed MLflow wants: a change without a later one."""
    mlflow = find_spec("mlflow")
    made: dict[bool, set[str]] = {True: set(), False: set()}
    for place in mlflow.submodule_search_locations or () if mlflow else ():
        for path in Path(place, "store", "db_migrations", "versions").glob("*.py"):
            for down, name in REVISION.findall(path.read_text(encoding="utf-8")):
                made[bool(down)].add(name)
    return made[False] - made[True]
