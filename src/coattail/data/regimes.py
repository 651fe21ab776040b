"""Smaller datasets cut from EURLEX57K, in the shape of EUR-Lex-4K: the same texts everywhere.

The draws are those of the trials that chose these regimes. Files are plain JSON lines, since
compressed bytes depend on who compressed them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coattail.data.formats.lines import lines

ORIGIN = "eurlex57k"
"""The entry whose files these are cut from."""


def eurlex57k_15k(source: dict[str, Path], target: Path) -> None:
    """15,449 training texts, 1,544 of validation and all test texts, labels as they are."""
    draw = random.Random(0)
    train = _read(source["train"])
    valid = _read(source["valid"])
    _write(target / "train.jsonl", train, draw.sample(range(len(train)), 15_449))
    _write(target / "valid.jsonl", valid, draw.sample(range(len(valid)), 1_544))
    test = _read(source["test"])
    _write(target / "test.jsonl", test, range(len(test)))
    _copy_names(source, target)


def eurlex57k_8k(source: dict[str, Path], target: Path) -> None:
    """8,000 training texts and the labels that at least two of them have; texts with none go."""
    draw = np.random.default_rng(0)
    drawn: dict[str, list[str]] = {}
    for split, size in (("train", 15_449), ("valid", 1_500), ("test", 3_865)):
        texts = _read(source[split])
        chosen = np.sort(draw.choice(len(texts), size, replace=False))
        if split == "train":
            chosen = chosen[np.random.default_rng(1).choice(size, 8_000, replace=False)]
        drawn[split] = [texts[i] for i in sorted(chosen)]
    counted = Counter(label for line in drawn["train"] for label in json.loads(line)["labels"])
    kept = {label for label, texts_of_it in counted.items() if texts_of_it > 1}
    for split, texts in drawn.items():
        cut = [text for line in texts if (text := _with_labels(line, kept))]
        _write(target / f"{split}.jsonl", cut, range(len(cut)))
    _copy_names(source, target)


def _with_labels(line: str, kept: set[str]) -> str:
    """The text with its labels among ``kept``; nothing if it has none of them."""
    document = json.loads(line)
    document["labels"] = [label for label in document["labels"] if label in kept]
    return json.dumps(document, ensure_ascii=False) if document["labels"] else ""


def _read(path: Path) -> list[str]:
    return [line for _, line in lines(path)]


def _write(path: Path, texts: Sequence[str], chosen: Sequence[int]) -> None:
    """The chosen texts, in the order of the original."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{texts[i]}\n" for i in sorted(chosen))


def _copy_names(source: dict[str, Path], target: Path) -> None:
    (target / "label_names.json").write_bytes(source["label_names"].read_bytes())
