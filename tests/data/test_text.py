"""Tokens, vocabulary, tf-idf with n-grams, token ids and word vectors."""

import gzip
import lzma
import math
import re
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from coattail.arrays import Ragged
from coattail.data import text
from coattail.data.formats.word_vectors import SPREAD, read_vectors
from coattail.errors import DataError

# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_text", "tokens"),
    [
        ("The cat, the DOG!", ["the", "cat", "the", "dog"]),
        ("No 118/63/EEC of 5.3 %", ["no", "118", "63", "eec", "of", "5", "3"]),
        ("Größe naïve ÉTÉ", ["größe", "naïve", "été"]),
        ("Привет, мир 世界", ["привет", "мир", "世界"]),
        ("snake_case don't", ["snake_case", "don", "t"]),
        ("  -- ... \n\t ", []),
        ("", []),
    ],
)
def test_tokens_are_lower_case_runs_of_word_characters(given_text, tokens):
    assert text.tokenize(given_text) == tokens


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_no_token_is_empty_or_holds_a_separator(given_text):
    for token in text.tokenize(given_text):
        assert token
        assert token[0].isalnum() or token[0] == "_"
        assert all(c.isalnum() or c == "_" or text.is_mark(c) for c in token)
        assert len(token.split()) == 1


@pytest.mark.parametrize(
    ("given_text", "tokens"),
    [
        ("हिन्दी में लिखा।", ["हिन्दी", "में", "लिखा"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("ภาษาไทย ข้าวหอม", ["ภาษาไทย", "ข้าวหอม"]),  # no blanks between words: a run is one token
        ("Cafe\u0301 re\u0301sume\u0301s", ["café", "résumés"]),
        ("Ελλα\u0301δα Й ж\u0301", ["ελλάδα", "й", "ж\u0301"]),
        ("שָׁלוֹם, עולם", ["שָׁלוֹם", "עולם"]),
        ("السَّلَامُ عليكم", ["السَّلَامُ", "عليكم"]),
        ("मी\u200dठा क्\u200dष می\u200cخواهم", ["मीठा", "क्ष", "میخواهم"]),
        ("one\u200btwo", ["one", "two"]),  # a blank of no width is a blank
        ("İstanbul", ["i\u0307stanbul"]),  # lower case has a mark of its own
        ("𑄇𑄋𑄴 𑀩𑁆𑀭", ["𑄇𑄋𑄴", "𑀩𑁆𑀭"]),  # marks beyond the first plane
        ("5\ufe0f\u20e3 ❤\ufe0f", ["5"]),  # emoji, as before
        ("\u0301abc =\u0338 x", ["abc", "x"]),  # a mark without a letter is no word
    ],
)
def test_combining_marks_belong_to_their_word(given_text, tokens):
    assert text.tokenize(given_text) == [unicodedata.normalize("NFC", token) for token in tokens]


LETTERS = "aé\u0301İßΣσk\u212aΩ\u2126हि\u094dीத\u0bcdก้שׁا\u064eمي\u200c\u200d\ufe0f각"
LETTERS += "\u1100\u1161\u11a8𑄇𑄴_7 -।"


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(LETTERS, max_size=20), st.text(max_size=20)))
def test_composed_and_decomposed_texts_have_the_same_words(given_text):
    forms = {unicodedata.normalize(form, given_text) for form in ("NFC", "NFD")}
    assert len({tuple(text.tokenize(form)) for form in forms}) == 1


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(LETTERS, max_size=20), st.text(max_size=20)))
def test_words_equal_a_slow_walk_over_the_characters(given_text):
    words, word = [], ""
    for c in [*unicodedata.normalize("NFC", text.spelling(given_text.lower())), " "]:
        if c.isalnum() or c == "_" or (word and unicodedata.category(c) in ("Mn", "Mc")):
            word += c
        elif word:
            words, word = [*words, word], ""
    assert text.tokenize(given_text) == words


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Mn", "Mc", "Cs"]), max_size=30))
def test_a_composed_text_without_marks_is_cut_as_ever(given_text):
    lower = unicodedata.normalize("NFC", given_text).lower()
    plain = "".join(
        c for c in lower if unicodedata.category(c)[0] != "M" and c not in "\u200c\u200d"
    )
    if unicodedata.is_normalized("NFC", plain):
        assert text.tokenize(plain) == re.findall(r"\w+", plain.lower())


def test_every_mark_and_every_letter_of_unicode_is_where_it_belongs():
    for code in range(0x80, sys.maxunicode + 1):
        c = chr(code)
        if unicodedata.category(c) == "Cs" or text.spelling(c) != c:
            continue  # no character, or spelled otherwise
        if text.is_mark(c):
            assert text.tokenize(f"a{c}b") == [unicodedata.normalize("NFC", f"a{c}b")], hex(code)
        elif not (c.isalnum() or c == "_"):
            assert text.tokenize(f"a{c}b") == ["a", "b"], hex(code)


