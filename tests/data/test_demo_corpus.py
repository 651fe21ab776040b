"""The generated corpus: bytes, tree, phrases, and the claim of the propensity papers."""

import gzip
import itertools
import json
import re

import numpy as np
import pytest

from coattail.config import parse
from coattail.data.demo_corpus import DemoParams, generate, propensities
from coattail.errors import ConfigError
from coattail.labels.frequency import inverse_propensity

SMALL = DemoParams(train=300, valid=60, test=80, labels=60, words=600)


def read(folder, split):
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return folder, generate(SMALL, folder)


@pytest.fixture(scope="module")
def truth(small):
    return json.loads((small[0] / "truth.json").read_text())


def test_files_have_the_sizes_asked_for(small):
    folder, files = small
    assert files == {
        "train": "train.jsonl.gz",
        "valid": "valid.jsonl.gz",
        "test": "test.jsonl.gz",
        "truth": "truth.json",
    }
    assert sorted(path.name for path in folder.iterdir()) == sorted(files.values())
    assert [len(read(folder, split)) for split in ("train", "valid", "test")] == [300, 60, 80]


def test_the_same_params_give_the_same_bytes_and_another_seed_gives_others(small, tmp_path):
    folder, files = small
    generate(SMALL, tmp_path / "again")
    generate(SMALL.model_copy(update={"seed": 7}), tmp_path / "other")
    for name in files.values():
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
        assert (tmp_path / "other" / name).read_bytes() != (folder / name).read_bytes()


def test_the_sizes_of_other_splits_do_not_change_the_words_of_a_split(small, tmp_path):
    generate(SMALL.model_copy(update={"train": 100}), tmp_path)
    assert [d["text"] for d in read(tmp_path, "test")] == [
        d["text"] for d in read(small[0], "test")
    ]


def test_ids_are_unique_and_texts_are_sentences_of_pronounceable_words(small):
    documents = list(itertools.chain.from_iterable(read(small[0], s) for s in ("train", "test")))
    assert len({d["id"] for d in documents}) == len(documents)
    syllables = re.compile(r"(?:[a-z]{1,2}?[aeiou]){1,4}[nrsl]?")
    for document in documents[:50]:
        sentences = document["text"].removesuffix(".").split(". ")
        assert all(sentence[0].isupper() for sentence in sentences)
        for word in document["text"].lower().replace(".", "").split():
            assert syllables.fullmatch(word), word


def test_labels_form_a_tree_named_by_its_paths(truth):
    names, parent = truth["labels"], truth["parent"]
    assert len(set(names)) == len(names) == SMALL.labels
    depth = [name.count("/") for name in names]
    assert set(depth) == {0, 1, 2}
    for name, above, level in zip(names, parent, depth, strict=True):
        assert (above == -1) == (level == 0)
        if above >= 0:
            assert name.rsplit("/", 1)[0] == names[above]
    # Every area has a field and every field a topic.
    assert set(range(depth.count(0) + depth.count(1))) == set(parent) - {-1}


def test_complete_labels_hold_all_ancestors_and_observed_ones_are_a_part_of_them(small, truth):
    parent = dict(zip(truth["labels"], truth["parent"], strict=True))
    for document in read(small[0], "train"):
        complete = set(document["complete"])
        assert set(document["labels"]) <= complete
        above = {truth["labels"][parent[name]] for name in complete if parent[name] >= 0}
        assert above <= complete


def test_twins_have_the_same_words_in_the_other_order(truth):
    pairs = [(i, j) for i, j in enumerate(truth["twin"]) if j >= 0]
    assert len(pairs) == round(SMALL.twins * sum(p is not None for p in truth["phrase"]) / 2) * 2
    for i, j in pairs:
        assert truth["twin"][j] == i
        assert truth["parent"][i] == truth["parent"][j]
        assert truth["phrase"][i] == truth["phrase"][j][::-1]


def test_every_topic_of_a_text_is_said_in_order_near_together(small, truth):
    phrase = dict(zip(truth["labels"], truth["phrase"], strict=True))
    for document in read(small[0], "test"):
        words = document["text"].lower().replace(".", "").split()
        near = {(a, b) for d in (1, 2) for a, b in zip(words, words[d:], strict=False)}
        for name in document["complete"]:
            assert phrase[name] is None or tuple(phrase[name]) in near


