"""`coattail use`: merge an overlay of conf/ into params.yaml, comments kept, mistakes refused."""

from __future__ import annotations

import difflib
import io
import re
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import Comment, CommentedMap

from coattail.config import PARAMS, parse_yaml, read_yaml, suggestion
from coattail.errors import ConfigError
from coattail.files import atomic_file

if TYPE_CHECKING:  # it looks into files with libraries that a list of datasets can do without
    from coattail.pipeline.pointing import Own

CONF = Path("conf")
SECTION = re.compile(r"^((?: |\w+: \{\}).*)\n(?=\w+:(?: +#| \{\}|$))", re.MULTILINE)
"""The end of a section with the start of the next right behind it."""
ASTRAY = re.compile(r"^( +[\w.-]+:)\n +(#.*)$", re.MULTILINE)
"""A comment behind a variant that had an anchor, which ruamel puts on the next line."""
REPLACED = ("dataset", "vectors")
"""Sections that an overlay replaces as a whole: half of two datasets is no dataset."""


def available() -> dict[str, Path]:
    """Overlays by the name one types: ``eurlex57k``, ``preset/dismec-paper``."""
    found = {path.stem: path for path in sorted((CONF / "dataset").glob("*.yaml"))}
    for path in sorted(CONF.glob("*/*.yaml")):
        if path.parent.name != "dataset":
            found[f"{path.parent.name}/{path.stem}"] = path
    return found


def known_datasets() -> set[str]:
    return {name for name in available() if "/" not in name}


def find(name: str) -> Path:
    overlays = available()
    if not overlays:
        raise ConfigError(f"{CONF} holds no overlays; run from the project's root")
    if name not in overlays:
        raise ConfigError(f"conf/ has no overlay {name!r}{suggestion(name, list(overlays))}")
    return overlays[name]


def merge(name: str, data: str | None, own: Own | None = None) -> tuple[str, str]:
    """params.yaml as it is and as it would be with the overlay merged in and checked.

    ``data`` is the folder or mirror that its files come from, ``own`` what was said of the folder.
    """
    from coattail.pipeline.pointing import Own, point
    from coattail.pipeline.schema import check

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 100
    yaml.representer.add_representer(type(None), _null)
    before = PARAMS.read_text(encoding="utf-8")
    for path in (PARAMS, find(name)):
        read_yaml(path)  # says which file is broken and where
    overlay_text = find(name).read_text(encoding="utf-8")
    text_now = before
    for section in REPLACED:
        text_now = _splice(text_now, overlay_text, section)
    overlay = yaml.load(overlay_text)
    pointed = point(read_yaml(PARAMS), read_yaml(find(name)), data, own or Own(), known_datasets())
    if "dataset" in overlay:
        text_now = _splice(text_now, pointed.take_in, "take_in")
    content = yaml.load(text_now)
    for section, values in overlay.items():
        if section not in REPLACED:
            _merge_section(content, section, _written_out(values))
    for section, values in pointed.changes.items():
        _set(content[section], values)
    text = io.StringIO()
    yaml.dump(content, text)
    check(parse_yaml(text.getvalue(), PARAMS), f"params.yaml with {name}")
    # A variant that is taken out takes the blank line behind it along.
    return before, ASTRAY.sub(r"\1  \2", SECTION.sub(r"\1\n\n", text.getvalue()))


def _set(section: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            _set(section[key], value)
        else:
            section[key] = value


def _null(representer: Any, _: None) -> Any:
    """``source: null`` as people write it, not ``source:``."""
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


def _splice(text: str, overlay: str, section: str) -> str:
    """Replace a section as text, so that the comments around it stay where they are."""
    lines, new = text.splitlines(), overlay.splitlines()
    there, given = _lines_of(lines, section), _lines_of(new, section)
    if there is None or given is None:
        return text
    return "\n".join(lines[: there[0]] + new[given[0] : given[1]] + lines[there[1] :]) + "\n"


def _lines_of(lines: list[str], section: str) -> tuple[int, int] | None:
    """First and one-past-last line of a section; comments before the next one stay outside."""
    start = next((i for i, line in enumerate(lines) if line.startswith(f"{section}:")), None)
    if start is None:
        return None
    end = start + 1
    while end < len(lines) and (not lines[end] or lines[end][0] in " #"):
        end += 1
    while end > start + 1 and (not lines[end - 1] or lines[end - 1][0] == "#"):
        end -= 1
    return start, end


def _written_out(node: Any) -> Any:
    """The same without anchors: what a variant shares with another becomes its own.

    Otherwise `dvc exp run -S` of one variant would change all that share its values.
    """
    if not isinstance(node, CommentedMap):
        return deepcopy(node)
    shared = [key for other in node.merge for key in _written_out(other)]
    plain = CommentedMap((key, _written_out(node[key])) for key in [*shared, *node])
    setattr(plain, Comment.attrib, node.ca)
    return plain


def _merge_section(content: Any, section: str, values: Any) -> None:
    if not isinstance(values, dict) or not values or not content.get(section):
        content[section] = values
        return
    for key, value in values.items():
        if value is None and key in content[section]:
            remove(content, section, key)  # null in an overlay takes a variant out
        elif value is not None:
            content[section][key] = value


def remove(content: Any, section: str, key: str) -> None:
    """Take a variant out of params.yaml's content."""
    del content[section][key]
    if not content[section]:
        content[section] = {}  # the emptied one would be written with its comments, and not be YAML


def diff(name: str, data: str | None, own: Own | None = None) -> str:
    """What `use` would change, as a unified diff."""
    return _diff(name, *merge(name, data, own))


def _diff(name: str, before: str, after: str) -> str:
    title = f"params.yaml with {name}"
    old, new = before.splitlines(), after.splitlines()
    return "\n".join(difflib.unified_diff(old, new, "params.yaml", title, lineterm=""))


def use(name: str, data: str | None, own: Own | None = None) -> str:
    """Write the merged params.yaml; return the difference (empty: nothing changed)."""
    from coattail.pipeline.pointing import settle

    before, after = merge(name, data, own)
    if before != after:
        with atomic_file(PARAMS) as path:
            path.write_text(after, encoding="utf-8")
    settle(read_yaml(PARAMS), data)
    return _diff(name, before, after)


def describe() -> list[tuple[str, str]]:
    """Name and first line of every overlay, for `coattail data list`."""
    rows = []
    for name, path in available().items():
        section = read_yaml(path).get("dataset")
        comment = path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ").strip()
        title = str(section.get("title", comment)) if isinstance(section, dict) else comment
        rows.append((name, title))
    return rows
