"""Figures of rows: columns by hand, resampling over texts and seeds, files to the byte."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from coattail.arrays import TopK
from coattail.errors import ConfigError, DataError
from coattail.evaluation.metrics import Ratio
from coattail.studies import figures, outcome
from coattail.studies.figures import Figure, RowJudge
from coattail.studies.outcome import StudyOutcome, StudyRan
from tests.evaluation.test_scoring import N_LABELS, world
from tests.studies.test_verdicts import found


def ratio(*hits: float) -> Ratio:
    return Ratio(np.array(hits), np.ones(len(hits)))


def test_the_interval_is_over_texts_and_seeds() -> None:
    """Two seeds that differ by 10 points: their mean varies although the texts are all alike."""
    same = [figures.draws({"p_at_1": ratio(*[0.5] * 50)}, 200) for _ in range(2)]
    apart = [figures.draws({"p_at_1": ratio(*[v] * 50)}, 200) for v in (0.5, 0.6)]
    for seeds, low, high in ((same, 50.0, 50.0), (apart, 50.0, 60.0)):
        means, by_seed = figures.over_seeds(seeds, 200)
        shown = figures.figure(means["p_at_1"], by_seed["p_at_1"])
        assert (shown.low, shown.high) == pytest.approx((low, high))
        assert shown.value == pytest.approx((low + high) / 2)
    assert by_seed["p_at_1"] == pytest.approx([50.0, 60.0])
    assert shown.spread == pytest.approx(np.std([50, 60], ddof=1))


def test_rows_are_paired_text_by_text_and_seed_by_seed() -> None:
    rng = np.random.default_rng(0)
    hits = [rng.random(80) for _ in range(3)]
    one = [figures.draws({"p_at_1": ratio(*h)}, 300) for h in hits]
    other = [figures.draws({"p_at_1": ratio(*(h - 0.02))}, 300) for h in hits]
    means = [figures.over_seeds(seeds, 300)[0]["p_at_1"] for seeds in (one, other)]
    assert means[0] - means[1] == pytest.approx(2.0)  # in every draw: nothing is left to chance
    assert np.std(means[0]) > 1


def test_columns_are_what_they_say(tmp_path: Path) -> None:
    features = world(tmp_path)
    Y = features.Y("test")
    scores = Y.toarray() + np.linspace(0, 0.5, N_LABELS)  # knows the truth
    order = np.argsort(-scores, axis=1, kind="stable").astype(np.int32)
    top = TopK(order, np.take_along_axis(scores, order, 1).astype(np.float32), "score")
    columns = ["p_at_1", "tail_recall_at_5", "recall_at_5_of_0_to_1000", "reordered_psp_at_1"]
    ratios = RowJudge(features).ratios(top, top, columns)
    for name in columns[1:3]:
        assert ratios[name].percent == pytest.approx(100)
    assert ratios["p_at_1"].percent == pytest.approx(100 * (np.diff(Y.indptr) > 0).mean())
    rare = RowJudge(features).ratios(top, top, ["recall_at_5_of_0_to_0"])
    unseen = (features.counts == 0) & (np.asarray(Y.sum(axis=0)).ravel() > 0)
    assert math.isnan(rare["recall_at_5_of_0_to_0"].percent) == (not unseen.any())
    with pytest.raises(ConfigError, match="p_at_x"):
        RowJudge(features).ratios(top, top, ["p_at_x"])


def test_changes_of_equal_rows_are_zero() -> None:
    names = dict.fromkeys([m for over in figures.CHANGES.values() for m in over], ratio(1, 0, 1))
    row = figures.draws(names, 100)
    assert all((v[~np.isnan(v)] == 0).all() for v in figures.changes(row, row).values())


# --- the outcome on disk -------------------------------------------------------------------------


def example(processor: str = "p") -> StudyOutcome:
    one = found((2.0, 1.0, 3.0))
    none = {"psp_at_1": Figure(math.nan, 0.0, math.nan, math.nan)}
    rows = one.rows | {"none": dataclasses.replace(one.rows["none"], figures=none)}
    return StudyOutcome(
        "s", dataclasses.replace(one, rows=rows), StudyRan("c", processor, {"pw": [1.5, None]})
    )


def test_an_outcome_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    assert outcome.save(example(), path)
    assert outcome.load(path).text() == path.read_text() == example().text()
    assert json.loads(path.read_text())["found"]["rows"]["none"]["figures"]["psp_at_1"][0] is None


def test_the_same_findings_leave_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    outcome.save(example(), path)
    before = path.read_bytes()
    assert not outcome.save(example("another processor"), path)
    assert path.read_bytes() == before
    changed = example()
    changed.found.seeds.append(1)
    assert outcome.save(changed, path)


@pytest.mark.parametrize("content", ["", "{}", '{"study": "s", "found": {"rows": 3}}', "[1"])
def test_a_broken_outcome_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(DataError, match=r"s\.json is not the outcome of a study"):
        outcome.load(tmp_path / "s.json")
    assert outcome.save(example(), tmp_path / "s.json")  # a new run mends it
    assert outcome.load(tmp_path / "s.json") is not None
    with pytest.raises(DataError, match="coattail study run none"):
        outcome.load(tmp_path / "none.json")
