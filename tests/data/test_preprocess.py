"""Preprocessing end to end: what Features reads back, statistics, pictures, repeated bytes."""

import gzip
import json
import logging
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coattail.config import parse
from coattail.data import text
from coattail.data.corpus import PreprocessParams, validation_rows
from coattail.data.demo_corpus import DemoParams, generate
from coattail.data.features import Features
from coattail.data.formats.xmc import read_xmc
from coattail.data.preprocess import prepare
from coattail.data.stored import SPLITS
from coattail.errors import ConfigError, DataError
from coattail.labels.frequency import bands, inverse_propensity

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

TRAIN = [
    {"id": "a", "text": "Red cat. Red dog", "labels": ["pets", "colours"]},
    {"id": "b", "text": "the cat sleeps", "labels": ["pets"]},
    {"id": "c", "text": "red wine", "labels": ["colours", "drinks"]},
    {"id": "d", "text": "", "labels": []},
]
VALID = [{"id": "e", "text": "the red horse", "labels": ["colours"]}]
TEST = [
    {"id": "f", "text": "blue dog the cat", "labels": ["pets", "never in train"]},
    {"id": "a", "text": "wine", "labels": ["drinks"]},
]


def write_raw(folder, splits, **more):
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for split, documents in splits.items():
        files[split] = f"{split}.jsonl"
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / files[split]).write_text(lines, encoding="utf-8")
    manifest = {"name": "tiny", "format": "jsonl", "files": files}
    manifest |= {"propensity": {"A": 0.55, "B": 1.5}} | more
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def raw(tmp_path):
    return write_raw(tmp_path / "raw", {"train": TRAIN, "valid": VALID, "test": TEST})


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# --- texts ---------------------------------------------------------------------------------------


def test_features_read_back_what_the_texts_say(raw, tmp_path):
    prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))
    f = Features(tmp_path / "out")
    # By texts of train that have the word (red 2, cat 2, the others 1), equals by name.
    assert f.words == ["cat", "red", "dog", "sleeps", "the", "wine"]
    assert f.vocabulary == [*text.SPECIAL, *f.words]
    assert f.label_names == ["colours", "drinks", "never in train", "pets"]
    assert f.Y("train").toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 1], [1, 1, 0, 0], [0] * 4]
    assert f.Y("test").toarray().tolist() == [[0, 0, 1, 1], [0, 1, 0, 0]]
    assert f.counts.tolist() == [3, 1, 0, 2]
    assert f.inverse_propensity == pytest.approx(inverse_propensity([3, 1, 0, 2], 5))
    assert f.bands.tolist() == bands([3, 1, 0, 2]).tolist()
    assert [f.tokens("train").row(i).tolist() for i in range(4)] == [
        [3, 2, 3, 4],
        [6, 2, 5],
        [3, 7],
        [text.UNK],
    ]
    assert f.tokens("valid").row(0).tolist() == [6, 3, text.UNK]
    assert f.vectors is None
    assert all(f.complete(split) is None for split in SPLITS)


def test_rows_have_length_one_and_idf_comes_from_train_only(raw, tmp_path):
    prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))
    f = Features(tmp_path / "out")
    X = f.X("valid").toarray()[0]  # "the red horse"; horse is unknown, df of the is 1, of red 2
    the, red = np.log(5 / 2) + 1, np.log(5 / 3) + 1
    assert X[f.words.index("the")] == pytest.approx(the / np.hypot(the, red), abs=1e-6)
    lengths = np.linalg.norm(f.X("train").toarray(), axis=1)
    assert lengths == pytest.approx([1, 1, 1, 0], abs=1e-6)
    assert f.X("train").dtype == np.float32


