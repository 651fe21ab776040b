"""Write the generated parts of docs/explanation/architecture.md: rooms, stages, who reaches what.

`python scripts/architecture.py` writes them; a test asks that nothing would change.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from coattail.config import read_yaml  # noqa: E402
from coattail.pipeline import code_digest, model_digest, registry  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
CODE = ROOT / "src" / "coattail"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """The page with its generated parts made anew."""
    parts = {
        "rooms": rooms_table(),
        "rooms-picture": rooms_picture(),
        "stages-picture": stages_picture(),
        "reach": reach_table(),
    }
    for name, content in parts.items():
        text = replaced(text, f"<!-- {name} -->", content, f"<!-- end of {name} -->")
    return text


def replaced(text: str, begin: str, content: str, end: str) -> str:
    """The text with something else between two marks."""
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"{PAGE} has no place {begin} ... {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


# --- rooms ---------------------------------------------------------------------------------------


def layers() -> list[list[str]]:
    """Names at the top of the library, highest first, from the first contract in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = contracts["contracts"][0]["layers"]
    return [[name.strip() for name in row.split("|")] for row in rows]


def rooms_table() -> str:
    """Rooms, each followed by the rooms inside it, and the files beside them."""
    rows = ["| room | what it is for | its face | modules |", "| --- | --- | --- | ---: |"]
    for name in [name for row in layers() for name in row]:
        if (CODE / name).is_dir():
            rows += [room_row(path) for path in sorted((CODE / name).rglob("__init__.py"))]
        else:
            rows.append(f"| `{name}.py` | {flat(docstring(CODE / f'{name}.py'))} | | |")
    return "\n".join(rows)


def room_row(path: Path) -> str:
    """What the ``__init__`` of a room says, and how many modules lie beside it."""
    words, _, face = docstring(path).partition("Face: ")
    count = len(list(path.parent.glob("*.py"))) - 1
    room = path.parent.relative_to(CODE)
    return f"| `{room}/` | {flat(words)} | {flat(face).rstrip('.')} | {count or ''} |"


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def flat(words: str) -> str:
    """The first paragraph in one line."""
    return " ".join(words.strip().split("\n\n")[0].split())


def imported_rooms() -> dict[str, set[str]]:
    """Room -> rooms that it imports."""
    found: dict[str, set[str]] = {}
    for module, path in code_digest.modules().items():
        own = room_of(module)
        targets = {room_of(one) for one in code_digest.imports(path)}
        found.setdefault(own, set()).update(targets - {own, ""})
    found.pop("", None)
    return found


def room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if parts[0] == "coattail" and len(parts) > 1 else ""


def rooms_picture() -> str:
    """Who imports whom, without arrows that others imply and without the files beside rooms."""
    rooms = [name for row in layers() for name in row if (CODE / name).is_dir()]
    direct = {room: imported_rooms()[room] & set(rooms) for room in rooms}
    reach = {room: closure(room, direct) for room in rooms}
    lines = ["```mermaid", "flowchart TD"]
    for room in rooms:
        implied = {far for near in direct[room] for far in reach[near]}
        lines += [f"  {room} --> {other}" for other in rooms if other in direct[room] - implied]
    return "\n".join([*lines, "```"])


def closure(start: str, edges: dict[str, set[str]]) -> set[str]:
    todo, seen = [start], set()
    while todo:
        new = edges[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


# --- stages --------------------------------------------------------------------------------------


def stages() -> dict[str, dict]:
    content = read_yaml(ROOT / "dvc.yaml")["stages"]
    return {name: entry.get("do", entry) for name, entry in content.items()}


def paths(entry: dict, kind: str) -> list[str]:
    names = [next(iter(one)) if isinstance(one, dict) else one for one in entry.get(kind, [])]
    return [
        re.sub(r"\$\{(?:\w+\.)?(\w+)\}", r"<\1>", name).replace("<key>", "<v>") for name in names
    ]


# What the stage `code` writes, many files of a kind.
DIGESTS = ("data/code/<stage>.txt", "data/code/models/<model>.txt")
RESULTS = ("data/runs", "data/evaluate.json")
"""What every stage leaves beside its outputs; the page says so once."""
ASIDE = (*RESULTS, "data/code", "conf", "requirements", "src", "stages")
"""What the picture leaves out: digests and results, which all have."""


def stages_picture() -> str:
    """Stages as boxes, folders as rounded ones; an arrow for each that writes or reads."""
    lines = ["```mermaid", "flowchart LR"]
    folders: dict[str, None] = {}
    arrows: dict[str, None] = {}
    for name, entry in stages().items():
        if name == "code":
            continue
        gpu = " (gpu)" if entry.get("meta", {}).get("resources", {}).get("gpu") else ""
        lines.append(f'  {name}["{name}{gpu}"]')
        for kind in ("deps", "outs", "metrics"):
            for folder in [one for path in paths(entry, kind) for one in drawn(path)]:
                folders[folder] = None
                ends = (node(folder), name) if kind == "deps" else (name, node(folder))
                arrows[f"  {ends[0]} --> {ends[1]}"] = None
    lines += [f'  {node(folder)}(["{folder}"])' for folder in folders]
    return "\n".join([*lines, *arrows, "```"])


def drawn(path: str) -> list[str]:
    """The folder of data/ that stands for a path; what is read by a setting may be two."""
    if path.startswith(ASIDE):
        return []
    if path == "<taken_in>":
        return ["data/own"]
    if path == "data/<train>":
        return ["data/features", "data/augmented"]
    return ["/".join(path.split("/")[:2])]


def node(folder: str) -> str:
    return re.sub(r"\W", "_", folder)


def reach_table() -> str:
    """Module -> stages that run again when it changes."""
    found: dict[str, list[str]] = {}
    for stage in stages():
        if stage == "code":
            continue
        for module in code_digest.reached(ROOT / "stages" / f"{stage}.py")[0]:
            found.setdefault(module, []).append(stage)
    for module in set().union(*(model_digest.reached(kind)[0] for kind in registry.built_in())):
        found.setdefault(module, [])
    for module, names in found.items():
        kinds = [k.name for k in registry.built_in() if module in model_digest.reached(k)[0]]
        if kinds and not set(registry.CHOOSING) <= set(names):
            several = len(kinds) == len(registry.built_in())
            names.append("all models" if several else f"model {', '.join(kinds)}")
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for module, names in sorted(found.items()):
        if code_digest.modules()[module].stem != "__init__":
            room, _, own = module.removeprefix("coattail.").rpartition(".")
            grouped.setdefault((room, tuple(names)), []).append(own)
    rows = ["| room | modules | stages that depend on them |", "| --- | --- | --- |"]
    for (room, names), own in sorted(grouped.items()):
        everywhere = len(names) == len(stages()) - 1
        rows.append(
            f"| {room.replace('.', '/') or '(top)'} | {', '.join(own)} | "
            f"{'all' if everywhere else ', '.join(names)} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