def test_frequencies_fall_like_zipf(tmp_path):
    params = DemoParams(train=6000, valid=1, test=1, labels=300, words=600, zipf=1.0)
    generate(params, tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    topics = [c for c, p in zip(truth["complete_counts"], truth["phrase"], strict=True) if p]
    counts = np.sort(topics)[::-1]
    middle = np.arange(4, len(counts) * 3 // 4)
    slope = np.polyfit(np.log(middle + 1), np.log(counts[middle]), 1)[0]
    # Each text counts a topic once and often stays in an area, which bends the line a little.
    assert -1.3 < slope < -0.7


def test_propensities_solve_their_equation():
    m = np.array([0, 1, 5, 40, 300, 5000])
    p = propensities(m, 7000, 0.55, 1.5)
    assert p * inverse_propensity(m * p, 7000) == pytest.approx(np.ones(6))
    assert np.all(np.diff(p) > 0)


def test_the_formula_on_counted_labels_meets_the_true_propensities(tmp_path):
    generate(DemoParams(train=3000, valid=500, test=1, labels=200, words=600), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    place = {name: i for i, name in enumerate(truth["labels"])}
    n = np.zeros(200)
    for document in read(tmp_path, "train") + read(tmp_path, "valid"):
        n[[place[name] for name in document["labels"]]] += 1
    p = np.array(truth["propensity"])
    m = np.array(truth["complete_counts"])
    # n is binomial(m, p), so q(n) lies between q at both ends of a wide interval around m p.
    wide = 4.5 * np.sqrt(m * p * (1 - p)) + 1
    q = inverse_propensity(n, 3500)
    assert np.all(q <= inverse_propensity(np.maximum(m * p - wide, 0), 3500))
    assert np.all(q >= inverse_propensity(m * p + wide, 3500))
    frequent = m * p > 100
    assert q[frequent] == pytest.approx(1 / p[frequent], rel=0.1)


@pytest.mark.parametrize("wrong", [{"labels": 3}, {"A": 1.5}, {"train": 0}, {"wrods": 500}])
def test_params_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        parse(wrong, DemoParams, "demo")


def test_the_smallest_corpus_can_be_made(tmp_path):
    params = DemoParams(train=1, valid=1, test=1, labels=10, words=300, topics=1, sentences=1)
    generate(params, tmp_path)
    assert len(json.loads((tmp_path / "truth.json").read_text())["labels"]) == 10


# --- the claim of the propensity papers ----------------------------------------------------------


def noisy_oracle(complete, n_labels, k, rng):
    """A ranking that sees Y* through noise and knows nothing of the loss of labels."""
    ranked = np.empty((len(complete), k), np.int64)
    for row, labels in enumerate(complete):
        scores = rng.normal(size=n_labels)
        scores[labels] += 3.0
        ranked[row] = np.argsort(-scores)[:k]
    return ranked


@pytest.mark.parametrize("k", [1, 5])
def test_propensity_scored_gain_on_observed_labels_is_plain_gain_on_complete_ones(tmp_path, k):
    generate(DemoParams(train=3000, valid=500, test=2000, labels=300), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    place = {name: i for i, name in enumerate(truth["labels"])}
    documents = read(tmp_path, "test")
    complete = [[place[name] for name in d["complete"]] for d in documents]
    observed = [[place[name] for name in d["labels"]] for d in documents]
    p = np.array(truth["propensity"])
    ranked = noisy_oracle(complete, 300, k, np.random.default_rng(1))

    true_hit = np.array([np.isin(r, y) for r, y in zip(ranked, complete, strict=True)])
    seen_hit = np.array([np.isin(r, y) for r, y in zip(ranked, observed, strict=True)])
    plain_complete = true_hit.sum(1).mean()
    plain_observed = seen_hit.sum(1).mean()
    scored_observed = (seen_hit / p[ranked]).sum(1).mean()

    # Given Y* and the ranking, each hit is observed independently with probability p and then
    # counts 1/p: mean 1 and variance (1 - p)/p. The plain count has variance p (1 - p) instead.
    n = len(documents)
    of_hits = p[ranked][true_hit]
    error_scored = np.sqrt(((1 - of_hits) / of_hits).sum()) / n
    error_plain = np.sqrt((of_hits * (1 - of_hits)).sum()) / n
    assert error_scored < 0.05 * plain_complete  # else the next line would say little
    assert abs(scored_observed - plain_complete) < 3.3 * error_scored
    assert plain_complete - plain_observed > 20 * error_plain
    assert plain_observed == pytest.approx(of_hits.sum() / n, abs=3.3 * error_plain)

    # Who does not know p takes the formula on counted labels; its error is that of the counts.
    counted = np.zeros(300)
    for document in read(tmp_path, "train") + read(tmp_path, "valid"):
        counted[[place[name] for name in document["labels"]]] += 1
    q = inverse_propensity(counted, 3500)
    assert (p * q)[ranked][true_hit].sum() / n == pytest.approx(plain_complete, rel=0.05)
