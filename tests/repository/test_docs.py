"""The pages for people: short, wrapped, linked, and all to be found from docs/README.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "docs" / "README.md"
PICTURES = ROOT / "docs" / "pictures"
LARGEST = 30_000
WIDEST = 200
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"\bdocs/[\w./-]*\.(?:md|png|svg)")


@cache
def tracked() -> list[Path]:
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


PAGES = [path for path in tracked() if path.suffix == ".md"]
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


@cache
def prose(page: Path) -> str:
    """A page without its blocks of code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """What a link may name in a page, as GitHub makes it from headings."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.*?) *$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    repeated = {f"{name}-{i}" for name, last in found.items() for i in range(1, last + 1)}
    return set(found) | repeated


def links(page: Path) -> list[tuple[str, Path, str]]:
    """Each link within the project: as written, the file it names, the anchor."""
    found = []
    for written in LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", written):
            name, _, anchor = written.partition("#")
            found.append((written, (page.parent / name).resolve() if name else page, anchor))
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_is_short_and_its_lines_fit_a_screen(page):
    assert page.stat().st_size <= LARGEST, "split it"
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    long = [number for number, line in lines if len(line) > WIDEST and line[:1] != "|"]
    assert not long, f"wrap lines {long}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_of_a_page_leads_somewhere(page):
    for written, target, anchor in links(page):
        assert target.exists(), f"{written}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{written}: no such heading"


def test_every_page_and_picture_of_docs_is_reached_from_its_start():
    seen, todo = {START}, [START]
    while todo:
        for _, target, _ in links(todo.pop()):
            target = target / "README.md" if (target / "README.md").is_file() else target
            if target not in seen:
                seen.add(target)
                todo += [target] if target.suffix == ".md" else []
    kept = {path for path in tracked() if path.is_relative_to(ROOT / "docs")}
    assert not sorted(str(path) for path in kept - seen)


def test_every_page_that_code_and_settings_name_exists():
    for path in tracked():
        if path.suffix in (".py", ".yaml", ".md", ".toml", ".sh", "") and path.name != "dvc.lock":
            text = path.read_text(encoding="utf-8", errors="ignore")
            named = {name for name in PATH.findall(text) if not (ROOT / name).exists()}
            assert not named or path.name == "CHANGELOG.md", f"{path}: no {sorted(named)}"


def test_the_reference_is_written_from_the_code_of_today():
    words = [sys.executable, "-c", "import json, reference; print(json.dumps(reference.pages()))"]
    done = subprocess.run(words, cwd=ROOT / "scripts", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    folder = ROOT / "docs" / "reference"
    stale = {name for name, text in made.items() if read(folder / name) != text}
    extra = {path.name for path in (folder / "params").iterdir()} - {
        Path(name).name for name in made
    }
    assert not stale | extra, "run: make docs"


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def test_the_picture_of_the_leaderboard_shows_the_table_of_the_results():
    """Both are made by hand, after `make repro`; so they are at least of one run."""
    page = read(ROOT / "docs" / "results" / "demo.md")
    table = re.search(r"```\n( +head +tail.*?)\n\n", page, re.DOTALL)[1]
    rows = [row.split() for row in re.sub(r"[*▲▼]", " ", table).splitlines()[3:]]
    drawn = re.findall(r"<text [^>]*>([^<]*)</text>", read(PICTURES / "leaderboard.svg"))
    shown = re.sub(r"&#160;|[▲▼]", " ", " ".join(drawn)).split()
    assert len(rows) == 10
    for row in rows:
        assert " ".join(row) in " ".join(shown), "run: python scripts/leaderboard_picture.py"
