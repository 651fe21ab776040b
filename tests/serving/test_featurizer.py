"""New texts become the same features as in the pipeline."""

import json

import numpy as np
import pytest

from coattail.data import text
from coattail.data.corpus import PreprocessParams
from coattail.data.features import Features
from coattail.data.preprocess import prepare
from coattail.errors import ModelError
from coattail.pipeline.candidates import Candidate
from coattail.serving.bundle import bundle
from coattail.serving.featurizer import Featurizer
from coattail.serving.tagger import Tagger

TEXTS = [
    "\n The dog sat, a cat\nsat on the mat and the cat sat",
    "the cat\n\nThe dog sat",
    "The cat sat on the mat, the CAT!",
    "a dog and a cat",
    "the mat and the dog sat",
    "",
    "words nobody has seen",
    "A dog sat on a dog",
]


@pytest.fixture(params=[0.0, 1.5], ids=["plain", "titles"])
def features(tmp_path, request):
    raw = tmp_path / "raw"
    raw.mkdir()
    for split in ("train", "valid", "test"):
        lines = [
            json.dumps({"id": f"{split}{i}", "text": text, "labels": ["x"]})
            for i, text in enumerate(TEXTS)
        ]
        (raw / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    manifest = {
        "name": "toy",
        "format": "jsonl",
        "files": {split: f"{split}.jsonl" for split in ("train", "valid", "test")},
        "propensity": {"A": 0.55, "B": 1.5},
    }
    (raw / "manifest.json").write_text(json.dumps(manifest))
    params = PreprocessParams(min_df=2, ngrams=2, title_weight=request.param)
    prepare(raw, tmp_path / "features", params)
    return Features(tmp_path / "features")


def test_tfidf_of_a_new_text_is_that_of_the_pipeline_bit_for_bit(features):
    assert any(" " in word for word in features.words)
    X, expected = Featurizer(features).tfidf(TEXTS), features.X("test")
    np.testing.assert_array_equal(X.indptr, expected.indptr)
    np.testing.assert_array_equal(X.indices, expected.indices)
    np.testing.assert_array_equal(X.data, expected.data)


def test_tokens_of_a_new_text_are_those_of_the_pipeline(features):
    tokens, expected = Featurizer(features).tokens(TEXTS), features.tokens("test")
    np.testing.assert_array_equal(tokens.indptr, expected.indptr)
    np.testing.assert_array_equal(tokens.values, expected.values)


def test_texts_of_a_split_are_kept_as_they_came(features):
    assert features.texts("test") == TEXTS
    assert features.inputs("texts", "test") == TEXTS
    assert features.inputs("tokens", "test").n == len(TEXTS)


def test_no_texts_give_no_rows(features):
    assert Featurizer(features).tfidf([]).shape[0] == 0
    assert Featurizer(features).tokens([]).n == 0


def test_a_folder_that_is_no_bundle_is_refused(tmp_path):
    with pytest.raises(ModelError, match="not a coattail bundle"):
        Tagger.of_bundle(tmp_path)


def by_the_first_rule(features):
    """The same features as a version before left them, without a note of how words were cut."""
    (features.folder / "tokenizer.json").unlink()
    return Features(features.folder)


def test_features_of_the_first_rule_serve_texts_that_it_cut_rightly(features):
    expected = Featurizer(features).tfidf(TEXTS)
    found = Featurizer(by_the_first_rule(features)).tfidf([*TEXTS, "the cat in a café"])
    np.testing.assert_array_equal(found[: len(TEXTS)].toarray(), expected.toarray())


@pytest.mark.parametrize("document", ["the cat sat, हिन्दी", "a cafe\u0301 and a cat"])
def test_features_of_the_first_rule_refuse_a_text_that_is_cut_otherwise_now(features, document):
    Featurizer(features).tokens([document])
    old = Featurizer(by_the_first_rule(features))
    for read in (old.tfidf, old.tokens):
        with pytest.raises(ModelError, match=r"words were cut at combining marks.*run dvc repro"):
            read([document])


def test_features_of_a_newer_rule_are_refused(features):
    (features.folder / "tokenizer.json").write_text('{"version": 99}')
    with pytest.raises(ModelError, match="made by a newer coattail"):
        Featurizer(Features(features.folder))


@pytest.mark.parametrize("noted", [True, False])
def test_a_bundle_tells_by_which_rule_its_words_were_cut(features, tmp_path, noted):
    if not noted:
        features = by_the_first_rule(features)
    (tmp_path / "models" / "ovr").mkdir(parents=True)
    known = {"ovr": Candidate("ovr", "train_linear", "", (), (), ())}
    made = bundle(tmp_path / "bundle", "ovr", known, tmp_path)
    assert Features(made / "features").tokenizer == (text.TOKENIZER if noted else 1)