def test_a_word_vector_is_found_in_any_spelling_of_its_word(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("cafe\u0301 1 2\nमी\u200dठा 3 4\n", encoding="utf-8")
    vectors, found = read_vectors(path, ["<pad>", "<unk>", "café", "मीठा"], seed=0)
    assert found == 2
    assert vectors[2:].tolist() == [[1, 2], [3, 4]]


def test_an_encoder_numbers_words_in_order_of_first_sight():
    encoder = text.Encoder()
    assert encoder.encode("b a b") == [0, 1, 0]
    assert encoder.encode("c A") == [2, 1]
    assert encoder.words == ["b", "a", "c"]


def test_sorted_numbering_gives_the_place_of_each_number():
    numbering = text.Numbering()
    assert numbering.numbers(["pear", "fig", "apple"]) == [0, 1, 2]
    names, place = numbering.sorted()
    assert names == ["apple", "fig", "pear"]
    assert place.tolist() == [2, 1, 0]


def ragged(rows):
    builder = text.RaggedBuilder()
    for row in rows:
        builder.add(row)
    return builder.build()


def test_a_builder_makes_the_ragged_array_of_its_rows():
    tokens = ragged([[3, 1], [], [2]])
    assert tokens.indptr.tolist() == [0, 2, 2, 3]
    assert tokens.values.tolist() == [3, 1, 2]
    assert ragged([]).n == 0


# --- counting and tf-idf -------------------------------------------------------------------------


def test_bag_counts_words_and_skips_negative_numbers():
    tokens = ragged([[2, 0, 2], [], [-1, 1, -1]])
    assert text.bag(tokens, 3).toarray().tolist() == [[1, 0, 2], [0, 0, 0], [0, 1, 0]]


def test_bag_does_not_depend_on_the_size_of_its_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    tokens = ragged([rng.integers(-1, 5, rng.integers(0, 9)).tolist() for _ in range(30)])
    whole = text.bag(tokens, 5)
    monkeypatch.setattr(text, "_BLOCK", 7)
    assert (text.bag(tokens, 5) != whole).nnz == 0


def test_words_are_ordered_by_document_frequency_then_by_name():
    words, df = ["b", "d", "a", "c"], np.array([2, 5, 2, 1])
    assert text.by_frequency(words, df).tolist() == [1, 2, 0, 3]
    assert text.by_frequency(words, df, min_df=2, limit=2).tolist() == [1, 2]


def test_a_word_that_is_never_seen_is_never_chosen():
    assert text.by_frequency(["a", "b"], np.array([0, 1]), min_df=1).tolist() == [1]


def test_tfidf_by_hand():
    counts = text.bag(ragged([[0, 0, 1], [0], []]), 2)
    idf = text.inverse_document_frequency(text.document_frequency(counts), 3)
    assert idf == pytest.approx([math.log(4 / 3) + 1, math.log(4 / 2) + 1])
    a, b = (1 + math.log(2)) * idf[0], idf[1]
    length = math.hypot(a, b)
    X = text.tfidf(counts, idf).toarray()
    assert X == pytest.approx(np.array([[a / length, b / length], [1, 0], [0, 0]]))


def our_tfidf(train, test, ngrams, min_df):
    encoder = text.Encoder()
    splits = [ragged([encoder.encode(t) for t in texts]) for texts in (train, test)]
    bags = [text.bag(tokens, len(encoder.words)) for tokens in splits]
    counted = text.count_terms(splits, bags, encoder.words, ngrams, min_df)
    df = text.document_frequency(counted.splits[0])
    idf = text.inverse_document_frequency(df, len(train))
    return counted.terms, [text.tfidf(counts, idf).toarray() for counts in counted.splits]


@pytest.mark.parametrize("ngrams", [1, 2, 3])
@pytest.mark.parametrize("min_df", [1, 3])
def test_tfidf_equals_scikit_learn(ngrams, min_df):
    rng = np.random.default_rng(3)
    words = ["ab", "cd", "e", "fg", "h", "i", "jk"]
    texts = [" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(40)]
    train, test = texts[:30], [*texts[30:], "unseen words only", "ab cd unseen e"]
    reference = TfidfVectorizer(
        sublinear_tf=True, min_df=min_df, ngram_range=(1, ngrams), token_pattern=r"\w+"
    )
    wanted = [reference.fit_transform(train).toarray(), reference.transform(test).toarray()]
    terms, got = our_tfidf(train, test, ngrams, min_df)
    order = np.argsort(terms)
    assert [terms[i] for i in order] == reference.get_feature_names_out().tolist()
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours[:, order] == pytest.approx(theirs, abs=1e-6)


def test_ngrams_do_not_reach_from_one_text_into_the_next():
    terms, _ = our_tfidf(["a b", "c d"], [], 2, 1)
    assert terms == ["a", "b", "c", "d", "a b", "c d"]


# --- token ids -----------------------------------------------------------------------------------


def test_token_ids_follow_the_vocabulary_cut_long_texts_and_mark_unknown_words():
    tokens = ragged([[0, 1, 2, 1], [], [2]])
    ids = text.token_ids(tokens, np.array([1, 0]), 3, max_tokens=3)
    assert [ids.row(i).tolist() for i in range(3)] == [[3, 2, text.UNK], [text.UNK], [text.UNK]]
    assert ids.values.dtype == np.int32


def test_token_ids_of_texts_without_any_word():
    ids = text.token_ids(ragged([[], []]), np.array([], np.int64), 0, max_tokens=5)
    assert ids.values.tolist() == [text.UNK, text.UNK]


def test_token_ids_do_not_depend_on_the_size_of_their_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    tokens = ragged([rng.integers(0, 9, rng.integers(0, 12)).tolist() for _ in range(40)])
    order = rng.permutation(9)[:6]
    whole = text.token_ids(tokens, order, 9, 8)
    monkeypatch.setattr(text, "_BLOCK", 5)
    small = text.token_ids(tokens, order, 9, 8)
    assert isinstance(small, Ragged)
    assert np.array_equal(small.values, whole.values)
    assert np.array_equal(small.indptr, whole.indptr)


# --- vectors -------------------------------------------------------------------------------------

VOCABULARY = [*text.SPECIAL, "cat", "dog", "ox"]
LINES = "the 9 9 9\ndog 0.5 -1 2e-1\ncat 1 2 3\ndog 7 7 7\n"


def test_vectors_of_known_words_are_read_and_the_first_of_two_lines_wins(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text(LINES)
    vectors, found = read_vectors(path, VOCABULARY, seed=0)
    assert (vectors.shape, vectors.dtype, found) == ((5, 3), np.float32, 2)
    assert vectors[2].tolist() == [1, 2, 3]
    assert vectors[3] == pytest.approx([0.5, -1, 0.2])


def test_padding_is_zero_and_missing_words_are_small_seeded_and_independent(tmp_path):
    path, more = tmp_path / "v.txt", tmp_path / "more.txt"
    path.write_text(LINES)
    more.write_text(LINES.replace("dog", "ox"))
    vectors, _ = read_vectors(path, VOCABULARY, seed=5)
    assert vectors[text.PAD].tolist() == [0, 0, 0]
    assert np.all((vectors[[text.UNK, 4]] != 0) & (np.abs(vectors[[text.UNK, 4]]) <= SPREAD))
    assert np.array_equal(vectors[text.UNK], read_vectors(more, VOCABULARY, seed=5)[0][text.UNK])
    assert not np.array_equal(vectors[4], read_vectors(path, VOCABULARY, seed=6)[0][4])


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_vectors_and_a_header_line(tmp_path, suffix, pack):
    path = tmp_path / f"v.txt{suffix}"
    path.write_bytes(pack(("4 3\n" + LINES).encode()))
    assert read_vectors(path, VOCABULARY, seed=0)[1] == 2


def test_a_word_with_spaces_is_not_mistaken_for_numbers(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("the 9 9 9\n. . . 4 5 6\ncat 1 2 3 \n")
    assert read_vectors(path, VOCABULARY, seed=0)[1] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"cat 1 2\n", r"line 2: got 2 numbers after the word; wanted 3"),
        (b"cat 1 2 3 4\n", r"line 2: got 4 numbers after the word; wanted 3"),
        (b"cat 1 x 3\n", r"line 2: .*'x'.*vector of 'cat'"),
        (b"cat 1 nan 3\n", r"line 2: got a vector of 'cat' with infinity or NaN"),
        (b"c\xffat 1 2 3\n", r"line 2: .*0xff"),
        (b"\n", r"line 2: got 0 numbers"),
    ],
)
def test_a_broken_vector_line_is_named(tmp_path, line, message):
    path = tmp_path / "v.txt"
    path.write_bytes(b"the 9 9 9\n" + line)
    with pytest.raises(DataError, match=message):
        read_vectors(path, VOCABULARY, seed=0)


def test_the_dimension_asked_for_is_checked_on_the_first_line(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text(LINES)
    with pytest.raises(DataError, match="line 1: got 3 numbers after the word; wanted 5"):
        read_vectors(path, VOCABULARY, seed=0, dimension=5)


def test_missing_and_empty_vector_files_are_errors(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_vectors(tmp_path / "empty.txt", VOCABULARY, seed=0)
    with pytest.raises(DataError, match="missing"):
        read_vectors(tmp_path / "nowhere.txt", VOCABULARY, seed=0)
