"""`coattail compare` against real git, DVC's experiment references and an MLflow store."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from coattail.cli.main import main
from coattail.errors import ConfigError, DataError, TrackingError
from coattail.evaluation import leaderboard
from coattail.experiments import compare
from coattail.tracking.record import Point, now
from coattail.tracking.store import Store

NAMES = ("p_at_1", "p_at_3", "p_at_5", "ndcg_at_5", "psp_at_1", "psp_at_5", "tail_recall_at_5")


def git(*words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def figures(**values: float) -> dict[str, float]:
    return dict.fromkeys(NAMES, 50.0) | values


def write(**candidates: dict[str, float]) -> None:
    Path("metrics").mkdir(exist_ok=True)
    for stale in Path("metrics").glob("*.json"):
        stale.unlink()
    for name, values in candidates.items():
        Path(f"metrics/{name}.json").write_text(json.dumps(values))


def commit(message: str) -> str:
    git("add", "-A")
    git("commit", "-qm", message, "--allow-empty")
    return git("rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Three commits: nothing yet, `a` alone, `a` better and `b`."""
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_NAME"):
        monkeypatch.delenv(name, raising=False)
    git("init", "-q", "-b", "main")
    Path("params.yaml").write_text(json.dumps({"dataset": {"name": "toy"}}))
    Path(".gitignore").write_text("mlflow.db*\n.dvc/\ndata/\nmlartifacts/\n")
    commit("start")
    write(a=figures(psp_at_5=40.0))
    commit("first")
    write(a=figures(psp_at_5=45.0), b=figures(psp_at_5=47.0))
    commit("second")
    return tmp_path


def rows(comparison: compare.Comparison) -> dict[str, float]:
    return {name: values["psp_at_5"] for name, values in comparison.rows.items()}


def test_without_a_source_the_workspace_stands_against_head(project):
    write(a=figures(psp_at_5=46.0), b=figures(psp_at_5=47.0))
    found = compare.compare()
    assert rows(found) == {
        "a@workspace": 46.0,
        "b@workspace": 47.0,
        "a@HEAD": 45.0,
        "b@HEAD": 47.0,
    }
    assert set(found.changed().rows) == {"a@workspace", "a@HEAD"}


def test_a_candidate_in_one_revision_only_has_one_row(project):
    assert set(rows(compare.compare(["HEAD", "main~1"]))) == {"a@HEAD", "b@HEAD", "a@main~1"}
    assert set(compare.compare(["HEAD", "main~1"]).only(["b"]).rows) == {"b@HEAD"}
    assert "b@HEAD" in compare.compare(["HEAD", "main~1"]).changed().rows


def test_a_revision_from_before_there_were_metrics_has_no_rows_and_says_so(project):
    found = compare.compare(["HEAD", "main~2"])
    assert set(rows(found)) == {"a@HEAD", "b@HEAD"}
    assert "main~2" in leaderboard.plain_text(compare.table(found, plain=True))
    with pytest.raises(DataError, match="no metrics in main~2"):
        compare.compare(["main~2"])


def test_an_experiment_is_found_by_its_name(project):
    base = git("rev-parse", "HEAD")
    write(a=figures(psp_at_5=49.0))
    experiment = commit("the experiment")
    git("update-ref", f"refs/exps/{base[:2]}/{base[2:]}/exp-lr01", experiment)
    git("reset", "-q", "--hard", base)
    found = compare.compare(["HEAD", "exp-lr01"])
    assert rows(found)["a@exp-lr01"] == 49.0
    assert found.sources[1].kind == "experiment"
    with pytest.raises(ConfigError, match="did you mean 'exp-lr01'"):
        compare.compare(["exp-lr1"])


def test_of_two_experiments_with_one_name_that_on_head_is_meant(project):
    old, base = git("rev-parse", "HEAD~1"), git("rev-parse", "HEAD")
    for start, value in ((old, 41.0), (base, 48.0)):
        git("checkout", "-q", start)
        write(a=figures(psp_at_5=value))
        made = commit("the experiment")
        git("update-ref", f"refs/exps/{start[:2]}/{start[2:]}/twice", made)
    git("checkout", "-q", "main")
    assert rows(compare.compare(["twice"])) == {"a@twice": 48.0}
    commit("the branch moves on")
    with pytest.raises(ConfigError, match="2 experiments are called 'twice'; give the commit"):
        compare.compare(["twice"])


def test_an_unknown_source_gets_a_suggestion(project):
    with pytest.raises(ConfigError, match=r"'mian' is no git revision.*did you mean 'main'"):
        compare.compare(["mian"])
    with pytest.raises(ConfigError, match="no git revision, experiment or id of an MLflow run"):
        compare.compare(["0" * 32])
    assert not Path("mlflow.db").exists(), "looking for a run makes no store"
    with pytest.raises(ConfigError, match="no git revision"):
        compare.compare(["--output=/tmp/x"])


