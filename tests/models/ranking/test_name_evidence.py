"""Names of labels in texts: numbers by hand, and a reranker that learns what they are worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from coattail.arrays import TopK, best_first
from coattail.errors import DataError
from coattail.labels.frequency import inverse_propensity
from coattail.models.ranking.calibration import Calibration, true_places
from coattail.models.ranking.name_evidence import EVIDENCE, Names
from coattail.models.ranking.rerank import Reranker
from coattail.models.ranking.trade_off import RerankParams


def evidence(names: list[str], text: str, label: int = 0) -> dict[str, float]:
    found = Names(names).evidence([text], np.array([[label]]))
    return dict(zip(EVIDENCE, found[0, 0].tolist(), strict=True))


# --- by hand -------------------------------------------------------------------------------------


def test_words_of_few_names_weigh_more():
    names = ["tax law", "sea law"]  # law is in both: weight 1; tax in one: 1 + ln 2
    rare = 1 + math.log(2)
    found = evidence(names, "Contract\nlaw and law")
    assert found["cover"] == pytest.approx(1 / (1 + rare))
    assert found["strength"] == pytest.approx(math.log(3) / (1 + rare))
    assert found["stems"] == found["cover"]
    assert found["title_cover"] == found["phrase"] == found["title_phrase"] == 0


def test_a_whole_name_counts_as_a_phrase_only_word_by_word():
    names = ["road transport", "x"]
    apart = evidence(names, "transport by road")
    assert apart["cover"] == 1
    assert apart["phrase"] == 0
    twice = evidence(names, "Rules\nRoad transport. On road  TRANSPORT!")
    assert twice["phrase"] == pytest.approx(math.log(3))
    assert twice["title_phrase"] == 0
    assert evidence(names, "\n Road transport rules\nnothing")["title_phrase"] == 1


def test_another_form_of_a_word_is_found_by_its_beginning():
    found = evidence(["fisheries", "x"], "Report\non a fishery")
    assert (found["cover"], found["stems"], found["title_stems"]) == (0, 1, 0)
    assert evidence(["fisheries", "x"], "Fishery")["title_stems"] == 1
    assert evidence(["fisheries", "x"], "fish and fishing")["stems"] == 0  # four letters in common


@pytest.mark.parametrize("name", ["", "::", "--"])
def test_names_without_words_and_empty_texts_say_nothing(name):
    assert set(evidence([name, "x"], "a text").values()) == {0}
    assert set(evidence(["a name", name], "").values()) == {0}


def test_names_of_several_words_in_one_are_taken_apart():
    assert evidence(["works_with::unicode-text", "x"], "works with unicode text")["cover"] == 1


def test_padding_has_no_evidence_and_a_wrong_number_of_texts_is_refused():
    names = Names(["law"])
    found = names.evidence(["law"], np.array([[0, -1]]))
    assert found[0, 0, 0] == 1
    assert not found[0, 1].any()
    assert names.evidence([], np.zeros((0, 3), int)).shape == (0, 3, len(EVIDENCE))
    with pytest.raises(DataError, match="ranking has 1 texts, but 2 were given"):
        names.evidence(["a", "b"], np.array([[0]]))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.text(max_size=80))
def test_any_name_and_text_give_shares_between_none_and_all(names, text):
    found = Names(names).evidence([text], np.arange(len(names))[None])
    shares = found[..., [EVIDENCE.index(n) for n in EVIDENCE if n.endswith(("cover", "stems"))]]
    assert np.isfinite(found).all()
    assert (shares >= 0).all()
    assert (shares <= 1 + 1e-12).all()


# --- learned -------------------------------------------------------------------------------------

LABELS, TEXTS = 60, 600


def world(seed: int = 0):
    """A base that scores by chance; what is true is what the text names."""
    rng = np.random.default_rng(seed)
    names = [f"word{i} thing{i}" for i in range(LABELS)]
    own = np.argsort(rng.random((TEXTS, LABELS)), axis=1)[:, :3]
    Y = np.zeros((TEXTS, LABELS), np.float32)
    np.put_along_axis(Y, own, 1, axis=1)
    texts = ["Title\n" + " and ".join(names[label] for label in row) for row in own]
    scores = rng.uniform(0.1, 0.9, (TEXTS, LABELS))
    base = best_first(np.tile(np.arange(LABELS), (TEXTS, 1)), scores, 20, "probability")
    counts = 2 * Y.sum(axis=0).astype(np.int64)
    return base, sp.csr_matrix(Y), counts, inverse_propensity(counts, 2 * TEXTS), texts, names


def reranker(names: list[str], **settings) -> Reranker:
    params = {"base": "b", "strategy": "learned", "calibration": "names"} | settings
    return Reranker(RerankParams(**params), names)


@pytest.fixture(scope="module")
def learned() -> Reranker:
    """Fitted on the world, for the tests that only ask."""
    base, Y, counts, q, texts, names = world()
    return reranker(names).fit(base, Y, counts, q, texts)


def test_what_a_name_is_worth_is_learned(learned):
    base, Y, _, _, texts, _ = world()
    model = learned
    ranked = model.predict(base, 20, texts)
    # Of a text's three labels those on the list of twenty come first, all of them.
    listed = true_places(base, Y).sum(axis=1)
    first = true_places(ranked, Y)
    assert all(row[:n].all() for row, n in zip(first, listed, strict=True))
    assert model.learned_.chosen.calibration == "names"
    # Out of fold, too, but for one text of 1,200, judged by a map that has not seen it.
    best = 100 * (listed > 0).mean()
    assert best - 100 / TEXTS - 1e-9 <= model.learned_.chosen.p_at_1 <= best + 1e-9
    assert model.learned_.base.p_at_1 < 10


def test_save_and_load_agree_and_one_text_is_ranked_as_among_many(learned, tmp_path):
    base, _, _, _, texts, _ = world()
    learned.save(tmp_path / "model")
    again = Reranker.load(tmp_path / "model")
    all_at_once = learned.predict(base, 10, texts)
    alone = again.predict(TopK(base.labels[7:8], base.scores[7:8], base.kind), 10, texts[7:8])
    np.testing.assert_array_equal(alone.labels[0], all_at_once.labels[7])
    np.testing.assert_allclose(alone.scores[0], all_at_once.scores[7], rtol=1e-6)


def test_names_also_calibrate_a_ranking_whose_weights_are_fixed():
    base, Y, counts, q, texts, names = world()
    model = reranker(names, strategy="power", power=0.0).fit(base, Y, counts, q, texts)
    assert true_places(model.predict(base, 1, texts), Y).mean() > 0.6  # 3 of 60 listed by chance


def test_without_texts_or_names_it_says_what_is_missing(learned):
    base, Y, counts, q, texts, names = world()
    with pytest.raises(DataError, match="reads the texts themselves"):
        reranker(names).fit(base, Y, counts, q)
    with pytest.raises(DataError, match="59 names for 60 labels"):
        reranker(names[:-1]).fit(base, Y, counts, q, texts)
    with pytest.raises(DataError, match="reads the texts themselves"):
        learned.predict(base, 5)
    plain = Reranker(RerankParams(base="b"), names)
    assert not plain.reads_texts
    assert learned.reads_texts


def test_very_many_texts_are_thinned_out(monkeypatch):
    base, Y, counts, _, texts, names = world()
    found = Names(names).evidence(texts, base.labels)
    hits = true_places(base, Y)
    frequency = counts / 2
    monkeypatch.setattr("coattail.models.ranking.calibration.NAMES_TEXTS", 200)
    some = Calibration("names").fit(base, hits, frequency, found)
    every_third = TopK(base.labels[::3], base.scores[::3], base.kind)
    same = Calibration("names").fit(every_third, hits[::3], frequency, found[::3])
    assert some.to_json() == same.to_json()
    assert Calibration.from_json(some.to_json()).to_json() == some.to_json()
