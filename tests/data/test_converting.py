"""Originals in their publishers' forms become the files that entries name."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from coattail.data import converting, expected, originals, regimes
from coattail.errors import ConfigError, DataError, DownloadError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def packed(path: Path) -> list[dict]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_rows_of_the_xmc_repository_are_picked_by_the_first_list(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    rows = ["0,2 1:1.000000 3:0.500000", "1 0:1.000000", " 2:1.000000", "2 1:1.000000"]
    (source / "Small_data.txt").write_text("\n".join(["4 4 3", *rows]) + "\n")
    (source / "small_trSplit.txt").write_text("3 1\n1 2\n")
    (source / "small_tstSplit.txt").write_text("2 3\n4 4\n")
    originals.xmc_repository(source, target)
    assert (target / "train.txt").read_text() == "2 4 3\n 2:1\n0,2 1:1 3:0.5\n"
    assert (target / "test.txt").read_text() == "2 4 3\n1 0:1\n2 1:1\n"
    (source / "small_tstSplit.txt").write_text("5 1\n")
    with pytest.raises(DataError, match=r"names rows 5 to 5; Small_data\.txt has 1 to 4"):
        originals.xmc_repository(source, target)


def test_acts_become_texts_in_the_order_of_their_files(tmp_path: Path) -> None:
    source, target = tmp_path / "from" / "dataset", tmp_path / "to"
    target.mkdir()
    for split, ids in (("train", ["2R(01)", "2R"]), ("dev", ["3"]), ("test", ["4"])):
        (source / split).mkdir(parents=True)
        for id in ids:
            act = {
                "celex_id": id, "title": "Title", "header": "HEADER", "recitals": "",
                "main_body": ["One.", "Zwei – é."], "concepts": ["20", "10"],
            }  # fmt: skip
            (source / split / f"{id}.json").write_text(json.dumps(act))
    names = {"10": {"label": "trade"}, "20": {"label": "é"}, "30": {"label": "unused"}}
    (source / "EURLEX57K.json").write_text(json.dumps(names))
    originals.eurlex57k(tmp_path / "from", target)
    train = packed(target / "train.jsonl.xz")
    assert [one["id"] for one in train] == ["2R(01)", "2R"]  # "(" comes before "."
    assert train[0]["text"] == "Title\nHEADER\nOne.\nZwei – é."
    assert train[0]["labels"] == ["10", "20"]
    assert (target / "label_names.json").read_text() == '{\n"10": "trade",\n"20": "é"\n}'
    (source / "dev" / "3.json").write_text("{}")
    with pytest.raises(DataError, match=r"3\.json is no act of EURLEX57K"):
        originals.eurlex57k(tmp_path / "from", target)


STORY = """<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="X" OLDID="5" NEWID="{id}">
<DATE>{date} 15:01:01.79</DATE>
<TOPICS>{topics}</TOPICS>
<PLACES><D>usa</D></PLACES>
<TEXT>&#2;
<TITLE>COCOA &lt;CO> UP</TITLE>
<DATELINE>    ROME - </DATELINE><BODY>{body}</BODY></TEXT>
</REUTERS>
"""


def test_stories_are_split_by_date_and_need_a_topic_and_a_body(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    cocoa = "<D>tea</D><D>cocoa</D>"
    stories = [
        {"id": 1, "date": "26-FEB-1987", "topics": cocoa, "body": "Up\n    much. Reuter\n&#3;"},
        {"id": 2, "date": " 7-APR-1987", "topics": "", "body": "No topic."},
        {"id": 3, "date": " 8-APR-1987", "topics": cocoa, "body": "Later."},
        {"id": 4, "date": " 7-APR-1987", "topics": cocoa, "body": ""},
    ]
    text = "<!DOCTYPE lewis>\n" + "".join(STORY.format(**story) for story in stories)
    (source / "reut2-000.sgm").write_text(text, encoding="latin-1")
    originals.reuters(source, target)
    train, test = packed(target / "train.jsonl.xz"), packed(target / "test.jsonl.xz")
    assert [one["id"] for one in train] == ["1"]
    assert train[0]["labels"] == ["cocoa", "tea"]
    assert train[0]["text"] == "COCOA <CO> UP\nUp\n much. Reuter\n\x03"
    assert [one["id"] for one in test] == ["3"]
    with pytest.raises(DataError, match="no reut2"):
        originals.reuters(target, source)


def test_a_conversion_needs_a_name_a_source_and_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'bibtex'"):
        converting.convert("bibtexx", tmp_path, tmp_path / "to")
    with pytest.raises(ConfigError, match="is no folder"):
        converting.convert("bibtex", tmp_path / "nowhere", tmp_path / "to")
    with pytest.raises(ConfigError, match="is there already"):
        converting.convert("bibtex", tmp_path, tmp_path)
    for name in ("train.jsonl.xz", "dev.jsonl.xz", "test.jsonl.xz", "label_names.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(DownloadError, match="refused"):  # not the files that the cut is made of
        converting.convert("eurlex57k-15k", tmp_path, tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.shared_data
@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data")
def test_the_regimes_are_cut_to_the_byte_and_have_their_shape(tmp_path: Path) -> None:
    assert set(converting.FROM_ENTRY) == {"eurlex57k-15k", "eurlex57k-8k"}
    found = {
        name: converting.convert(name, SHARED / regimes.ORIGIN, tmp_path / name)
        for name in converting.FROM_ENTRY
    }
    assert all(file.right for files in found.values() for file in files)
    counts = {name: texts_per_label(tmp_path / name / "train.jsonl") for name in found}
    large, small = counts["eurlex57k-15k"], counts["eurlex57k-8k"]
    assert (len(large), sum(n == 1 for n in large.values())) == (3318, 768)
    assert round(sum(large.values()) / 15_449, 1) == 5.1
    assert (len(small), min(small.values())) == (1991, 2)


def texts_per_label(path: Path) -> Counter[str]:
    with open(path, encoding="utf-8") as file:
        return Counter(label for line in file for label in json.loads(line)["labels"])


def test_what_an_entry_expects_is_compared_to_one_percent() -> None:
    stats = {"tfidf_terms": 5000, "labels_per_text": 5.3, "words_per_text": 100.0}
    assert expected.differing({"features": 5000, "labels_per_text": 5.25}, stats) == []
    assert expected.differing({"words": 102.0, "features": None}, stats) == [
        "words: 100 where 102 is expected"
    ]
