"""The demo corpus: texts generated from a seed, with a truth that is known.

More in docs/explanation/demo-corpus.md.

Labels form a tree of three levels, ``area/field/topic``. A text has a few topics, each told in a
few sentences; its complete labels Y* are these topics with their fields and areas. A topic is a
phrase of two words of its field, and half of the topics have a twin with the same two words in the
other order. The observed labels Y lose each complete label independently with probability 1 - p.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import Field

from coattail.config import Params
from coattail.data.demo_taxonomy import Taxonomy, grow
from coattail.files import atomic_file
from coattail.labels.frequency import counts, inverse_propensity
from coattail.progress import progress


class DemoParams(Params):
    """Size and shape of the generated corpus; equal params give equal bytes."""

    seed: int = Field(42, ge=0, description="everything random follows from it")
    train: int = Field(6000, ge=1, description="training texts")
    valid: int = Field(1000, ge=1, description="validation texts")
    test: int = Field(2000, ge=1, description="test texts")
    labels: int = Field(1000, ge=10, le=5_000_000, description="labels of all three levels")
    words: int = Field(5000, ge=300, le=2_000_000, description="different words in the language")
    topics: float = Field(4.0, ge=1, le=20, description="mean number of topics of a text")
    sentences: float = Field(2.0, ge=1, le=50, description="mean number of sentences per topic")
    zipf: float = Field(0.75, ge=0, le=2, description="topic of rank r is drawn as r^-zipf")
    twins: float = Field(0.5, ge=0, le=1, description="share of topics that differ by order only")


# The grammar. It shapes how hard the corpus is and is no business of an experiment.
GENERAL = 0.25  # share of topic mentions that stay general: the field's words, no topic
FOCUS = 0.5  # probability that a further topic of a text lies in the area of the first
PHRASE = 0.75  # probability that a sentence about a topic holds its phrase (the first always does)
GAP = 0.3  # probability that a filler word stands between the two words of a phrase
FIELD, AREA = 0.12, 0.06  # share of other words of a sentence that belong to its field, to its area
LENGTH = (6, 13)  # shortest and longest sentence
CHUNK = 2048  # texts per random stream and per write; a constant, since bytes depend on it

SPLITS = ("train", "valid", "test")


def generate(params: DemoParams, folder: Path, A: float = 0.55, B: float = 1.5) -> dict[str, str]:
    """Write train, valid, test and truth.json into ``folder``; returns file names by role.

    Labels are lost with the propensity that the constants ``A`` and ``B`` give.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([params.seed, 0])
    tree = grow(params.labels, params.words, params.zipf, params.twins, rng)
    sizes = {"train": params.train, "valid": params.valid, "test": params.test}
    topics = {s: _draw_topics(params, tree, i, sizes[s]) for i, s in enumerate(SPLITS)}
    complete = {s: _complete(tree, topics[s]) for s in SPLITS}
    known = counts(complete["train"]) + counts(complete["valid"])
    p = propensities(known, params.train + params.valid, A, B)
    files = {split: f"{split}.jsonl.gz" for split in SPLITS} | {"truth": "truth.json"}
    for i, split in enumerate(SPLITS):
        rng = np.random.default_rng([params.seed, 2, i])
        observed = _lose(complete[split], p, rng)
        with (
            atomic_file(folder / files[split]) as temporary,
            open(temporary, "wb") as raw,
            # No name and no time inside, and a fixed level: the bytes follow from the params only.
            gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file,
        ):
            _write(params, tree, i, topics[split], observed, complete[split], file)
    made_with = params.model_dump() | {"A": A, "B": B}
    with atomic_file(folder / files["truth"]) as temporary:
        temporary.write_text(_truth(made_with, tree, known, p), encoding="utf-8")
    return files