def test_words_of_titles_are_terms_of_their_own(tmp_path):
    texts = ["red fish\nblue sea, blue sky", "\n\nblue fish\nred sea", "red", ""]
    lines = [json.dumps({"id": str(i), "text": t, "labels": ["x"]}) for i, t in enumerate(texts)]
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    files = {split: f"{split}.jsonl" for split in ("train", "valid", "test")}
    manifest = {"name": "toy", "format": "jsonl", "files": files}
    manifest["propensity"] = {"A": 0.55, "B": 1.5}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    prepare(tmp_path, tmp_path / "out", PreprocessParams(min_df=2, title_weight=3.0))
    f = Features(tmp_path / "out")
    assert f.words == ["red", "blue", "fish", "sea", "title:fish", "title:red"]
    three, two = np.log(5 / 4) + 1, np.log(5 / 3) + 1
    assert f.vectorizer.idf == pytest.approx([three, two, two, two, 3 * two, 3 * two])
    row = np.array([three, two * (1 + np.log(2)), two, two, 3 * two, 3 * two])
    assert f.X("train").toarray()[0] == pytest.approx(row / np.linalg.norm(row), abs=1e-6)
    assert f.X("train").toarray()[1, 5] == 0  # red stands below the title


def test_min_df_ngrams_and_limits_choose_the_terms(raw, tmp_path):
    prepare(raw, tmp_path / "a", PreprocessParams(min_df=2))
    assert Features(tmp_path / "a").words == ["cat", "red"]
    prepare(raw, tmp_path / "b", PreprocessParams(min_df=1, ngrams=2, max_words=4))
    assert Features(tmp_path / "b").words == ["cat", "red", "cat red", "cat sleeps"]
    prepare(raw, tmp_path / "c", PreprocessParams(min_df=1, vocabulary=1, max_tokens=2))
    f = Features(tmp_path / "c")
    assert f.vocabulary == [*text.SPECIAL, "cat"]
    assert f.tokens("train").row(0).tolist() == [text.UNK, 2]


def test_statistics_count_what_is_odd_and_duplicate_ids_are_warned_of(raw, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "coattail"):
        stats = prepare(raw, tmp_path / "out", PreprocessParams(min_df=1, max_tokens=3))
    assert "1 texts have the id of a text of another split ('a' in train and test)" in caplog.text
    assert "1 of 4 labels occur in test only" in caplog.text
    wanted = {
        "texts": 7,
        "texts_train": 4,
        "texts_valid": 1,
        "texts_test": 2,
        "positives_train": 5,
        "positives_test": 3,
        "labels": 4,
        "labels_unseen_in_train": 1,
        "labels_only_in_test": 1,
        "labels_in_at_most_5_texts": 4,
        "labels_per_text": round(9 / 7, 3),
        "words_per_text_max": 4,
        "texts_without_labels": 1,
        "texts_without_words": 1,
        "texts_cut_at_max_tokens": 2,
        "duplicate_ids_across_splits": 1,
        "duplicate_ids_within_splits": 0,
        "identical_texts_across_splits": 0,
    }
    assert {key: stats[key] for key in wanted} == wanted
    assert stats["bands"]["tail"]["test_positives"] == 1
    assert sum(group["labels"] for group in stats["frequency_bins"].values()) == 4
    assert json.loads((tmp_path / "out" / "stats.json").read_text()) == stats


def test_a_set_that_is_not_what_its_entry_expects_is_told(raw, tmp_path, caplog):
    manifest = json.loads((raw / "manifest.json").read_text())
    manifest["expect"] = {"labels_per_text": 50.0, "features": 1}
    (raw / "manifest.json").write_text(json.dumps(manifest))
    with caplog.at_level(logging.WARNING, "coattail"):
        stats = prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))
    found = f"labels_per_text: {stats['labels_per_text']:g} where 50 is expected"
    assert f"{manifest['name']} is not the set that its entry describes: {found}" in caplog.text
    assert f"features: {stats['tfidf_terms']} where 1 is expected" in caplog.text


