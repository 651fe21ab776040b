"""The report: what stands on the page, that nothing breaks it, and that it repeats."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from coattail.arrays import TopK
from coattail.cli.main import main
from coattail.config import read_yaml
from coattail.data.features import Features
from coattail.errors import DataError
from coattail.evaluation import metrics, statements
from coattail.evaluation.statements import title
from coattail.models.deep import deep_models
from coattail.pipeline import registry
from coattail.pipeline.candidates import candidates
from coattail.pipeline.result_params import ReportParams
from coattail.report import page, terminal
from coattail.report.collect import Content, collect, write_plots
from coattail.report.examples import choose, read_texts, said
from coattail.report.explanations import Explainer
from coattail.report.findings import findings, verdicts
from coattail.report.label_table import label_table
from coattail.report.numbers import numbers, plain, script_json
from coattail.testing import network_contract
from coattail.tracking import executions
from coattail.tracking.record import RunRecord
from tests.reportable import HOSTILE_LABEL, HOSTILE_TEXT, shared_workspace
from tests.tiny_bert import save_tiny_bert

NAMES = ("lines", "branches", "forest", "attention", "cnn", "mean", "again")


class Reader(HTMLParser):
    """Texts, attributes and scripts of a page, as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []  # element, name, value
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag in ("script", "style"):
            self._script = dict(attributes).get("id") or f"{tag}{len(self.scripts)}"

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.texts.append(data)
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return shared_workspace(tmp_path_factory)


@pytest.fixture(scope="module")
def content(folder) -> Content:
    return collect(ReportParams(examples=8), folder / "data", folder / "params.yaml")


@pytest.fixture(scope="module")
def html(content) -> str:
    return page.render(content)


def test_page_names_every_candidate_and_has_every_section(html):
    read = Reader(html)
    text = " ".join(read.texts)
    for name in NAMES:
        assert name in text
    ids = {value for _, name, value in read.attributes if name == "id"}
    assert {"glance", "leaderboard", "real", "bands", "front", "calibration"} <= ids
    assert {"labels", "examples", "run"} <= ids
    links = {value[1:] for tag, name, value in read.attributes if tag == "a" and name == "href"}
    assert links <= ids


def test_texts_and_labels_of_the_data_never_become_markup(html, content):
    read = Reader(html)
    assert any(HOSTILE_TEXT in example.text for example in content.examples)
    assert HOSTILE_LABEL in content.names.values()
    assert HOSTILE_LABEL not in html
    assert HOSTILE_TEXT not in html
    assert not [a for a in read.attributes if a[1].startswith("on") or a[2] == "x"]
    assert len(read.scripts) == 4, "style, numbers, plotly, script: one of each"
    assert HOSTILE_LABEL in json.loads(read.scripts["numbers"])["labels"]["name"]
    assert any(HOSTILE_TEXT.split("{{")[0] in text for text in read.texts)
    assert any("{{numbers}}" in text for text in read.texts), "no place of the template"


def test_page_refers_to_nothing_outside_itself(html):
    read = Reader(html)
    links = [value for _, name, value in read.attributes if name in ("src", "href", "srcset")]
    assert all(link.startswith(("#", "data:")) for link in links)
    own = "".join(text for name, text in read.scripts.items() if name != "plotly")
    assert not re.search(r"https?://|@import|url\(", own)
    policy = next(value for _, _, value in read.attributes if "default-src" in value)
    assert "default-src 'none'" in policy, "the browser itself refuses every request"


def test_plotly_inside_is_the_basic_bundle_with_its_licence():
    code = gzip.decompress(base64.b64decode(page.plotly())).decode()
    assert re.search(r"plotly\.js \(basic - minified\) v\d+\.\d+\.\d+", code[:300])
    assert "Licensed under the MIT license" in code[:300]


def test_same_workspace_gives_same_bytes(folder, html):
    again = collect(ReportParams(examples=8), folder / "data", folder / "params.yaml")
    assert page.render(again) == html


def test_figures_have_two_decimals_at_most(html):
    read = Reader(html)
    shown = [text for text in read.texts if re.search(r"\d\.\d{3,}", text)]
    assert not shown
    assert not re.search(r"\d\.\d{3,}", read.scripts["numbers"])