def propensities(
    complete_counts: NDArray[np.int64], n_texts: int, A: float, B: float
) -> NDArray[np.float64]:
    """The propensity p of every label, given how many texts truly have it, (L,).

    The usual formula takes the *observed* count n. Here n is what a label with ``m`` true texts
    shows on average, n = m p, so p solves ``p = 1 / (1 + C (m p + B)^-A)``: whoever evaluates the
    formula on counted labels meets p up to the noise of the count. The right side grows more
    slowly than p, so there is one solution, found by bisection.
    """
    low, high = np.zeros(len(complete_counts)), np.ones(len(complete_counts))
    for _ in range(60):
        p = (low + high) / 2
        too_low = p * inverse_propensity(complete_counts * p, n_texts, A, B) < 1
        low, high = np.where(too_low, p, low), np.where(too_low, high, p)
    return (low + high) / 2


def _truth(
    made_with: dict[str, float], tree: Taxonomy, known: NDArray[np.int64], p: NDArray[np.float64]
) -> str:
    """What only the generator knows, as JSON."""
    phrases = [[tree.words[a], tree.words[b]] for a, b in tree.phrase.tolist()]
    content = {
        "params": made_with,
        "labels": tree.names,
        "parent": tree.parent.tolist(),
        "twin": tree.twin.tolist(),
        "phrase": [None] * tree.first_topic + phrases,
        "propensity": [float(f"{value:.9g}") for value in p],
        "complete_counts": known.tolist(),
        "grammar": {
            "general": GENERAL,
            "focus": FOCUS,
            "phrase": PHRASE,
            "gap": GAP,
            "field": FIELD,
            "area": AREA,
            "length": LENGTH,
        },
    }
    return json.dumps(content) + "\n"


# --- texts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Topics:
    """The topics of all texts of a split; text i has ``label[start[i]:start[i + 1]]``."""

    start: NDArray[np.int64]
    label: NDArray[np.int32]
    general: NDArray[np.bool_]  # told through its field's words only


def _draw_topics(params: DemoParams, tree: Taxonomy, split: int, n: int) -> _Topics:
    rng = np.random.default_rng([params.seed, 1, split])
    number = 1 + rng.poisson(params.topics - 1, n)
    start = np.concatenate([[0], np.cumsum(number)])
    u = rng.random(start[-1])
    drawn = _at(tree.cumulative, u)
    # A further topic often stays in the first one's area: the same draw, squeezed into its range.
    area = tree.parent[tree.parent[tree.by_area[drawn[start[:-1]]]]]
    low = np.repeat(tree.cumulative[tree.area_start[area]], number)
    high = np.repeat(tree.cumulative[tree.area_start[area + 1]], number)
    near = rng.random(len(u)) < FOCUS
    near[start[:-1]] = False
    drawn = np.where(near, _at(tree.cumulative, low + u * (high - low)), drawn)
    return _Topics(start, tree.by_area[drawn], rng.random(len(u)) < GENERAL)


def _at(cumulative: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.searchsorted(cumulative, u, "right") - 1, 0, len(cumulative) - 2)


def _complete(tree: Taxonomy, topics: _Topics) -> sp.csr_matrix:
    """Y*: the topics that are not general, and the fields and areas of all."""
    text = np.repeat(np.arange(len(topics.start) - 1), np.diff(topics.start))
    field = tree.parent[topics.label]
    rows = np.concatenate([text[~topics.general], text, text])
    columns = np.concatenate([topics.label[~topics.general], field, tree.parent[field]])
    shape = (len(topics.start) - 1, len(tree.names))
    Y = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


def _lose(Y: sp.csr_matrix, p: NDArray[np.float64], rng: np.random.Generator) -> sp.csr_matrix:
    """Y: every complete label stays with its propensity, independently of everything."""
    kept = (rng.random(Y.nnz) < p[Y.indices]).astype(np.float32)
    observed = sp.csr_matrix((kept, Y.indices.copy(), Y.indptr.copy()), shape=Y.shape)
    observed.eliminate_zeros()
    return observed


