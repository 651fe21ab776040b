"""The label tree of the demo corpus and the made-up language its texts are written in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

AREA_WORDS = 12  # words that mark an area


@dataclass(frozen=True)
class Taxonomy:
    """Labels 0.. are areas, then fields, then topics; words are ids into ``words``."""

    names: list[str]
    words: list[str]
    parent: NDArray[np.int32]  # (L,), -1 for areas
    twin: NDArray[np.int32]  # (L,), -1 without
    first_field: int
    first_topic: int
    phrase: NDArray[np.int32]  # (topics, 2) the two words of a topic, in order
    pools: NDArray[np.int32]  # words of all areas and fields, one after the other
    pool_start: NDArray[np.int64]  # (areas + fields + 1,)
    by_area: NDArray[np.int32]  # topics sorted by area, as labels
    cumulative: NDArray[np.float64]  # (topics + 1,) of their probabilities, in that order
    area_start: NDArray[np.int64]  # (areas + 1,) into by_area


def grow(
    n_labels: int, n_words: int, zipf: float, twins: float, rng: np.random.Generator
) -> Taxonomy:
    """``n_labels`` labels on three levels, a share ``twins`` of the topics in pairs."""
    words = _language(n_words, rng)
    n_areas = max(1, round(n_labels**0.45))
    n_fields = min(round(n_labels**0.77), (n_labels - n_areas) // 2)
    n_topics = n_labels - n_areas - n_fields
    first_topic = n_areas + n_fields
    # Every parent has a child; the other children prefer some parents to others.
    field_parent = _adopt(n_areas, np.ones(n_fields, np.int64), rng)
    twin_pairs = round(twins * n_topics / 2)
    family = np.repeat([2, 1], [twin_pairs, n_topics - 2 * twin_pairs])  # topics per word pair
    pair_field = _adopt(n_fields, family, rng)
    phrase, pools, pool_start = _phrases(n_areas, n_fields, pair_field, len(words), rng)
    pair_of = np.repeat(np.arange(len(family)), family)
    second = np.concatenate([[False], pair_of[1:] == pair_of[:-1]])  # says its words in reverse
    phrase = np.where(second[:, None], phrase[pair_of][:, ::-1], phrase[pair_of])
    parent = np.full(n_labels, -1, np.int32)
    parent[n_areas:first_topic] = field_parent
    parent[first_topic:] = n_areas + pair_field[pair_of]
    twin = np.full(n_labels, -1, np.int32)
    reversed_ = first_topic + np.flatnonzero(second)
    twin[reversed_], twin[reversed_ - 1] = reversed_ - 1, reversed_
    rank = 1.0 + rng.permutation(n_topics)
    area = parent[parent[first_topic:]]
    order = np.argsort(area, kind="stable")
    weight = rank[order] ** -zipf
    return Taxonomy(
        names=_names(words, parent, n_areas, first_topic, pools, pool_start, phrase),
        words=words,
        parent=parent,
        twin=twin,
        first_field=n_areas,
        first_topic=first_topic,
        phrase=phrase.astype(np.int32),
        pools=pools,
        pool_start=pool_start,
        by_area=(first_topic + order).astype(np.int32),
        cumulative=np.concatenate([[0.0], np.cumsum(weight / weight.sum())]),
        area_start=np.searchsorted(area[order], np.arange(n_areas + 1)),
    )


def _adopt(
    n_parents: int, family: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """A parent for each family of children: one each first, the rest in proportion to r^-1/2."""
    weight = (1.0 + rng.permutation(n_parents)) ** -0.5
    rest = rng.choice(n_parents, max(len(family) - n_parents, 0), p=weight / weight.sum())
    return rng.permutation(np.concatenate([np.arange(min(n_parents, len(family))), rest]))


def _phrases(
    n_areas: int,
    n_fields: int,
    pair_field: NDArray[np.int64],
    n_words: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Words of every area and field, and for every pair two words of its field, never twice.

    A pool of k words has k (k - 1) / 2 pairs; it is made large enough to use at most two thirds.
    Fields draw their pools independently, so a word may mean different things in two fields.
    """
    pairs = np.bincount(pair_field, minlength=n_fields)
    sizes = np.maximum(6, np.ceil(0.5 + np.sqrt(0.25 + 3.0 * pairs))).astype(np.int64)
    sizes = np.concatenate([np.full(n_areas, AREA_WORDS), sizes])
    topical = n_words // 10  # the most common words belong to no subject
    pools = [topical + rng.choice(n_words - topical, k, replace=False) for k in sizes]
    phrase = np.zeros((len(pair_field), 2), np.int64)
    order = np.argsort(pair_field, kind="stable")
    start = np.concatenate([[0], np.cumsum(pairs)])
    for field in range(n_fields):
        pool = pools[n_areas + field]
        one, other = np.triu_indices(len(pool), 1)
        chosen = rng.choice(len(one), pairs[field], replace=False)
        both = np.stack([pool[one[chosen]], pool[other[chosen]]], 1)
        phrase[order[start[field] : start[field + 1]]] = rng.permuted(both, axis=1)
    pool_start = np.concatenate([[0], np.cumsum(sizes)])
    return phrase, np.concatenate(pools).astype(np.int32), pool_start


def _names(
    words: list[str],
    parent: NDArray[np.int32],
    first_field: int,
    first_topic: int,
    pools: NDArray[np.int32],
    pool_start: NDArray[np.int64],
    phrase: NDArray[np.int64],
) -> list[str]:
    """``area/field/two-words``: areas and fields are called after their first word."""
    names: list[str] = []
    taken: dict[str, int] = {}
    for label in range(first_topic):
        word = words[pools[pool_start[label]]]
        name = word if label < first_field else f"{names[parent[label]]}/{word}"
        taken[name] = taken.get(name, 0) + 1
        names.append(name if taken[name] == 1 else f"{name}-{taken[name]}")
    one, two = phrase.T.tolist()
    above = parent[first_topic:].tolist()
    names += [f"{names[f]}/{words[a]}-{words[b]}" for f, a, b in zip(above, one, two, strict=True)]
    return names


ONSETS = (*"bdfghjklmnrstv", "br", "dr", "gl", "kr", "st", "tr")
VOWELS = "aeiou"
CODAS = ("", "n", "r", "s", "l")


def _language(n: int, rng: np.random.Generator) -> list[str]:
    """``n`` different pronounceable words, the short ones first (they will be the common ones)."""
    syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
    words: list[str] = []
    for length in (1, 2, 3, 4):
        space = len(syllables) ** length * len(CODAS)
        take = min(n - len(words), 60 if length == 1 else space // 2)
        for code in rng.choice(space, take, replace=False).tolist():
            code, coda = divmod(code, len(CODAS))
            word = ""
            for _ in range(length):
                code, digit = divmod(code, len(syllables))
                word += syllables[digit]
            words.append(word + CODAS[coda])
    return words