def test_page_of_eurlex_size_stays_far_below_ten_megabytes(content):
    # The candidates here are seven; a dozen would not double it.
    rng = np.random.default_rng(0)
    size = 4193
    table = replace(
        content.labels,
        label=np.arange(size),
        count=rng.integers(0, 5000, size),
        true=rng.integers(0, 600, size),
        hit={name: rng.integers(0, 600, size) for name in content.candidates},
        predicted={name: rng.integers(0, 600, size) for name in content.candidates},
    )
    large = replace(
        content,
        labels=table,
        names={label: f"label {label} with a name of usual length" for label in range(size)},
        bands=dict.fromkeys(range(size), "tail"),
        examples=[],
    )
    assert len(page.render(large).encode()) < 1.5e6


def test_numbers_are_those_of_the_evaluation(content):
    made = numbers(content)
    psp = made["metrics"]["psp_at_5"]
    for position, name in enumerate(NAMES):
        values = content.evaluation.metrics[name]
        assert psp["values"][position][0] == values["psp_at_5"]
        assert made["front"][position][:2] == [values["p_at_5"], values["psp_at_5"]]
        tail = made["bands"]["values"]["recall_at_5"][position][2]
        assert tail == values["tail_recall_at_5"]
    assert made["candidates"][made["base"]]["name"] == "lines"
    assert psp["base"]["rows"][made["base"]][:3] == [0.0, 0.0, 0.0]
    wins = psp["base"]["rows"][3][4:]
    assert sum(wins) == content.evaluation.summary["texts"]


def test_what_states_probabilities_has_a_reliability_curve(content):
    shown = {NAMES[int(position)] for position in numbers(content)["calibration"]}
    assert "lines" not in shown, "margins"
    assert {"branches", "attention", "cnn", "again"} <= shown


def test_an_example_says_probability_where_there_is_one():
    labels, scores = np.array([[4, 2, -1]], np.int32), np.array([[3.0, 1.0, -np.inf]], np.float32)
    likely = np.array([[0.25, 0.75, 0.0]], np.float32)
    with_one = said(TopK(labels, scores, "score", probability=likely), 0, 3, (2,))
    assert [(one.label, one.hit, one.probability) for one in with_one] == [
        (4, False, 0.25),
        (2, True, 0.75),
    ]
    assert [one.probability for one in said(TopK(labels, scores, "margin"), 0, 9, ())] == [None] * 2


def test_training_curves_come_from_the_run_records(content):
    assert numbers(content)["training"] == {
        str(NAMES.index(name)): [[1, 50.0], [2, 51.0], [3, 52.0]] for name in ("attention", "cnn")
    }


def test_json_is_safe_in_a_script_and_has_no_nan():
    assert script_json(["</script>", "a & b", "\u2028"]) == (
        '["\\u003c/script\\u003e","a \\u0026 b","\\u2028"]'
    )
    assert plain({"a": [float("nan"), 1.23456, 2.0, -0.001]}) == {"a": [None, 1.23, 2, 0]}


def rankings_by_hand() -> tuple[dict[str, TopK], sp.csr_matrix, np.ndarray]:
    """Labels 0 and 1 are head, 2 is tail; what two candidates say about five texts."""
    Y = sp.csr_matrix(np.array([[1, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0]], np.float32))
    first = [[0, 1], [0, 2], [0, 1], [0, 1], [0, 1]]
    second = [[0, 1], [0, 1], [1, 0], [2, -1], [0, 1]]
    tops = {}
    for name, labels in (("first", first), ("second", second)):
        ids = np.array(labels, np.int32)
        scores = np.where(ids < 0, -np.inf, [[0.9, 0.5]]).astype(np.float32)
        tops[name] = TopK(ids, scores)
    return tops, Y, np.array([0, 0, 2], np.int8)


def test_examples_show_rare_hits_disagreement_misses_and_agreement():
    tops, Y, bands = rankings_by_hand()
    assert choose(tops, Y, bands, 2, 10) == [
        ("tail", 1),  # the first finds label 2, the second does not
        ("disagree", 3),  # two hits against none
        ("missed", 2),
        ("right", 0),
    ]
    assert choose(tops, Y, bands, 2, 2) == [("tail", 1), ("disagree", 3)]
    assert choose(tops, Y, bands, 2, 0) == []