def _write(
    params: DemoParams,
    tree: Taxonomy,
    split: int,
    topics: _Topics,
    observed: sp.csr_matrix,
    complete: sp.csr_matrix,
    file: gzip.GzipFile,
) -> None:
    n = observed.shape[0]
    names = [json.dumps(name) for name in tree.names]
    with progress(f"demo {SPLITS[split]}", n, "texts") as bar:
        for begin in range(0, n, CHUNK):
            end = min(begin + CHUNK, n)
            rng = np.random.default_rng([params.seed, 3, split, begin // CHUNK])
            # Names and words need no escapes, and this is much faster than json.dumps per text.
            rows = [
                f'{{"id": "{SPLITS[split]}-{row:06d}", "text": "{text}", "labels": '
                f"[{_listed(observed, row, names)}], "
                f'"complete": [{_listed(complete, row, names)}]}}\n'
                for row, text in enumerate(_tell(params, tree, topics, begin, end, rng), begin)
            ]
            file.write("".join(rows).encode())
            bar.advance(end - begin)


def _listed(Y: sp.csr_matrix, row: int, names: list[str]) -> str:
    return ", ".join([names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]])


def _tell(
    params: DemoParams,
    tree: Taxonomy,
    topics: _Topics,
    begin: int,
    end: int,
    rng: np.random.Generator,
) -> Iterator[str]:
    """The texts ``begin`` to ``end`` of a split: all their sentences at once, as arrays."""
    of_text = slice(topics.start[begin], topics.start[end])
    label, general = topics.label[of_text], topics.general[of_text]
    repeats = 1 + rng.poisson(params.sentences - 1, len(label))
    topic = np.repeat(np.arange(len(label)), repeats)  # of every sentence
    first = np.concatenate([[True], topic[1:] != topic[:-1]])
    length = rng.integers(LENGTH[0], LENGTH[1] + 1, len(topic))
    start = np.concatenate([[0], np.cumsum(length)])
    sentence = np.repeat(np.arange(len(topic)), length)  # of every word

    word = _common_words(len(tree.words), len(sentence), rng)
    field = tree.parent[label[topic]]
    kind = rng.random(len(sentence))
    for pool, chosen in (
        (field, kind < FIELD),
        (tree.parent[field], (kind >= FIELD) & (kind < FIELD + AREA)),
    ):
        of = pool[sentence[chosen]]
        size = tree.pool_start[of + 1] - tree.pool_start[of]
        word[chosen] = tree.pools[tree.pool_start[of] + (rng.random(len(of)) * size).astype(int)]

    says = np.flatnonzero(~general[topic] & (first | (rng.random(len(topic)) < PHRASE)))
    gap = 1 + (rng.random(len(says)) < GAP)
    place = start[says] + (rng.random(len(says)) * (length[says] - gap)).astype(np.int64)
    phrase = tree.phrase[label[topic[says]] - tree.first_topic]
    word[place], word[place + gap] = phrase[:, 0], phrase[:, 1]

    sentences_of_text = np.add.reduceat(repeats, topics.start[begin:end] - topics.start[begin])
    yield from _spell(tree.words, word, start, np.cumsum(sentences_of_text))


def _common_words(n_words: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``n`` word ids with probability about 1 / (id + 3): n_words^u is Zipf's law inverted."""
    return (3.0 * ((n_words + 3) / 3.0) ** rng.random(n) - 3.0).astype(np.int64)


def _spell(
    words: list[str],
    word: NDArray[np.int64],
    sentence_start: NDArray[np.int64],
    text_end: NDArray[np.int64],
) -> Iterator[str]:
    spelled = [words[i] for i in word.tolist()]
    starts = sentence_start.tolist()
    begin = 0
    for end in text_end.tolist():
        sentences = [" ".join(spelled[starts[s] : starts[s + 1]]) for s in range(begin, end)]
        yield " ".join([f"{sentence.capitalize()}." for sentence in sentences])
        begin = end
