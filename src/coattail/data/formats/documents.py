"""Readers of every input format: strict, streaming, every error with its file and line."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from coattail.data.formats.lines import LONGEST_LINE, fail, lines
from coattail.data.formats.xmc import read_xmc, write_xmc
from coattail.errors import DataError

__all__ = ["Document", "documents", "label_names", "read_xmc", "write_xmc"]


class Document(NamedTuple):
    """One text; ``complete`` is the complete label set Y*, known for generated corpora only."""

    id: str
    text: str
    labels: list[str]
    complete: list[str] | None


def documents(
    path: str | Path,
    format: str,
    separator: str = "|",
    columns: tuple[str, str] = ("text", "labels"),
) -> Iterator[Document]:
    """The texts of a file, one at a time.

    Parameters
    ----------
    path : file, plain or compressed (.gz, .xz)
    format : ``jsonl``, ``csv`` or ``pairs`` (see docs/reference/file-formats.md)
    separator : what stands between two labels in a csv cell
    columns : names of the csv columns with the text and with the labels
    """
    path = Path(path)
    read = {"jsonl": _jsonl, "pairs": _pairs}.get(format)
    if format == "csv":
        found = _csv(path, separator, columns)
    elif read is not None:
        found = read(path)
    else:
        raise DataError(f"{path}: got format {format!r}; wanted jsonl, csv or pairs")
    if not path.is_file():
        raise DataError(f"{path} is missing; run dvc repro download")
    return _at_least_one(path, found)


def label_names(path: str | Path) -> dict[str, str]:
    """Readable names of labels: a JSON object, or lines of text (line i names label i)."""
    path = Path(path)
    if ".json" not in path.suffixes:
        return {str(line - 1): text for line, text in lines(path)}
    try:
        content = json.loads("\n".join(text for _, text in lines(path)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}; wanted an object label: name") from None
    if not isinstance(content, dict) or not all(isinstance(v, str) for v in content.values()):
        raise DataError(f"{path}: wanted a JSON object that gives every label a name (a string)")
    return content


def _at_least_one(path: Path, found: Iterator[Document]) -> Iterator[Document]:
    first = next(found, None)
    if first is None:
        raise DataError(f"{path} is empty; wanted at least one text")
    yield first
    yield from found


def _stem(path: Path) -> str:
    """``train`` of ``train.jsonl.xz``."""
    return path.name.split(".", 1)[0]


# --- JSON lines, CSV, pairs ----------------------------------------------------------------------


def _jsonl(path: Path) -> Iterator[Document]:
    blank, stem = 0, _stem(path)
    for line, text in lines(path):
        if not text.strip():
            blank = blank or line
            continue
        if blank:
            fail(path, blank, "got an empty line between texts; wanted one JSON object per line")
        record = _json_object(path, line, text)
        for key in ("text", "labels"):
            if key not in record:
                have = ", ".join(sorted(record)) or "no key"
                fail(path, line, f"got an object with {have}; wanted the keys text and labels")
        found = record["text"]
        if not isinstance(found, str):
            fail(path, line, f"got text {_show(found)}; wanted a string")
        name = record.get("id")
        if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
            fail(path, line, f"got id {_show(name)}; wanted a string or a whole number")
        complete = record.get("complete")
        document = Document(
            f"{stem}:{line}" if name is None else str(name),
            found,
            _label_list(path, line, "labels", record["labels"]),
            None if complete is None else _label_list(path, line, "complete", complete),
        )
        if "\\u" in text:
            _refuse_half_characters(path, line, document)
        yield document


def _json_object(path: Path, line: int, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        fail(path, line, f"got no valid JSON ({error}); wanted one object per line")
    if not isinstance(record, dict):
        fail(path, line, f"got {_show(record)}; wanted a JSON object with text and labels")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _refuse_half_characters(path: Path, line: int, document: Document) -> None:
    try:
        for part in (document.id, document.text, *document.labels, *(document.complete or [])):
            part.encode("utf-8")
    except UnicodeEncodeError:
        fail(path, line, "got half of a surrogate pair (\\ud800 or the like); wanted text")


def _label_list(path: Path, line: int, key: str, found: object) -> list[str]:
    """Labels as strings, each once, in the order given."""
    if not isinstance(found, list):
        fail(path, line, f"got {key} {_show(found)}; wanted a list of strings ([] for none)")
    for label in found:
        if isinstance(label, bool) or not isinstance(label, str | int):
            fail(path, line, f"got the label {_show(label)}; wanted a string (or a whole number)")
        if isinstance(label, str) and (not label.strip() or "\n" in label or "\r" in label):
            fail(path, line, f"got the label {label!r}; wanted a name on one line, not empty")
    return list(dict.fromkeys(str(label) for label in found))


def _show(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _csv(path: Path, separator: str, wanted: tuple[str, str]) -> Iterator[Document]:
    # The default limit of 128 KiB per cell is shorter than many texts.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    rows = csv.reader((text for _, text in lines(path, keep_ends=True)), strict=True)
    columns: dict[str, int] | None = None
    blank, stem, line = 0, _stem(path), 1
    while True:
        line = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            fail(path, line, f"got a broken record ({error}); wanted quotes closed and doubled")
        if not row:
            blank = blank or line
            continue
        if blank:
            fail(path, blank, "got an empty line between records; wanted one record per text")
        if columns is None:
            columns = _csv_columns(path, line, row, wanted)
            width = len(row)
            continue
        if len(row) != width:
            fail(path, line, f"got {len(row)} fields; wanted {width}, as in the header")
        cells = {name: row[position] for name, position in columns.items()}
        yield Document(
            cells.get("id") or f"{stem}:{line}",
            cells["text"],
            _split_labels(path, line, "labels", cells["labels"], separator),
            _split_labels(path, line, "complete", cells["complete"], separator)
            if "complete" in cells
            else None,
        )


def _csv_columns(
    path: Path, line: int, header: list[str], wanted: tuple[str, str]
) -> dict[str, int]:
    """Where the columns stand: text, labels, and id and complete where there are such."""
    found = [name.strip() for name in header]
    if not set(wanted) <= set(found):
        names = " and ".join(wanted)
        fail(path, line, f"got the header {','.join(found)!r}; wanted columns {names}")
    roles = {"text": wanted[0], "labels": wanted[1], "id": "id", "complete": "complete"}
    if any(found.count(name) > 1 for name in roles.values()):
        fail(path, line, f"got a column twice in the header {','.join(found)!r}; wanted it once")
    return {role: found.index(name) for role, name in roles.items() if name in found}


def _split_labels(path: Path, line: int, key: str, cell: str, separator: str) -> list[str]:
    if not cell.strip():
        return []
    return _label_list(path, line, key, [label.strip() for label in cell.split(separator)])


def _pairs(path: Path) -> Iterator[Document]:
    """Line i of ``train.txt`` with the labels of line i of ``train.labels.txt``."""
    beside = path.with_name(path.name.replace(_stem(path), f"{_stem(path)}.labels", 1))
    if not beside.is_file():
        raise DataError(f"{beside} is missing; {path.name} needs its labels beside it")
    stem = _stem(path)
    for text, labels in itertools.zip_longest(lines(path), lines(beside)):
        if text is None or labels is None:
            short, line = (path, labels[0]) if text is None else (beside, text[0])
            raise DataError(
                f"{short} ends before line {line}; wanted as many lines in {path.name} "
                f"as in {beside.name}"
            )
        yield Document(f"{stem}:{text[0]}", text[1], list(dict.fromkeys(labels[1].split())), None)
