"""Which candidate tags a text when nobody names one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from coattail.cli.main import main
from coattail.data.features import Features
from coattail.errors import ModelError
from coattail.serving.bundle import bundle
from coattail.serving.tagger import Tagger
from tests.reportable import shared_workspace


def test_the_champion_tags_unless_another_is_named(tmp_path, tmp_path_factory, monkeypatch):
    made = shared_workspace(tmp_path_factory)
    monkeypatch.chdir(made)
    champion = json.loads((made / "data" / "evaluation" / "summary.json").read_text())["champion"]
    assert Tagger.of_workspace().name == champion["name"]
    assert Tagger.of_workspace("branches").name == "branches"
    shutil.copy("params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="no results yet; run make repro, or name a candidate"):
        Tagger.of_workspace()


UNKNOWN = "zyx wvu"


@pytest.fixture
def workspace(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(shared_workspace(tmp_path_factory))


def some_text():
    return Features("data/features").texts("test")[0]


def run(*arguments, input=None):
    return CliRunner().invoke(main, ["tag", *arguments], input=input, catch_exceptions=False)


def test_tags_come_in_the_order_of_the_score_with_the_probability_beside_it(workspace):
    tagger = Tagger.of_workspace("again")
    top = tagger.rank([some_text()], 5)
    assert top.kind == "score"
    (found,) = tagger.tag([some_text()], 5)
    names = Features("data/features").label_names
    assert [tag.label for tag in found.tags] == [names[label] for label in top.labels[0]]
    assert [tag.score for tag in found.tags] == top.scores[0].tolist()
    assert [tag.probability for tag in found.tags] == top.probability[0].tolist()
    shown = run("--candidate", "again", some_text()).stdout.splitlines()[1:]
    expected = [round(tag.probability, 3) for tag in found.tags]
    assert [float(line.split()[0]) for line in shown] == expected


def test_margins_are_shown_as_they_are(workspace):
    (found,) = Tagger.of_workspace("lines").tag([some_text()], 3)
    assert [tag.probability for tag in found.tags] == [None] * 3
    shown = run("--candidate", "lines", "-k", "3", some_text()).stdout.splitlines()[1:]
    expected = [round(tag.score, 3) for tag in found.tags]
    assert [float(line.split()[0]) for line in shown] == expected


@pytest.mark.parametrize("candidate", ["lines", "branches", "attention", "mean", "again"])
def test_a_text_without_a_known_word_gets_no_labels_and_a_sentence(workspace, candidate):
    known, unknown = Tagger.of_workspace(candidate).tag([some_text(), UNKNOWN], 5)
    assert known.known
    assert len(known.tags) == 5
    assert unknown == ([], False)
    alone = run("--candidate", candidate, UNKNOWN)
    assert alone.exit_code == 1
    assert alone.stdout == f"{UNKNOWN}\n"
    assert f"text 1: {candidate} knows no word of it" in alone.stderr
    assert "vocabulary.txt" in alone.stderr


def test_of_many_lines_those_without_a_known_word_are_named(workspace):
    word = Features("data/features").vocabulary[5]
    done = run("--candidate", "lines", "-k", "2", input=f"{UNKNOWN}\n{word} {UNKNOWN}\n\n")
    assert done.exit_code == 0
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["text 1", "text 3"]
    assert len(done.stdout.splitlines()) == 3 + 2


def test_a_word_known_to_one_of_two_is_enough_for_their_mean(workspace, tmp_path):
    chain = Tagger.of_workspace("mean").chain
    folder = bundle(tmp_path / "bundle", "mean", chain, Path("data"))
    listed = folder / "features" / "tfidf" / "words.txt"
    words = listed.read_text().splitlines()
    listed.write_text("\n".join(["<gone>", *words[1:]]) + "\n")  # networks still know it
    known = {name: Tagger(folder, name, chain).tag([words[0]], 1)[0].known for name in chain}
    assert known == {"lines": False, "attention": True, "mean": True}


def test_no_text_at_all_is_tagged_with_nothing(workspace):
    assert Tagger.of_workspace("mean").tag([], 3) == []
