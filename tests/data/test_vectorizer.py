"""One vectorizer: a text has the same bytes in the pipeline, from disk, alone and among others."""

import json
import shutil

import hypothesis
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from coattail.data import text
from coattail.data.corpus import PreprocessParams
from coattail.data.features import Features
from coattail.data.preprocess import prepare
from coattail.data.stored import SPLITS
from coattail.data.vectorizer import PARAMS, Numbered, Vectorizer, VectorizerParams
from coattail.errors import ConfigError, DataError, ModelError

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


def raw_of(folder, texts):
    folder.mkdir()
    for split in SPLITS:
        lines = [
            json.dumps({"id": f"{split}{i}", "text": text, "labels": ["x"]})
            for i, text in enumerate(texts)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    manifest = {
        "name": "toy",
        "format": "jsonl",
        "files": {split: f"{split}.jsonl" for split in SPLITS},
        "propensity": {"A": 0.55, "B": 1.5},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(params=[0.0, 1.5], ids=["plain", "titles"])
def features(tmp_path, request):
    params = PreprocessParams(min_df=2, ngrams=2, title_weight=request.param, max_tokens=7)
    prepare(raw_of(tmp_path / "raw", TEXTS), tmp_path / "features", params)
    return Features(tmp_path / "features")


def numbered(splits, titles):
    """The splits' texts as preprocess hands them to ``fit``."""
    encoder, tokens, first = text.Encoder(), {}, {}
    for split, texts in zip(SPLITS, splits, strict=True):
        rows = text.RaggedBuilder()
        for one in texts:
            rows.add(encoder.encode(one))
        tokens[split] = rows.build()
        lengths = np.array([len(text.title(one)) for one in texts], np.int64)
        first[split] = text.first_words(tokens[split], lengths)
    return Numbered(encoder.words, tokens, first if titles else {})


def same_bytes(A, B):
    for name in ("data", "indices", "indptr"):
        a, b = getattr(A, name), getattr(B, name)
        np.testing.assert_array_equal(a, b)
        assert name == "indptr" or a.dtype == b.dtype
    assert A.shape == B.shape


WORDS = st.sampled_from(["a", "b", "c", "d", "É", "e\u0301", "नमस्ते", "title", ":", "\n", ".", "_1"])
DOCUMENTS = st.lists(st.lists(WORDS, max_size=9).map(" ".join), min_size=1, max_size=5)


@settings(deadline=None, max_examples=150)
@hypothesis.given(
    st.tuples(DOCUMENTS, DOCUMENTS, DOCUMENTS),
    st.builds(
        VectorizerParams,
        min_df=st.integers(1, 2),
        max_words=st.integers(1, 12),
        ngrams=st.integers(1, 3),
        title_weight=st.sampled_from([0.0, 0.5, 2.0]),
        max_tokens=st.integers(1, 6),
        vocabulary=st.integers(1, 5),
    ),
)
def test_any_text_alone_gets_the_bytes_that_fit_gave_it_among_all(tmp_path_factory, splits, params):
    made = Vectorizer(params)
    given = numbered(splits, params.title_weight)
    held = np.bincount(
        np.concatenate([np.unique(given.tokens["train"].row(i)) for i in range(len(splits[0]))])
    )
    if held.max(initial=0) < params.min_df:
        with pytest.raises(DataError, match="no word stands in at least"):
            made.fit(given)
        return
    fitted = made.fit(given)
    folder = tmp_path_factory.mktemp("v")
    made.save(folder)
    for one in (made, Vectorizer.load(folder)):
        for split, texts in zip(SPLITS, splits, strict=True):
            same_bytes(one.transform(texts), fitted.X[split])
            for row, document in enumerate(texts):
                same_bytes(one.transform([document]), fitted.X[split][row])
                ids = one.token_ids([document])
                assert ids.row(0).tolist() == fitted.tokens[split].row(row).tolist()
                assert ids.values.dtype == fitted.tokens[split].values.dtype


def test_a_vectorizer_keeps_what_it_was_made_with(features, tmp_path):
    params = json.loads((features.folder / PARAMS).read_text())
    assert params["ngrams"] == 2
    assert params["min_df"] == 2
    again = Vectorizer.load(features.folder)
    assert again.params == features.vectorizer.params
    assert again.tokenizer == text.TOKENIZER
    again.save(tmp_path / "again")
    again.copy(tmp_path / "copied")
    for folder in (tmp_path / "again", tmp_path / "copied"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) == 5
        for path in files:
            assert path.read_bytes() == (features.folder / path.relative_to(folder)).read_bytes()


def test_new_texts_are_counted_as_in_the_pipeline(features):
    assert any(" " in word for word in features.words)
    same_bytes(features.vectorizer.transform(TEXTS), features.X("test"))
    tokens, expected = features.vectorizer.token_ids(TEXTS), features.tokens("test")
    assert tokens.lengths.max() == 7
    np.testing.assert_array_equal(tokens.indptr, expected.indptr)
    np.testing.assert_array_equal(tokens.values, expected.values)


def test_texts_of_a_split_are_kept_as_they_came(features):
    assert features.texts("test") == TEXTS
    assert features.inputs("texts", "test") == TEXTS
    assert features.inputs("tokens", "test").n == len(TEXTS)
    assert features.some_documents("test", [3, 0]) == {
        row: (f"test{row}", TEXTS[row]) for row in (0, 3)
    }
    with pytest.raises(DataError, match=r"has no text 8; run dvc repro"):
        features.some_documents("test", [0, 8])


def test_no_texts_give_no_rows(features):
    assert features.vectorizer.transform([]).shape == (0, len(features.words))
    assert features.vectorizer.token_ids([]).n == 0


def test_words_of_given_matrices_are_names_of_their_columns():
    vectorizer = Vectorizer.given(["f0", "f1", "f2"], 2)
    assert vectorizer.transform(["f2 f0 f2 nothing"]).toarray()[0] == pytest.approx(
        np.array([1, 0, 1 + np.log(2)]) / np.hypot(1, 1 + np.log(2)), abs=1e-6
    )
    assert vectorizer.token_ids(["f2 f0 f1"]).values.tolist() == [4, 2]


# --- what former and later versions leave --------------------------------------------------------


def without(features, *names):
    """The same features as a version before left them, without some notes."""
    for name in names:
        (features.folder / name).unlink()
    return Features(features.folder)


def test_features_without_params_give_the_same_rows(features, tmp_path):
    expected = features.vectorizer.transform(TEXTS)
    former = without(features, PARAMS)
    same_bytes(former.vectorizer.transform(TEXTS), expected)
    assert former.vectorizer.token_ids(TEXTS[:1]).lengths.tolist() == [13]  # no limit was kept
    former.save_for_tagging(tmp_path / "bundle")
    same_bytes(Features(tmp_path / "bundle").vectorizer.transform(TEXTS), expected)


def test_features_of_the_first_rule_serve_texts_that_it_cut_rightly(features):
    expected = features.vectorizer.transform(TEXTS)
    old = without(features, PARAMS, "tokenizer.json").vectorizer
    assert old.tokenizer == 1
    found = old.transform([*TEXTS, "the cat in a café"])
    np.testing.assert_array_equal(found[: len(TEXTS)].toarray(), expected.toarray())


@pytest.mark.parametrize("document", ["the cat sat, हिन्दी", "a cafe\u0301 and a cat"])
def test_features_of_the_first_rule_refuse_a_text_that_is_cut_otherwise_now(features, document):
    features.vectorizer.token_ids([document])
    old = without(features, PARAMS, "tokenizer.json").vectorizer
    for read in (old.transform, old.token_ids):
        with pytest.raises(ModelError, match=r"words were cut at combining marks.*run dvc repro"):
            read([document])


def test_features_of_a_newer_version_are_refused(features, tmp_path):
    shutil.copytree(features.folder, tmp_path / "newer")
    (tmp_path / "newer" / "tokenizer.json").write_text('{"version": 99}')
    with pytest.raises(ModelError, match="made by a newer coattail"):
        Vectorizer.load(tmp_path / "newer").transform(["a cat"])
    (features.folder / PARAMS).write_text('{"ngrams": 1, "stems": true}')
    with pytest.raises(ConfigError, match=r"vectorizer\.json: stems: unknown parameter"):
        Vectorizer.load(features.folder).transform(["a cat"])


@pytest.mark.parametrize("noted", [True, False])
def test_a_bundle_tells_by_which_rule_its_words_were_cut(features, tmp_path, noted):
    if not noted:
        features = without(features, "tokenizer.json")
    features.save_for_tagging(tmp_path / "bundle")
    assert Features(tmp_path / "bundle").vectorizer.tokenizer == (text.TOKENIZER if noted else 1)
    assert Features(tmp_path / "bundle").label_names == ["x"]
