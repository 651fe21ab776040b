"""Readers of texts: what was written comes back, what is broken is located."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coattail.data.formats.documents import Document, documents, label_names
from coattail.errors import DataError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
few = settings(max_examples=50, deadline=None)


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(raw))
    return path


def line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


# --- JSON lines ----------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1).filter(
    str.strip
)
rows = st.lists(st.tuples(words, st.lists(names, max_size=3, unique=True)), min_size=1, max_size=4)


@few
@given(rows, st.booleans(), st.sampled_from(["train.jsonl", "train.jsonl.gz", "train.jsonl.xz"]))
def test_json_lines_come_back_as_written(tmp_path_factory, rows, ascii_only, name):
    text = "".join(
        json.dumps({"text": text, "labels": labels}, ensure_ascii=ascii_only) + "\n"
        for text, labels in rows
    )
    path = put(tmp_path_factory.mktemp("jsonl"), name, text)
    wanted = [Document(f"train:{i}", t, labels, None) for i, (t, labels) in enumerate(rows, 1)]
    assert list(documents(path, "jsonl")) == wanted


def test_optional_keys_and_conversions_of_json_lines(tmp_path):
    text = (
        line(id=7, text="a", labels=[3, "x", 3], complete=["x", "y"], other=1.5)
        + line(text="", labels=[])
        + '{"id": null, "text": "b", "labels": ["x"]}\r\n'
    )
    assert list(documents(put(tmp_path, "dev.jsonl", "\ufeff" + text), "jsonl")) == [
        Document("7", "a", ["3", "x"], ["x", "y"]),
        Document("dev:2", "", [], None),
        Document("dev:3", "b", ["x"], None),
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"text": "a"}', "got an object with text; wanted the keys text and labels"),
        ("{}", "got an object with no key"),
        ('{"text": NaN, "labels": []}', "NaN is no JSON value"),
        ('{"text": null, "labels": []}', "got text null; wanted a string"),
        ('{"text": 3, "labels": []}', "got text 3"),
        ('{"text": "a", "labels": "x"}', 'got labels "x"; wanted a list'),
        ('{"text": "a", "labels": null}', "got labels null; wanted a list"),
        ('{"text": "a", "labels": [1.5]}', "got the label 1.5"),
        ('{"text": "a", "labels": [true]}', "got the label true"),
        ('{"text": "a", "labels": [""]}', "got the label ''"),
        ('{"text": "a", "labels": ["a\\nb"]}', "wanted a name on one line"),
        ('{"text": "a", "labels": [], "complete": 1}', "got complete 1"),
        ('{"text": "a", "labels": [], "id": [1]}', r"got id \[1\]"),
        ('{"text": "\\ud800", "labels": []}', "half of a surrogate pair"),
        ('["a"]', "wanted a JSON object"),
        ('{"text": "a", "labels": []', "got no valid JSON"),
        ("[" * 100_000, "got no valid JSON"),
    ],
)
def test_a_bad_json_line_is_located(tmp_path, bad, message):
    path = put(tmp_path, "train.jsonl", line(text="a", labels=["x"]) + bad + "\n")
    with pytest.raises(DataError, match=message) as error:
        list(documents(path, "jsonl"))
    assert str(error.value).startswith(f"{path}, line 2: ")


def test_empty_lines_are_allowed_at_the_end_only(tmp_path):
    good = line(text="a", labels=[])
    assert len(list(documents(put(tmp_path, "a.jsonl", good + "\n \n"), "jsonl"))) == 1
    path = put(tmp_path, "b.jsonl", good + "\n" + good)
    with pytest.raises(DataError, match="line 2: got an empty line between texts"):
        list(documents(path, "jsonl"))


def test_bytes_that_are_no_utf8_are_located_by_line_and_offset(tmp_path):
    path = put(tmp_path, "a.jsonl.gz", line(text="a", labels=[]).encode() + b'{"text": "\xff"}\n')
    offset = len(line(text="a", labels=[])) + 10
    with pytest.raises(DataError, match=f"line 2: got byte 0xff at offset {offset}"):
        list(documents(path, "jsonl"))


@pytest.mark.parametrize("format", ["jsonl", "csv", "pairs"])
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_an_empty_file_is_refused(tmp_path, format, suffix):
    path = put(tmp_path, f"train.txt{suffix}", "")
    put(tmp_path, f"train.labels.txt{suffix}", "")
    with pytest.raises(DataError, match="is empty"):
        list(documents(path, format))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.xz"])
def test_a_truncated_or_wrong_stream_is_refused(tmp_path, name):
    path = put(tmp_path, name, "".join(line(text=str(i), labels=[]) for i in range(5000)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="ends in the middle"):
        list(documents(path, "jsonl"))
    path.write_text("plain text, whatever the name says")
    with pytest.raises(DataError, match="is not an intact"):
        list(documents(path, "jsonl"))


def test_a_missing_file_and_an_unknown_format_are_named_at_once(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.jsonl is missing"):
        documents(tmp_path / "nothing.jsonl", "jsonl")
    with pytest.raises(DataError, match="wanted jsonl, csv or pairs"):
        documents(put(tmp_path, "a.txt", "a"), "xml")


# --- CSV and pairs -------------------------------------------------------------------------------

cells = st.text(st.characters(codec="utf-8"), max_size=20)
tags = st.text(st.characters(codec="utf-8", exclude_characters="\r\n|"), min_size=1).filter(
    lambda name: name == name.strip() and name.strip()
)


@few
@given(st.lists(st.tuples(cells, st.lists(tags, max_size=3, unique=True)), min_size=1, max_size=4))
def test_csv_comes_back_as_written(tmp_path_factory, rows):
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["labels", "ignored", "id", "text"])
    for i, (text, labels) in enumerate(rows):
        writer.writerow(["|".join(labels), "x", f"n{i}", text])
    path = put(tmp_path_factory.mktemp("csv"), "train.csv", out.getvalue())
    wanted = [Document(f"n{i}", text, labels, None) for i, (text, labels) in enumerate(rows)]
    assert list(documents(path, "csv")) == wanted


def test_csv_with_another_separator_long_cells_and_no_id(tmp_path):
    long = "word " * 50_000
    text = f'text,labels,complete\n"two\nlines",a; b,a;b;c\n{long},,\n'
    assert list(documents(put(tmp_path, "test.csv.xz", text), "csv", separator=";")) == [
        Document("test:2", "two\nlines", ["a", "b"], ["a", "b", "c"]),
        Document("test:4", long, [], []),
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("words,labels\na,b\n", "line 1: got the header 'words,labels'"),
        ("text,labels,text\na,b,c\n", "line 1: got a column twice"),
        ("text,labels\na,b\nc\n", "line 3: got 1 fields; wanted 2"),
        ('text,labels\na,b\n"c,d\n', "line 3: got a broken record"),
        ('text,labels\n"a"b,c\n', "line 2: got a broken record"),
        ("text,labels\na,x||y\n", "line 2: got the label ''"),
        ("text,labels\n\na,b\n", "line 2: got an empty line"),
        ("text,labels\n", "is empty"),
    ],
)
def test_a_bad_csv_is_located(tmp_path, bad, message):
    with pytest.raises(DataError, match=message):
        list(documents(put(tmp_path, "train.csv", bad), "csv"))


def test_pairs_are_joined_line_by_line(tmp_path):
    put(tmp_path, "train.labels.txt", "b a b\n\n")
    path = put(tmp_path, "train.txt", "one text\nanother")
    assert list(documents(path, "pairs")) == [
        Document("train:1", "one text", ["b", "a"], None),
        Document("train:2", "another", [], None),
    ]


def test_pairs_of_different_length_or_without_labels_are_refused(tmp_path):
    path = put(tmp_path, "train.txt", "one\ntwo\n")
    with pytest.raises(DataError, match=r"train\.labels\.txt is missing"):
        list(documents(path, "pairs"))
    put(tmp_path, "train.labels.txt", "a\n")
    with pytest.raises(DataError, match=r"train\.labels\.txt ends before line 2"):
        list(documents(path, "pairs"))


def test_label_names_as_json_and_as_lines(tmp_path):
    assert label_names(put(tmp_path, "names.json", '{"10": "trade"}')) == {"10": "trade"}
    assert label_names(put(tmp_path, "names.txt", "trade\nlaw\n")) == {"0": "trade", "1": "law"}
    with pytest.raises(DataError, match="wanted a JSON object"):
        label_names(put(tmp_path, "bad.json", '["trade"]'))
    with pytest.raises(DataError, match="is not JSON"):
        label_names(put(tmp_path, "worse.json", "{"))


# --- real data -----------------------------------------------------------------------------------


@pytest.mark.shared_data
def test_eurlex57k_has_the_published_size():
    if not SHARED.exists():
        pytest.skip("../shared/data is absent")
    found = list(documents(SHARED / "eurlex57k" / "dev.jsonl.xz", "jsonl"))
    assert len(found) == 6000
    assert len({document.id for document in found}) == 6000
