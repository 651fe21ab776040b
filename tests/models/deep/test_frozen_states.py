"""States of a frozen encoder: kept for the next training, made again when cut off, bounded."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coattail.arrays import Ragged
from coattail.models import begun_with
from coattail.models.deep.batching import Batch
from coattail.models.deep.training.frozen_states import Keeping, WordPieces, keep_states

TEXTS = Ragged(np.array([0, 2, 3]), np.array([4, 5, 6], np.int32))


class Encoder:
    """Every piece becomes its id in all places; counts the texts it sees."""

    def __init__(self, width: int = 3) -> None:
        self.width, self.seen = width, 0

    def __call__(self, batch: Batch) -> torch.Tensor:
        self.seen += len(batch.ids)
        return batch.ids[:, :, None].expand(-1, -1, self.width).float()


def keep(encoder: Encoder, tokens: Ragged = TEXTS, **settings: Any) -> WordPieces:
    usual = {"one_each": False, "precision": "float32", "budget_mb": 2, "batch": 8}
    usual |= {"device": "cpu", "identity": b"one", "width": encoder.width}
    return keep_states(tokens, encoder, Keeping(**(usual | settings)))


def test_a_second_training_reads_what_the_first_encoded(tmp_path: Path) -> None:
    first, second = Encoder(), Encoder()
    made, found = keep(first, folder=tmp_path), keep(second, folder=tmp_path)
    assert (first.seen, second.seen) == (2, 0)
    np.testing.assert_array_equal(found.states, np.repeat([[4.0], [5], [6]], 3, axis=1))
    np.testing.assert_array_equal(made.states, found.states)


def test_without_a_folder_nothing_stays(tmp_path: Path) -> None:
    pieces = keep(Encoder())
    assert pieces.states is not None
    np.testing.assert_array_equal(pieces.states[:, 0], [4, 5, 6])


OTHERS: tuple[dict[str, Any], ...] = (
    {"identity": b"two"},
    {"precision": "float16"},
    {"tokens": Ragged(np.array([0, 1, 3]), TEXTS.values)},
    {"tokens": Ragged(TEXTS.indptr, TEXTS.values + 1)},
    {"batch": 1},  # texts padded otherwise: other last bits
)


@pytest.mark.parametrize("settings", OTHERS)
def test_whatever_is_encoded_otherwise_has_a_file_of_its_own(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    keep(Encoder(), folder=tmp_path)
    encoder = Encoder()
    keep(encoder, folder=tmp_path, **settings)
    assert encoder.seen == 2


@pytest.mark.parametrize(("name", "value"), [("_code", "other code"), ("FORMAT", 0)])
def test_other_code_reads_no_states_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    keep(Encoder(), folder=tmp_path)
    monkeypatch.setattr(begun_with, name, value)
    encoder = Encoder()
    keep(encoder, folder=tmp_path)
    assert encoder.seen == 2


def test_a_file_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    keep(Encoder(), folder=tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    keep(Encoder(), folder=tmp_path)
    assert path.read_bytes() == whole


def test_an_encoder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class Broken(Encoder):
        def __call__(self, batch: Batch) -> torch.Tensor:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        keep(Broken(), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_states_used_longest_ago_make_room(tmp_path: Path) -> None:
    texts = [Ragged(np.array([0, 1]), np.array([word], np.int32)) for word in range(3)]
    wide = Encoder(250_000)  # 1 MB a text; two fit the budget
    for age, word in ((20, 0), (10, 1)):
        before = set(tmp_path.iterdir())
        keep(wide, texts[word], folder=tmp_path)
        (new,) = set(tmp_path.iterdir()) - before
        os.utime(new, (time.time() - age,) * 2)
    keep(wide, texts[0], folder=tmp_path)  # read, so younger than the other now
    keep(wide, texts[2], folder=tmp_path)
    left = sorted(float(np.memmap(path, "float32")[0]) for path in tmp_path.iterdir())
    assert left == [0.0, 2.0]
