"""Write requirements.lock: every package that coattail needs, at the version installed now.

Run it in an environment that `pip install -e '.[dev]'` made (with torch==2.13.0 installed first).
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# Every package of the environment, for Python 3.11.
# Written by scripts/lock.py, installed by scripts/setup.sh.
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(wanted: list[str]) -> dict[str, str]:
    """Name -> version of the packages named and all they need."""
    found: dict[str, str] = {}
    todo = [(Requirement(text), "") for text in wanted]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = normal(requirement.name)
        installed = distribution(requirement.name)
        needs = [Requirement(text) for text in installed.requires or []]
        if name not in found:
            found[name] = installed.version.split("+")[0]
            todo += [(need, "") for need in needs]
        for wanted_extra in requirement.extras:
            todo += [(n, wanted_extra) for n in needs if "extra" in str(n.marker)]
    return found


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for group in project["optional-dependencies"].values() for text in group]
    found = closure([*project["dependencies"], *extras, "setuptools"])
    lines = [f"{name}=={version}\n" for name, version in sorted(found.items())]
    (ROOT / "requirements.lock").write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()
