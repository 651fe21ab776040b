"""A folder that is no dataset is refused before anything is built on it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from coattail.config import parse
from coattail.data.dataset_params import DatasetParams
from coattail.data.first_look import check_separator, look
from coattail.errors import CoattailError, DataError, DownloadError


def dataset(format: str, **fields: Any) -> DatasetParams:
    return parse({"name": "x", "format": format} | fields, DatasetParams, "dataset")


def folder(tmp_path: Path, **files: str) -> Path:
    """``train_csv="..."`` becomes train.csv, and test the same unless it is given."""
    for name, content in files.items():
        (tmp_path / name.replace("_", ".")).write_text(content)
        other = name.replace("train", "test")
        if other not in files:
            (tmp_path / other.replace("_", ".")).write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("format", "files", "message"),
    [
        ("jsonl", {"train_jsonl": '{"body": "a", "labels": []}\n'}, "train.jsonl, line 1: .*text"),
        ("jsonl", {"train_jsonl": "text,labels\n"}, "train.jsonl, line 1: got no valid JSON"),
        ("jsonl", {"train_json": "{}"}, "no train split: wanted train.jsonl"),
        ("csv", {"train_csv": "body,tags\na,b\n"}, "line 1: got the header 'body,tags'; wanted"),
        ("csv", {"train_csv": "text,labels\na,b,c\n"}, "line 2: got 3 fields; wanted 2"),
        ("csv", {"train_csv": ""}, "train.csv is empty"),
        ("pairs", {"train_txt": "a\n"}, r"no train.labels.txt"),
        ("xmc", {"train_txt": "a b c\n"}, "train.txt, line 1"),
        ("xmc", {"train_txt": "1 2 2\n5 0:1\n"}, "train.txt, line 2"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(tmp_path, format, files, message):
    with pytest.raises(CoattailError, match=message):
        look(dataset(format), folder(tmp_path, **files))


def test_every_split_is_looked_at(tmp_path):
    good = '{"text": "a", "labels": []}\n'
    source = folder(tmp_path, train_jsonl=good, test_jsonl='{"text": "a"}\n')
    with pytest.raises(DataError, match=r"test\.jsonl, line 1"):
        look(dataset("jsonl"), source)


def test_packed_files_and_label_names_are_looked_into(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(b'{"text": "", "labels": []}\n'))
    look(dataset("jsonl"), tmp_path)
    (tmp_path / "label_names.json").write_text("[]")
    with pytest.raises(DataError, match="label_names"):
        look(dataset("jsonl"), tmp_path)


def test_a_size_that_is_not_the_entrys_is_refused_at_once(tmp_path):
    files = {"train": {"name": "train.jsonl", "size": 7}, "test": {"name": "test.jsonl"}}
    source = folder(tmp_path, train_jsonl='{"text": "", "labels": []}\n')
    with pytest.raises(DownloadError, match=r"train\.jsonl: got 27 bytes; wanted 7; refused"):
        look(dataset("jsonl", files=files), source)


def test_only_the_first_rows_are_read(tmp_path):
    good = '{"text": "a", "labels": []}\n'
    look(dataset("jsonl"), folder(tmp_path, train_jsonl=good * 100 + "broken\n"))


def test_columns_have_the_names_that_are_given(tmp_path):
    source = folder(tmp_path, train_csv="body,tags,text\na,x;y,no\n")
    entry = dataset("csv", text_column="body", label_column="tags", label_separator=";")
    look(entry, source)
    check_separator(entry, source)
    with pytest.raises(DataError, match="wanted columns body and labels"):
        look(dataset("csv", text_column="body"), source)


@pytest.mark.parametrize(
    ("cells", "fits"),
    [
        (["x;y", "z", "x;z;y"], False),
        (['"x, y"', '"y, z"'], False),
        (["x|y", '"a, b"', '"c, d"'], True),
        (["x", "y;z", "z"], True),
        (["", ""], True),
    ],
)
def test_labels_that_hold_another_separator_are_suspected(tmp_path, cells, fits):
    rows = "".join(f"t,{cell}\n" for cell in cells)
    source = folder(tmp_path, train_csv=f"text,labels\n{rows}")
    if fits:
        check_separator(dataset("csv"), source)
    else:
        with pytest.raises(DataError, match=r"what stands between two labels: --separator '[;,]'"):
            check_separator(dataset("csv"), source)
