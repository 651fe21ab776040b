"""What unfinished fits were begun with: digests of inputs, names of those that changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from coattail import __version__
from coattail.arrays import Ragged
from coattail.config import Params
from coattail.models import begun_with
from coattail.models.begun_with import changed, claim, digest, inputs


class Settings(Params):
    """Two settings."""

    C: float = 1.0
    names: tuple[str, ...] = ("a", "b")


Y = sp.csr_matrix(np.array([[1, 0, 2], [0, 3, 0]], np.float32))
WIDER = sp.csr_matrix((Y.data, Y.indices, Y.indptr), shape=(2, 4))
HEAVIER = sp.csr_matrix((Y.data * 2, Y.indices, Y.indptr), shape=(2, 3))
TEXTS = Ragged(np.array([0, 2, 3]), np.array([5, 6, 7], np.int32))
CUT_ELSEWHERE = Ragged(np.array([0, 1, 3]), np.array([5, 6, 7], np.int32))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Y, WIDER),
        (Y, HEAVIER),
        (TEXTS, CUT_ELSEWHERE),
        (np.arange(6), np.arange(6).reshape(2, 3)),
        (np.arange(6, dtype=np.int32), np.arange(6, dtype=np.uint32)),
        (np.zeros(0, np.float32), None),
        (["ab", "c"], ["a", "bc"]),
        ([["a"], "b"], ["a", ["b"]]),
        ("1", 1),
        ((0.55, 1.5), (0.6, 1.5)),
    ],
)
def test_different_things_have_different_digests(one: object, other: object) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)


def test_a_digest_is_of_the_content_not_of_where_it_lies(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.save(tmp_path / "array.npy", array)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    every_other = np.repeat(array, 2, axis=0)[::2]
    for same in (mapped, every_other, np.asfortranarray(array)):
        assert digest(same) == digest(array)
    assert digest(Y) == digest(Y.copy())


def test_what_changed_is_named_param_by_param(monkeypatch: pytest.MonkeyPatch) -> None:
    before = inputs(Settings(), {"labels": Y, "vectors": None})
    assert changed(before, inputs(Settings(), {"labels": Y.copy(), "vectors": None})) == []
    after = inputs(Settings(C=2.0), {"labels": WIDER, "vectors": None, "tree": TEXTS})
    assert changed(before, after) == ["params.C", "labels", "tree"]
    assert changed(after, before) == ["params.C", "labels", "tree"]
    monkeypatch.setattr(begun_with, "FORMAT", begun_with.FORMAT + 1)
    assert changed(before, inputs(Settings(), {"labels": Y, "vectors": None})) == ["format"]


def test_code_is_the_version_of_the_package_until_a_stage_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(begun_with, "_code", begun_with.code())  # put back afterwards
    assert __version__ in begun_with.code()
    before = inputs(Settings(), {})
    begun_with.set_code("src/coattail/arrays.py 0123")
    assert changed(before, inputs(Settings(), {})) == ["code"]


def test_a_folder_is_kept_for_the_same_and_emptied_for_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, now = tmp_path / "some" / "fit", inputs(Settings(), {"labels": Y})
    claim("fit", folder, now)
    (folder / "0.npz").write_bytes(b"part")
    claim("fit", folder, now)
    assert (folder / "0.npz").exists()
    assert not caplog.records
    claim("fit", folder, inputs(Settings(C=2.0), {"labels": WIDER}))
    assert [path.name for path in folder.iterdir()] == ["begun_with.json"]
    (message,) = caplog.messages
    assert message == (f"fit: starting anew, since {folder} was begun with other params.C, labels")


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_that_does_not_tell_is_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "0.npz").write_bytes(b"part")
    if content is not None:
        (tmp_path / "fit" / "begun_with.json").write_text(content)
    now = inputs(Settings(), {})
    claim("fit", tmp_path / "fit", now)
    assert [path.name for path in (tmp_path / "fit").iterdir()] == ["begun_with.json"]
    assert json.loads((tmp_path / "fit" / "begun_with.json").read_text()) == now
    assert "cannot be read" in caplog.text