def test_texts_that_are_word_for_word_in_an_earlier_split_are_counted(tmp_path, caplog):
    splits = {
        "train": [*TRAIN, {"text": "a b", "labels": []}, {"text": "a b", "labels": []}],
        "valid": [{"text": "Red, cat! red dog?", "labels": []}, {"text": "new", "labels": []}],
        "test": [
            {"text": "NEW", "labels": []},
            {"text": "b a", "labels": []},
            {"text": "", "labels": []},
            {"text": "the cat sleeps", "labels": ["pets"]},
        ],
    }
    raw = write_raw(tmp_path / "raw", splits)
    with caplog.at_level(logging.WARNING, "coattail"):
        stats = prepare(raw, tmp_path / "features", PreprocessParams())
    assert stats["identical_texts_across_splits"] == 3
    assert "1 texts of validation and 2 of test are word for word" in caplog.text


def test_columns_of_a_csv_come_from_the_manifest(tmp_path):
    raw = write_raw(
        tmp_path / "raw",
        {"train": [], "test": []},
        format="csv",
        columns=["body", "tags"],
        label_separator=";",
    )
    for name in ("train", "test"):
        (raw / f"{name}.jsonl").write_text("body,tags\nred cat,a;b\nred dog,a\nred,a\n")
    prepare(raw, tmp_path / "features", PreprocessParams(min_df=1))
    names = tmp_path / "features" / "labels" / "names.txt"
    assert names.read_text().splitlines() == ["a", "b"]


def test_texts_are_kept_for_people_to_read(raw, tmp_path):
    prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))
    kept = lines_of(tmp_path / "out" / "texts" / "train.jsonl.gz")
    assert kept == [{"id": d["id"], "text": d["text"]} for d in TRAIN]


def test_two_runs_give_the_same_bytes(raw, tmp_path):
    for name in ("one", "two"):
        plots = tmp_path / f"{name}_plots"
        prepare(raw, tmp_path / name, PreprocessParams(min_df=1, ngrams=3), plots=plots)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one_plots") == contents(tmp_path / "two_plots")


def test_pictures_and_their_numbers_are_written(raw, tmp_path):
    prepare(raw, tmp_path / "out", PreprocessParams(min_df=1), plots=tmp_path / "plots")
    names = {"label_frequency", "labels_per_text", "words_per_text"}
    assert {p.name for p in (tmp_path / "plots").iterdir()} == {
        f"{name}{suffix}" for name in names for suffix in (".png", ".csv")
    }
    frequency = (tmp_path / "plots" / "label_frequency.csv").read_text().splitlines()
    assert frequency[0] == "rank,count,band"
    assert [row.split(",")[1] for row in frequency[1:]] == ["3", "2", "1", "0"]
    per_text = (tmp_path / "plots" / "labels_per_text.csv").read_text().splitlines()
    assert per_text == ["labels_per_text,texts", "0,1", "1,3", "2,3"]
    for name in names:
        assert (tmp_path / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_importing_the_module_does_not_import_matplotlib():
    code = "import sys, coattail.data.preprocess; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_without_a_validation_file_a_seeded_share_of_train_is_taken(tmp_path):
    train = [{"id": str(i), "text": f"word{i % 7} same", "labels": ["x"]} for i in range(50)]
    raw = write_raw(tmp_path / "raw", {"train": train, "test": TEST})
    params = PreprocessParams(min_df=1, valid_share=0.2)
    prepare(raw, tmp_path / "out", params)
    kept = {s: lines_of(tmp_path / "out" / "texts" / f"{s}.jsonl.gz") for s in SPLITS}
    chosen = validation_rows(50, params)
    assert [d["id"] for d in kept["valid"]] == [str(i) for i in np.flatnonzero(chosen)]
    assert [d["id"] for d in kept["train"]] == [str(i) for i in np.flatnonzero(~chosen)]
    f = Features(tmp_path / "out")
    assert (f.Y("train").shape[0], f.Y("valid").shape[0]) == (40, 10)
    assert f.counts[f.label_names.index("x")] == 50


def test_the_validation_share_is_bounded_and_seeded():
    params = PreprocessParams(valid_share=0.5, valid_max=3)
    assert validation_rows(100, params).sum() == 3
    assert validation_rows(2, PreprocessParams()).sum() == 1
    other = params.model_copy(update={"seed": 1})
    assert not np.array_equal(validation_rows(100, params), validation_rows(100, other))
    with pytest.raises(DataError, match="train has 1 text"):
        validation_rows(1, params)


def test_readable_names_replace_labels_and_stay_apart(tmp_path):
    raw = write_raw(tmp_path / "raw", {"train": TRAIN, "valid": VALID, "test": TEST})
    names = {"pets": "Animals at\nhome", "drinks": "Same", "colours": "Same"}
    (raw / "names.json").write_text(json.dumps(names))
    manifest = json.loads((raw / "manifest.json").read_text())
    manifest["files"]["label_names"] = "names.json"
    (raw / "manifest.json").write_text(json.dumps(manifest))
    prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))
    assert Features(tmp_path / "out").label_names == [
        "Same (colours)",
        "Same (drinks)",
        "never in train",
        "Animals at home",
    ]


