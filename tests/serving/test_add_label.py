"""A new label in a trained candidate, end to end on a tiny workspace."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from coattail.cli.main import main
from coattail.config import parse
from coattail.data.corpus import PreprocessParams
from coattail.data.features import Features
from coattail.data.preprocess import prepare
from coattail.errors import DataError, ModelError
from coattail.models.deep.transfer.transfer_models import build
from coattail.models.deep.transfer.transfer_params import TransferParams
from coattail.models.linear.linear_params import OvrParams
from coattail.models.linear.ovr import Ovr
from coattail.serving.add_label import add_label, read_texts
from coattail.serving.tagger import Tagger
from coattail.testing.network_contract import fit

TOPICS = {
    "cats": ["cat", "purr", "whisker", "kitten"],
    "ships": ["ship", "sail", "harbour", "anchor"],
    "bread": ["bread", "oven", "flour", "crust"],
    "stars": ["star", "orbit", "comet", "planet"],
}
PARAMS = """
dataset: {name: toy}
train_linear: {ovr: {model: ovr, train: features/tfidf/train, tree: flat}}
transfer:
  httn: {model: httn}
  joint: {model: joint}
  bbn: {model: bbn}
rerank: {again: {base: ovr, strategy: propensity}}
"""
FRESH = ["cat ship cat sail kitten anchor", "purr harbour cat ship"]


def corpus(rng, n):
    names = list(TOPICS)
    for i in range(n):
        name = names[i % 4]
        yield {"id": str(i), "text": " ".join(rng.choice(TOPICS[name], 6)), "labels": [name]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A workspace with three transfer models and a linear one, as the pipeline would leave it."""
    folder = tmp_path_factory.mktemp("workspace")
    raw, data = folder / "raw", folder / "data"
    raw.mkdir()
    rng = np.random.default_rng(0)
    for split, n in (("train", 80), ("valid", 8), ("test", 8)):
        lines = [json.dumps(line) for line in corpus(rng, n)]
        (raw / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    files = {split: f"{split}.jsonl" for split in ("train", "valid", "test")}
    manifest = {"name": "toy", "format": "jsonl", "files": files}
    manifest["propensity"] = {"A": 0.55, "B": 1.5}
    (raw / "manifest.json").write_text(json.dumps(manifest))
    prepare(raw, data / "features", PreprocessParams(min_df=1))
    features = Features(data / "features")
    small = {"dim": 8, "hidden": 6, "embedding_dim": 8, "batch": 8, "lr": 0.02, "epochs": 4}
    for model in ("httn", "joint", "bbn"):
        params = parse({**small, "model": model}, TransferParams, "test")
        fit(
            build(params),
            features.tokens("train"),
            features.Y("train"),
            vocabulary_size=len(features.vocabulary),
            label_names=features.label_names,
            threads=1,
        ).save(data / "models" / model)
    Ovr(OvrParams()).fit(features.X("train"), features.Y("train")).save(data / "models" / "ovr")
    (folder / "params.yaml").write_text(PARAMS)
    (folder / "fresh.txt").write_text("\n".join([*FRESH, "", "  "]) + "\n")
    return folder


@pytest.fixture
def workspace(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def digest(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(*arguments):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("candidate", ["httn", "ovr"])
def test_an_added_label_is_given_by_tag_and_dvc_outputs_stay(workspace, tmp_path, candidate):
    before = digest(workspace / "data")
    grown = tmp_path / "grown"
    done = run(
        "model", "add-label", candidate, "cat ships", "--texts", "fresh.txt", "--to", str(grown)
    )
    assert done.exit_code == 0, done.output
    assert f"coattail tag --model {grown}" in done.output
    assert digest(workspace / "data") == before
    tagged = run("tag", "--model", str(grown), "-k", "5", "cat ship sail purr cat ship")
    assert "cat ships" in tagged.output
    assert len(tagged.output.strip().splitlines()) == 6  # the text and all five labels
    assert Tagger.of_bundle(grown).tag(["bread oven flour"], 1)[0].tags[0].label == "bread"


def test_scores_of_the_other_labels_stay(workspace, tmp_path):
    texts = ["cat purr kitten", "star orbit", "ship flour"]
    before = Tagger.of_workspace("httn").tag(texts, 4)
    folder, number = add_label("httn", "new", FRESH, tmp_path / "grown")
    assert number == 4
    for old, new in zip(before, Tagger.of_bundle(folder).tag(texts, 5), strict=True):
        scores = {tag.label: tag.score for tag in new.tags}
        assert all(scores[tag.label] == pytest.approx(tag.score, rel=1e-4) for tag in old.tags)


def test_a_folder_keeps_the_marks_of_its_label(workspace):
    folder, _ = add_label("httn", "हिन्दी/Café", FRESH)
    assert folder.name == "httn+हिन्दी-Café"


def test_a_second_label_goes_on_top_of_the_first(workspace, tmp_path):
    first, _ = add_label("httn", "one", FRESH, tmp_path / "one")
    second, number = add_label(str(first), "two", ["star bread comet oven"], tmp_path / "two")
    assert number == 5
    names = {tag.label for tag in Tagger.of_bundle(second).tag(["star bread"], 9)[0].tags}
    assert names == {*TOPICS, "one", "two"}
    assert Features(second / "features").label_names[4:] == ["one", "two"]


def test_the_default_folder_is_named_after_candidate_and_label(workspace):
    folder, _ = add_label("httn", "Cats & ships/2", FRESH)
    assert folder.as_posix() == "data/added/httn+Cats-ships-2"
    with pytest.raises(ModelError, match="exists; remove it"):
        add_label("httn", "Cats & ships/2", FRESH)


def test_the_added_linear_classifier_is_that_of_training_with_the_texts(workspace, tmp_path):
    folder, _ = add_label("ovr", "new", FRESH, tmp_path / "grown")
    grown, old = Ovr.load(folder / "models/ovr"), Ovr.load(workspace / "data/models/ovr")
    np.testing.assert_array_equal(grown.W_[:, :4].toarray(), old.W_.toarray())
    features = Features(workspace / "data" / "features")
    new = features.vectorizer.transform(FRESH)
    X = sp.vstack([features.X("train"), new], format="csr")
    y = sp.csr_matrix(np.r_[np.zeros(80), 1, 1].astype(np.float32)[:, None])
    np.testing.assert_array_equal(grown.W_[:, 4:].toarray(), Ovr(old.params).fit(X, y).W_.toarray())


@pytest.mark.parametrize(
    ("candidate", "label", "message"),
    [
        ("httn", "cats", "has a label 'cats' already"),
        ("joint", "new", "joint model, which cannot take a label"),
        ("bbn", "new", "bbn model, which cannot take a label"),
        ("again", "new", "made by rerank"),
        ("htnn", "new", "did you mean 'httn'"),
        ("httn", " ", "no name of a label"),
    ],
)
def test_what_cannot_be_added_is_a_clear_error(workspace, tmp_path, candidate, label, message):
    to = str(tmp_path / "grown")
    done = run("model", "add-label", candidate, label, "--texts", "fresh.txt", "--to", to)
    assert done.exit_code == 1
    assert message in done.output
    assert not (tmp_path / "grown").exists()


def test_texts_of_unknown_words_are_refused(workspace, tmp_path):
    for candidate in ("httn", "ovr"):
        with pytest.raises(DataError, match="knows no word"):
            add_label(candidate, "new", ["zyx wvu"], tmp_path / "grown")


def test_a_bundle_without_training_texts_cannot_grow_a_linear_model(workspace, tmp_path):
    folder, _ = add_label("ovr", "one", FRESH, tmp_path / "one")
    with pytest.raises(ModelError, match="learns a label against its training texts"):
        add_label(str(folder), "two", FRESH, tmp_path / "two")


def test_texts_are_lines_or_objects(tmp_path):
    plain, objects = tmp_path / "a.txt", tmp_path / "a.jsonl"
    plain.write_text("one\n\n two \n")
    objects.write_text('{"text": "one"}\n{"text": "two", "labels": []}\n')
    assert read_texts(plain) == read_texts(objects) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "\n \n", "holds no text"),
        ("a.jsonl", '{"text": "a"}\nnonsense\n', "line 2"),
        ("a.jsonl", '{"words": "a"}\n', "line 1: wanted"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_texts(tmp_path / name)
    with pytest.raises(DataError, match="is no file"):
        read_texts(tmp_path / "absent.txt")


def test_tag_wants_a_candidate_or_a_folder(workspace):
    done = run("tag", "--candidate", "httn", "--model", "x", "text")
    assert done.exit_code == 2
    assert "not both" in done.output