def test_table_of_labels_counts_hits_and_predictions(content, folder):
    features = Features(folder / "data" / "features")
    table = content.labels
    assert table.left_out == 0
    assert (np.diff(table.count) <= 0).all(), "most frequent first"
    top = TopK.load(folder / "data" / "ranked" / "lines" / "test.npz").head(5)
    Y = features.Y("test")
    for row in (0, 7, len(table.label) - 1):
        label = table.label[row]
        said = (top.labels == label).any(axis=1)
        true = Y[:, [label]].toarray()[:, 0] > 0
        assert table.predicted["lines"][row] == said.sum()
        assert table.hit["lines"][row] == (said & true).sum()
        assert table.true[row] == true.sum()


def test_of_too_many_labels_an_even_sample_is_shown(folder):
    features = Features(folder / "data" / "features")
    tops = {"lines": TopK.load(folder / "data" / "ranked" / "lines" / "test.npz")}
    few = label_table(tops, features, 5, most=10)
    assert len(few.label) == 10
    assert few.left_out == features.n_labels - 10
    assert few.count[0] == features.counts.max()
    assert few.count[-1] == features.counts.min()


def test_words_come_from_the_text_and_only_from_candidates_that_can_tell(content, folder):
    features = Features(folder / "data" / "features")
    words, known = set(features.words), candidates(read_yaml(folder / "params.yaml"))
    explainer = Explainer(folder / "data", known, 3)
    for example in content.examples:
        present = {features.words[i] for i in features.X("test")[example.row].indices}
        for name in ("lines", "branches"):
            for prediction in example.said[name]:
                assert {word for word, _ in prediction.words} <= present <= words
        for name in ("forest", "cnn", "mean"):
            assert not any(prediction.words for prediction in example.said[name])
        given = [prediction.label for prediction in example.said["again"]]
        again = explainer.words_of("again", example.row, given)
        assert again == explainer.words_of("lines", example.row, given)
        assert all(len(one) <= 3 for one in again)
    assert any(p.words for e in content.examples for p in e.said["lines"])
    assert all(p.words for e in content.examples for p in e.said["attention"])
    total = [sum(w for _, w in p.words) for e in content.examples for p in e.said["attention"]]
    assert max(total) <= 1 + 1e-5, "attention over a text sums to 1"


def test_a_network_over_a_pretrained_encoder_speaks_in_the_encoders_words(folder, tmp_path):
    pytest.importorskip("transformers", reason="needs the extra coattail[transformers]")
    data = tmp_path / "data"
    shutil.copytree(folder / "data" / "features", data / "features")
    features = Features(data / "features")
    encoder = save_tiny_bert(tmp_path / "bert", features.vocabulary[2:60])
    section = {"model": "laroberta", "tree": "flat", "encoder": encoder, "epochs": 1}
    section |= {"fc": [4], "max_tokens": 20}
    model = deep_models.build(registry.parsed("train_deep", section, "test"))
    fit_on(model, features)
    model.save(data / "models" / "pieces")
    known = candidates({"train_deep": {"pieces": section}})
    explainer = Explainer(data, known, 3)
    assert explainer.explains("pieces")
    text = features.texts("test")[1]
    labels = [int(label) for label in features.Y("train").indices[:2]]
    said = explainer.words_of("pieces", 1, labels)
    for words in said:
        assert 0 < len(words) <= 3
        assert {word for word, _ in words} <= set(model.pieces(text))


def fit_on(model, features: Features) -> None:
    """A few texts are enough for a model that is only asked to speak."""
    texts, Y = features.texts("train")[:30], features.Y("train")[:30]
    network_contract.fit(model, texts, Y, threads=1)


def test_hits_are_marked_as_the_metrics_count_them(content, folder):
    features = Features(folder / "data" / "features")
    top = TopK.load(folder / "data" / "ranked" / "attention" / "test.npz")
    hits = metrics.judge(top.head(5), features.Y("test")).hits
    for example in content.examples:
        marked = [p.label for p in example.said["attention"] if p.hit]
        assert sorted(marked) == sorted(hits.label[hits.row == example.row].tolist())


def test_a_dataset_without_texts_shows_its_heaviest_words(folder, tmp_path):
    shutil.copytree(folder / "data" / "features", tmp_path / "features")
    (tmp_path / "features" / "texts" / "test.jsonl.gz").unlink()
    features = Features(tmp_path / "features")
    title_, text = read_texts(features, [4])[4]
    assert title_ == "4"
    x = features.X("test")[4]
    assert text.split(" ")[0] == features.words[x.indices[x.data.argmax()]]