def test_vectors_get_a_row_per_entry_of_the_vocabulary(raw, tmp_path):
    (raw / "glove.txt.xz").write_bytes(lzma.compress(b"the 1 2\nred 3 4\nzebra 5 6\n"))
    manifest = json.loads((raw / "manifest.json").read_text())
    manifest["files"]["vectors"] = "glove.txt.xz"
    (raw / "manifest.json").write_text(json.dumps(manifest))
    stats = prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))
    f = Features(tmp_path / "out")
    assert stats["words_with_vector"] == 2
    assert f.vectors.shape == (len(f.vocabulary), 2)
    assert f.vectors[f.vocabulary.index("red")].tolist() == [3, 4]


def test_the_demo_corpus_keeps_its_complete_labels(tmp_path):
    params = DemoParams(train=200, valid=40, test=50, labels=40, words=400)
    files = generate(params, tmp_path / "raw")
    manifest = {"name": "demo", "format": "jsonl", "files": files}
    manifest["propensity"] = {"A": 0.55, "B": 1.5}
    (tmp_path / "raw" / "manifest.json").write_text(json.dumps(manifest))
    stats = prepare(tmp_path / "raw", tmp_path / "out", PreprocessParams())
    f = Features(tmp_path / "out")
    for split in SPLITS:
        complete, observed = f.complete(split), f.Y(split)
        assert complete.shape == observed.shape
        assert (complete - observed).min() >= 0
        assert complete.nnz > observed.nnz
    truth = json.loads((tmp_path / "raw" / "truth.json").read_text())
    known = dict(zip(truth["labels"], truth["complete_counts"], strict=True))
    total = np.asarray(f.complete("train").sum(0) + f.complete("valid").sum(0)).ravel()
    assert total.tolist() == [known[name] for name in f.label_names]
    assert stats["complete_labels_per_text"] > stats["labels_per_text"]


# --- matrices ------------------------------------------------------------------------------------

XMC_TRAIN = "3 4 3\n0,2 0:3 2:4\n1 1:2\n 3:5\n"
XMC_TEST = "1 4 3\n2 1:1 3:1\n"


def write_xmc(folder, **files):
    folder.mkdir()
    for split, content in files.items():
        (folder / f"{split}.txt").write_text(content)
    manifest = {"name": "m", "format": "xmc", "files": {split: f"{split}.txt" for split in files}}
    manifest["propensity"] = {"A": 0.55, "B": 1.5}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_given_features_are_normalised_and_read_as_tokens_in_ascending_order(tmp_path):
    raw = write_xmc(tmp_path / "raw", train=XMC_TRAIN, valid=XMC_TEST, test=XMC_TEST)
    prepare(raw, tmp_path / "out", PreprocessParams(max_tokens=1))
    f = Features(tmp_path / "out")
    assert f.words == ["f0", "f1", "f2", "f3"]
    assert f.label_names == ["0", "1", "2"]
    assert f.X("train").toarray()[0] == pytest.approx([0.6, 0, 0.8, 0])
    assert f.Y("train").toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert f.tokens("train").values.tolist() == [2, 3, 5]
    assert f.vocabulary[2:] == f.words
    kept = lines_of(tmp_path / "out" / "texts" / "train.jsonl.gz")
    assert kept[0] == {"id": "train:0", "text": "f0"}


