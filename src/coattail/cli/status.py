"""`coattail status`: what `make repro` would run, edits of code and of your own files included."""

from __future__ import annotations

import re
import subprocess
import sys

from coattail.errors import CoattailError
from coattail.pipeline.pointing import own_standing

LOOKING = re.compile(r"^take_in@.*:\n\talways changed\n", re.MULTILINE)
"""A stage that looks at a folder every time says nothing of whether it has changed."""
TAKEN = "; make repro takes it in and runs what depends on it, from download on"
NEXT = {"new": TAKEN, "changed": TAKEN, "unclear": "; make repro stops and says how to go on"}
UP_TO_DATE = "Data and pipelines are up to date.\n"


def status() -> str:
    """Digest the code anew, look at the folder, ask DVC."""
    _dvc("repro", "--quiet", "code")
    rest = LOOKING.sub("", _dvc("status"))
    found = own_standing()
    if found is None or found.relation in ("same", "away"):
        return rest or UP_TO_DATE
    return f"take_in: {found.sentence}{NEXT.get(found.relation, '')}\n{rest}"


def _dvc(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "dvc", *words], capture_output=True, text=True)
    if done.returncode:
        raise CoattailError((done.stdout + done.stderr).strip())
    return done.stdout