def test_norms_and_training_curves_reach_the_plots(content, tmp_path):
    write_plots(content, tmp_path)
    with open(tmp_path / "norms.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["candidate"] for row in rows} == {"lines", "branches"}
    with open(tmp_path / "training.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [(r["candidate"], r["epoch"], r["valid_ndcg_at_5"]) for r in rows]
    assert shown[:3] == [
        ("attention", "1", "50"),
        ("attention", "2", "51"),
        ("attention", "3", "52"),
    ]
    own = [row for row in content.norms if row["candidate"] == "lines"]
    weight = sum(row["labels"] for row in own)
    assert sum(row["relative"] * row["labels"] for row in own) / weight == pytest.approx(1)


def test_findings_name_the_best_and_those_not_told_from_it(content):
    values = content.evaluation.metrics
    for one in findings(content.evaluation):
        assert one.value == pytest.approx(max(v[one.metric] for v in values.values()))
        assert one.low <= one.value <= one.high
        assert one.winner not in one.level
    sorted_out = verdicts(content.evaluation, "psp_at_5")
    judged = [name for names in sorted_out.values() for name in names]
    assert sorted(judged) == sorted(set(NAMES) - {"lines"})


def test_page_tells_who_is_champion_why_and_what_speaks_against_it(content, html):
    text = " ".join(" ".join(Reader(html).texts).split())
    assert statements.reason(content.evaluation) in text
    for warning in statements.warnings(content.evaluation):
        assert warning in text
    assert statements.gap(content.evaluation) in text
    champion = content.evaluation.summary["champion"]
    for metric in (champion["by"], *champion["floors"]):
        for row in statements.on_validation(content.evaluation, metric).values():
            assert f"{row['valid']:.2f}" in text
            assert f"{row['difference']:+.2f}" in text
    assert "60 validation texts" in text


def test_loud_warning_is_loud_on_the_page(content):
    short = {"by": "psp_at_5", "at_least": {"p_at_1": 101.0}, "floors": {"p_at_1": 101.0}}
    summary = content.evaluation.summary | {"champion": {"name": "lines", "cleared": []} | short}
    shown = page.render(replace(content, evaluation=replace(content.evaluation, summary=summary)))
    assert '<p class="loud">lines is published because nothing else could be chosen</p>' in shown
    assert shown.count("✗") > len(NAMES), "nobody is above the floor"


def test_terminal_says_the_same(folder, content, monkeypatch):
    monkeypatch.chdir(folder)
    said = CliRunner().invoke(main, ["report"])
    assert said.exit_code == 0, said.output
    for one in findings(content.evaluation):
        assert f"{title(one.metric)} {one.value:.2f}" in said.output
    assert "300 + 60 + 100 texts" in said.output
    assert statements.reason(content.evaluation) in " ".join(said.output.split())
    assert all(name in said.output for name in NAMES)
    assert max(len(line) for line in said.output.splitlines()) <= 110


def test_opening_a_page_that_is_not_there_says_how_to_make_it(tmp_path):
    with pytest.raises(DataError, match="dvc repro report"):
        terminal.open_page(tmp_path)


def test_run_section_tells_params_seconds_and_code(html):
    assert "hidden: 8" in " ".join(Reader(html).texts)
    assert "12.3 s" not in html, "DVC hashes the page, so it cannot hold times"
    tags = {"git.commit": "0123456789abcdef", "git.dirty": "true"}
    records = {"build_plt@flat": RunRecord("build_plt", "flat", {}, 0, 12_340, tags=tags)}
    text = " ".join(Reader(executions.fill(html, records)).texts)
    assert "All together 12.3 s. A star" in text
    assert "01234567*" in text
    records["train_deep@lines"] = RunRecord("train_deep", "lines", {}, 0)
    text = " ".join(Reader(executions.fill(html, records)).texts)
    assert "All together 12.3 s, without train_deep@lines, of which nobody here knows." in text


def test_candidate_that_was_not_evaluated_is_an_error(folder, tmp_path):
    params = (folder / "params.yaml").read_text().replace("  forest:", "  woods:")
    (tmp_path / "params.yaml").write_text(params)
    with pytest.raises(DataError, match="lacks woods"):
        collect(ReportParams(), folder / "data", tmp_path / "params.yaml")
