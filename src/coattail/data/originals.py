"""Originals in the forms of their publishers: JSON files per act, SGML, rows and lists of rows."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from coattail.errors import DataError

Document = dict[str, Any]

STRONGEST = 9
"""Preset of xz that the entries' files were packed with."""


def eurlex57k(source: Path, target: Path) -> None:
    """EURLEX57K as its authors offer it: train/, dev/, test/ with a JSON file per act.

    A text is its title, header, recitals and the parts of its main body, one below the other.
    """
    used: set[str] = set()
    for split in ("train", "dev", "test"):
        files = sorted(_one_folder(source, split).glob("*.json"), key=lambda path: path.name)
        if not files:
            raise DataError(f"{source} has no {split}/*.json; wanted the unpacked dataset.zip")
        acts = [_act(path) for path in files]
        used |= {label for act in acts for label in act["labels"]}
        _pack(target / f"{split}.jsonl.xz", acts)
    concepts = json.loads(_find(source, "EURLEX57K.json").read_text(encoding="utf-8"))
    names = {label: concepts[label]["label"] for label in sorted(used) if label in concepts}
    text = json.dumps(names, indent=0, ensure_ascii=False)
    (target / "label_names.json").write_text(text, encoding="utf-8")


def _act(path: Path) -> Document:
    try:
        act = json.loads(path.read_text(encoding="utf-8"))
        parts = [act["title"], act["header"], act["recitals"], *act["main_body"]]
        return {
            "id": act["celex_id"],
            "text": "\n".join(part for part in parts if part),
            "labels": sorted(act["concepts"]),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no act of EURLEX57K: {error!r}") from None


def xmc_repository(source: Path, target: Path) -> None:
    """A small set of the XMC repository: one data file, and columns of row numbers per split.

    The first column is taken; rows are numbered from 1. ``train.txt`` and ``test.txt`` keep the
    order of the list.
    """
    data = _find(source, "*_data.txt")
    header, *rows = data.read_text(encoding="utf-8").split("\n")
    size, *others = header.split()
    rows = rows[: int(size)]
    for split, pattern in (("train", "*trSplit.txt"), ("test", "*tstSplit.txt")):
        chosen = [int(line.split()[0]) for line in _find(source, pattern).read_text().splitlines()]
        if not chosen or min(chosen) < 1 or max(chosen) > len(rows):
            raise DataError(
                f"{source}: {pattern} names rows {min(chosen, default=0)} to "
                f"{max(chosen, default=0)}; {data.name} has 1 to {len(rows)}"
            )
        text = "".join(f"{_short(rows[number - 1])}\n" for number in chosen)
        head = " ".join([str(len(chosen)), *others])
        (target / f"{split}.txt").write_text(f"{head}\n{text}", encoding="utf-8")


def _short(row: str) -> str:
    """Labels and values as the entries have them: 0:1 for 0:1.000000."""
    labels, _, pairs = row.rstrip("\r").partition(" ")
    split = [pair.split(":") for pair in pairs.split()]
    return " ".join([labels, *(f"{index}:{float(value):g}" for index, value in split)])


REUTERS_TEST_FROM = datetime(1987, 4, 8)
"""Train until 7 April 1987, as in the ModApte split."""
STORY = re.compile(r'<REUTERS [^>]*NEWID="(\d+)">(.*?)</REUTERS>', re.DOTALL)


def reuters(source: Path, target: Path) -> None:
    """Reuters-21578 as its SGML files: stories with a topic and a body, split by their date."""
    files = sorted(source.rglob("reut2-*.sgm"))
    if not files:
        raise DataError(f"{source} has no reut2-*.sgm; wanted the unpacked reuters21578.tar.gz")
    stories = [story for path in files for story in _stories(path)]
    for split, wanted in (("train", False), ("test", True)):
        chosen = [text for date, text in stories if (date >= REUTERS_TEST_FROM) == wanted]
        _pack(target / f"{split}.jsonl.xz", chosen)


def _stories(path: Path) -> Iterator[tuple[datetime, Document]]:
    text = path.read_text(encoding="latin-1")
    for number, story in STORY.findall(text):
        topics = re.findall(r"<D>(.*?)</D>", _between(story, "TOPICS"))
        body = _between(story, "BODY")
        if not topics or not body:
            continue
        said = f"{_between(story, 'TITLE')}\n{body}"
        tidy = re.sub(r" +", " ", _characters(said))
        date = datetime.strptime(_between(story, "DATE").split()[0], "%d-%b-%Y")
        yield date, {"id": number, "text": tidy.strip(), "labels": sorted(set(topics))}


def _characters(text: str) -> str:
    """What SGML writes as references; the collection has control characters, which HTML drops."""
    text = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _between(story: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", story, re.DOTALL)
    return found[1].strip() if found else ""


def _pack(path: Path, documents: Iterable[Document]) -> None:
    with lzma.open(path, "wt", preset=STRONGEST, encoding="utf-8", newline="\n") as file:
        for document in documents:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")


def _one_folder(source: Path, name: str) -> Path:
    """A folder of that name, wherever the archive put it."""
    found = [path for path in sorted(source.rglob(name)) if path.is_dir()]
    return found[0] if found else source / name


def _find(source: Path, *patterns: str) -> Path:
    """The one file that matches the first pattern that any matches."""
    for pattern in patterns:
        found = sorted(source.rglob(pattern))
        if len(found) == 1:
            return found[0]
    raise DataError(f"{source} has no file {' or '.join(patterns)}, or more than one")