def test_splits_of_different_width_are_refused(tmp_path):
    raw = write_xmc(tmp_path / "raw", train=XMC_TRAIN, test="1 5 3\n2 1:1 3:1\n")
    with pytest.raises(DataError, match=r"test\.txt, line 1: got 5 features and 3 labels"):
        prepare(raw, tmp_path / "out", PreprocessParams())


@pytest.mark.shared_data
def test_bibtex_comes_through_whole(tmp_path):
    if not (SHARED / "bibtex").is_dir():
        pytest.skip("../shared/data/bibtex is not here")
    manifest = {"name": "bibtex", "format": "xmc", "propensity": {"A": 0.55, "B": 1.5}}
    manifest["files"] = {s: str(SHARED / "bibtex" / f"{s}.txt") for s in ("train", "test")}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    stats = prepare(tmp_path, tmp_path / "out", PreprocessParams())
    f = Features(tmp_path / "out")
    X, Y = read_xmc(SHARED / "bibtex" / "train.txt")
    valid = validation_rows(4880, PreprocessParams())
    assert (stats["texts_train"], stats["texts_valid"], stats["texts_test"]) == (4392, 488, 2515)
    assert (f.Y("train") != Y[~valid]).nnz == 0
    assert (f.Y("valid") != Y[valid]).nnz == 0
    assert f.counts.tolist() == np.asarray(Y.sum(0)).ravel().astype(int).tolist()
    assert (f.X("train").astype(bool) != X[~valid].astype(bool)).nnz == 0


# --- mistakes ------------------------------------------------------------------------------------


def test_a_failed_run_leaves_the_old_result_and_no_litter(raw, tmp_path):
    out = tmp_path / "out"
    prepare(raw, out, PreprocessParams(min_df=1))
    before = contents(out)
    (raw / "test.jsonl").write_text('{"text": "x", "labels": "not a list"}\n')
    with pytest.raises(DataError, match="line 1"):
        prepare(raw, out, PreprocessParams(min_df=1))
    assert contents(out) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "raw"]


def test_no_frequent_word_is_an_error_with_a_remedy(raw, tmp_path):
    with pytest.raises(DataError, match=r"at least 9 training texts.*lower preprocess\.min_df"):
        prepare(raw, tmp_path / "out", PreprocessParams(min_df=9))


def test_complete_labels_for_some_texts_only_are_refused(tmp_path):
    some = [TRAIN[0] | {"complete": ["pets", "colours"]}, *TRAIN[1:]]
    raw = write_raw(tmp_path / "raw", {"train": some, "valid": VALID, "test": TEST})
    with pytest.raises(DataError, match="1 of 7 texts have complete labels"):
        prepare(raw, tmp_path / "out", PreprocessParams(min_df=1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing; run dvc repro download"),
        ("not json", "is no manifest"),
        (
            '{"name": "x", "format": "jsonl", "files": {"train": "t"}}',
            "lacks files.test, propensity",
        ),
    ],
)
def test_a_manifest_that_is_not_one_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=message):
        prepare(tmp_path, tmp_path / "out", PreprocessParams())


@pytest.mark.parametrize(
    "wrong", [{"ngrams": 4}, {"min_df": 0}, {"head_share": 0.95}, {"max_token": 3}]
)
def test_params_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError):
        parse(wrong, PreprocessParams, "preprocess")