def test_damaged_metrics_name_the_file_and_the_revision(project):
    Path("metrics/a.json").write_text("{broken")
    made = commit("broken")
    with pytest.raises(DataError, match=rf"{made[:10]}:metrics/a.json holds no metrics"):
        compare.compare(["HEAD"])
    with pytest.raises(DataError, match=r"metrics/a.json holds no metrics"):
        compare.compare(["workspace"])


def test_runs_of_mlflow_stand_beside_revisions(project):
    store = Store("toy")
    parent = store.create("repro-1", "parent", None, {})
    ids = {}
    for name, value in (("a", 55.0), ("b", 56.0)):
        ids[name] = store.create(name, "candidate", parent, {})
        store.metrics(
            ids[name], [Point(m, v, 0, now()) for m, v in figures(psp_at_5=value).items()]
        )
        store.metrics(ids[name], [Point("train_seconds", 3.0, 0, now())])
    stage = store.create("train_linear/a", "stage", parent, {})
    trial = store.create("a-trial-000", "trial", parent, {})
    found = compare.compare(["HEAD", parent, ids["b"]])
    whole, one = f"repro-1:{parent[:8]}", ids["b"][:8]
    expected = {"a@HEAD": 45.0, "b@HEAD": 47.0}
    expected |= {f"a@{whole}": 55.0, f"b@{whole}": 56.0, f"b@{one}": 56.0}
    assert rows(found) == expected
    assert "train_seconds" not in found.metrics
    with pytest.raises(TrackingError, match=rf"is a stage run.*its parent is {parent}"):
        compare.compare([stage])
    with pytest.raises(TrackingError, match="judged on validation, not on test"):
        compare.compare([trial])


def test_details_are_used_only_where_they_belong_to_the_small_figures(project):
    Path("data/evaluation").mkdir(parents=True)
    details = figures(psp_at_5=45.0049, head_recall_at_5=70.0)
    Path("data/evaluation/metrics.json").write_text(json.dumps({"a": details, "b": figures()}))
    found = compare.compare(["workspace"]).rows
    assert found["a@workspace"]["head_recall_at_5"] == 70.0
    assert found["b@workspace"]["psp_at_5"] == 47.0  # the details speak of another evaluation


def test_the_table_is_the_leaderboard_with_dashes_where_git_has_no_figure(project):
    text = leaderboard.plain_text(compare.table(compare.compare(["HEAD", "main~1"]), plain=True))
    lines = [line.split() for line in text.splitlines() if "@HEAD" in line or "@main" in line]
    assert [line[0] for line in lines[:3]] == ["b@HEAD", "a@HEAD", "a@main~1"]
    assert lines[0][5] == "*47.00"
    assert lines[0][6] == "-"
    assert "not among the metrics that git keeps" in text


def test_columns_and_order_can_be_chosen(project):
    found = compare.compare(["HEAD"])
    table = compare.table(found, sort="p_at_1", metrics=["tail_recall_at_5", "rp_at_5"][:1])
    assert len(table.columns) == 2
    with pytest.raises(ConfigError, match="no metric 'psp_at_7'; did you mean 'psp_at_"):
        compare.table(found, sort="psp_at_7")
    with pytest.raises(ConfigError, match="no candidate 'c'"):
        found.only(["c"])


def test_json_and_csv_hold_the_same_rows(project):
    run = CliRunner()
    said = run.invoke(main, ["compare", "HEAD", "main~1", "--json"])
    assert said.exit_code == 0, said.output
    content = json.loads(said.output)
    assert [(row["candidate"], row["source"]) for row in content] == [
        ("a", "HEAD"),
        ("b", "HEAD"),
        ("a", "main~1"),
    ]
    assert content[0]["address"] == git("rev-parse", "HEAD")
    said = run.invoke(main, ["compare", "HEAD", "main~1", "--csv", "--metric", "psp_at_5"])
    table = list(csv.DictReader(io.StringIO(said.output)))
    assert [row["psp_at_5"] for row in table] == ["45.0", "47.0", "40.0"]
    assert list(table[0]) == ["candidate", "source", "kind", "address", "psp_at_5"]


def test_the_command_prints_errors_as_one_line_and_equal_sources_as_a_sentence(project):
    run = CliRunner()
    said = run.invoke(main, ["compare", "mian"])
    assert said.exit_code == 1
    assert "Traceback" not in said.output
    assert "no figure differs" in run.invoke(main, ["compare", "--changed"]).output
    assert "a@workspace" in run.invoke(main, ["compare"]).output
