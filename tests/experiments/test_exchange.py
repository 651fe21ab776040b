"""Lineage, archives, imports and clusters on one small project that has run once."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from coattail.cli.main import main
from coattail.errors import ConfigError, DataError, TrackingError
from coattail.experiments import exchange, lineage, queue
from coattail.tracking import import_runs
from coattail.tracking.store import KIND, Store
from tests.project import Clone, copy_of, stage_sources

pytestmark = [pytest.mark.pipeline]
JOURNAL = Path(".dvc", "tmp", "coattail", "journal")


@pytest.fixture
def inside(tiny, monkeypatch) -> Clone:
    """Work inside that project, in this process."""
    monkeypatch.chdir(tiny.folder)
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "DVC_")):
            monkeypatch.delenv(name)
    return tiny


# --- lineage -------------------------------------------------------------------------------------


def test_a_model_leads_to_commit_data_stages_and_machine(inside):
    made_at = inside.run("git", "rev-parse", "HEAD~1").strip()
    lock = inside.resolved_stages()
    champion = lineage.of_model("coattail-demo@champion")
    assert champion.versions == ["coattail-demo/1 @champion"]
    assert champion.commit == made_at
    assert champion.dirty == "false"
    assert champion.data_md5.endswith(".dir")
    assert champion.params["train_linear.C"] == "1.0"
    assert {one.address for one in champion.stages} <= set(lock)
    assert {one.source for one in champion.stages} == {"executed"}
    for one in champion.stages:
        assert one.host == os.uname().nodename
        assert one.commit == made_at
        assert set(one.outs) == {p for p in lock[one.address]["outs"] if "data/runs" not in p}
        assert all(len(md5.removesuffix(".dir")) == 32 for md5 in one.outs.values())
    for name in ("coattail-demo", "models:/coattail-demo/1", champion.candidate, champion.run_id):
        assert lineage.of_model(name) == champion


def test_commit_data_and_stage_lead_back_to_the_models(inside):
    both = {"dismec", "dismec-rerank"}
    assert {one.candidate for one in lineage.of_commit("HEAD~1")} == both
    # The results were committed after the run: the commit's dvc.lock has them.
    assert {one.candidate for one in lineage.of_commit("HEAD")} == both
    assert lineage.of_commit(inside.run("git", "rev-list", "--max-parents=0", "HEAD").strip()) == []
    one = lineage.of_model("dismec")
    assert {each.candidate for each in lineage.of_data(one.data_md5)} == both
    model = next(md5 for path, md5 in one.stages[-1].outs.items() if "models" in path)
    assert {each.candidate for each in lineage.of_data(model[:12])} == both
    assert [each.candidate for each in lineage.of_stage("rerank@dismec-rerank")] == [
        "dismec-rerank"
    ]
    assert {each.candidate for each in lineage.of_stage(one.stages[-1].run_id)} == both


def test_the_command_prints_text_and_json(inside):
    text = CliRunner().invoke(main, ["model", "lineage", "coattail-demo", "--params"]).output
    assert "clean: the commit holds exactly this code" in text
    assert "(as in this workspace)" in text
    assert "train_linear.C = 1.0" in text
    found = CliRunner().invoke(
        main, ["model", "lineage", "--stage", "train_linear@dismec", "--json"]
    )
    assert {one["candidate"] for one in json.loads(found.output)} == {"dismec", "dismec-rerank"}


def test_names_that_lead_nowhere_are_clear_errors(inside):
    with pytest.raises(TrackingError, match="registered are coattail-demo"):
        lineage.of_model("coattail-dmeo")
    with pytest.raises(TrackingError, match="has no run"):
        lineage.of_model("0" * 32)
    with pytest.raises(ConfigError, match="git knows no revision"):
        lineage.of_commit("no-such-branch")
    stage = lineage.of_model("dismec").stages[-1]
    with pytest.raises(TrackingError, match="is no model; models made with it"):
        lineage.of_model(stage.run_id)


def test_an_edited_tree_is_flagged_and_its_model_is_rebuilt_from_lineage(tiny_copy, tmp_path):
    edited = tiny_copy
    (edited.folder / "src/coattail/new_module.py").write_text('"""New."""\n')
    (edited.folder / "conf/new.bin").write_bytes(bytes(range(256)))
    learned = {"strategy": "learned", "calibration": "names"}
    edited.edit({"rerank.dismec-rerank": learned, "publish": {"models": "none"}})
    edited.dvc("repro")
    words = ["tag", "--candidate", "dismec-rerank", "-k", "2", edited.some_text()]
    assert len(edited.run("coattail", *words).splitlines()) == 3
    text = edited.run("coattail", "model", "lineage", "dismec-rerank")
    assert "DIRTY: params.yaml, conf/new.bin, src/coattail/new_module.py differed" in text
    (parent,) = edited.runs("parent")
    patch = edited.client.download_artifacts(parent.info.run_id, "lineage/uncommitted.patch")
    assert "+    strategy: learned" in Path(patch).read_text()
    sources = stage_sources(parent)
    assert sources["rerank/dismec-rerank"] == "executed"
    assert sources["train_linear/dismec"] == "cached"
    # What is edited later does not get into it.
    edited.edit({"rerank.dismec-rerank": {"strategy": "reciprocal"}})
    again = tmp_path / "again"
    words = ["model", "lineage", "dismec-rerank", "--checkout", str(again), "--retrain"]
    said = edited.run("coattail", *words)
    assert "every stage has the bytes of then" in said
    assert "rerank@dismec-rerank  equal      computed here" in said
    for name in ("src/coattail/new_module.py", "conf/new.bin"):
        assert (again / name).read_bytes() == (edited.folder / name).read_bytes()
    assert "strategy: learned" in (again / "params.yaml").read_text()
    assert "is not empty" in edited.run("coattail", *words, code=1)


# --- archives ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tiny, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "small.tar"
    tiny.run("coattail", "experiment", "export", str(path))
    return path


def test_an_archive_opens_into_a_project_where_nothing_runs(tiny, archive, tmp_path):
    opened = Clone(tmp_path / "far" / "away")
    beside = Clone(tmp_path)
    beside.run("coattail", "experiment", "open", os.path.relpath(archive, tmp_path), "far/away")
    assert opened.results() == tiny.results()
    here, there = (
        {path.name: path.read_text() for path in (one.folder / JOURNAL).iterdir()}
        for one in (tiny, opened)
    )
    assert here == there, "when, where and by whom"
    assert "Running stage" not in opened.dvc("repro")
    assert "dismec-rerank" in opened.run("coattail", "leaderboard")
    assert len(opened.run("coattail", "tag", "-k", "2", opened.some_text()).splitlines()) == 3
    assert "now shows 2 candidates" in opened.run("coattail", "experiment", "sync")
    assert "already" in opened.run("coattail", "experiment", "sync")
    here = {run.info.run_name: run.data.metrics["psp_at_5"] for run in tiny.runs("candidate")}
    there = {run.info.run_name: run.data.metrics["psp_at_5"] for run in opened.runs("candidate")}
    assert here == there
    kept = opened.folder / ".dvc" / "tmp" / "coattail" / "exported-runs.json"
    kinds = [run["tags"][KIND] for run in json.loads(kept.read_text())]
    assert (kinds.count("parent"), kinds.count("candidate")) == (1, 2)


def test_an_export_of_results_that_were_pulled_asks_the_store_who_made_them(tiny, tmp_path):
    shutil.copytree(tiny.folder, tmp_path / "pulled", symlinks=True)
    pulled = Clone(tmp_path / "pulled")
    shutil.rmtree(pulled.folder / JOURNAL)
    pulled.run("coattail", "experiment", "export", str(tmp_path / "pulled.tar"))
    with tarfile.open(tmp_path / "pulled.tar") as archive:
        entries = json.loads(archive.extractfile("journal.json").read())
    results = [one for one in entries.values() if "stage" in one]
    assert {one["tags"]["machine.host"] for one in results} == {os.uname().nodename}
    assert len(results) == len(list((pulled.folder / "data" / "runs").iterdir())) + 1  # evaluate


def test_the_same_results_give_the_same_archive(tiny, archive, tmp_path):
    tiny.run("coattail", "experiment", "export", str(tmp_path / "again.tar"), "HEAD")
    with tarfile.open(archive) as first, tarfile.open(tmp_path / "again.tar") as second:
        assert first.getnames() == second.getnames()
        files = [
            json.loads(one.extractfile("manifest.json").read())["files"] for one in (first, second)
        ]
    assert {k: v for k, v in files[0].items() if k != "code.bundle"} == {
        k: v for k, v in files[1].items() if k != "code.bundle"
    }


def test_outputs_can_be_left_out(inside, tmp_path):
    small = exchange.export(tmp_path / "small.tar.gz", "HEAD", ["data/raw"])
    whole = exchange.export(tmp_path / "whole.tar.gz", "HEAD")
    assert small.objects < whole.objects
    with pytest.raises(DataError, match="no such output"):
        exchange.export(tmp_path / "x.tar", "HEAD", ["data/rw"])
    with pytest.raises(DataError, match="no experiment or git revision 'lofty'"):
        exchange.export(tmp_path / "x.tar", "lofty")
    assert not (tmp_path / "x.tar").exists()


def damaged(archive: Path, target: Path, change) -> Path:
    """A copy of an archive with the bytes of every member passed through ``change``."""
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        for info in old:
            content = change(info, old.extractfile(info).read())
            if content is not None:
                info.size = len(content)
                new.addfile(info, io.BytesIO(content))
    return target


def flip_object(info: tarfile.TarInfo, content: bytes) -> bytes:
    flipped = bytes([content[0] ^ 1]) + content[1:]
    return flipped if info.name.startswith("objects/") else content


def drop_code(info: tarfile.TarInfo, content: bytes) -> bytes | None:
    return None if info.name == "code.bundle" else content


def climb(info: tarfile.TarInfo, content: bytes) -> bytes:
    if info.name.startswith("objects/"):
        info.name = f"../{info.name}"
    return content


def strange_member(info: tarfile.TarInfo, content: bytes) -> bytes:
    return content.replace(b'"objects/', b'"../objects/', 1) if "manifest" in info.name else content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip_object, "wrong checksum"),
        (drop_code, "holds no 'code.bundle'"),
        (climb, "points outside"),
        (strange_member, "no part of an export"),
        (lambda info, content: b"{" if "manifest" in info.name else content, "is damaged"),
    ],
)
def test_a_broken_archive_is_refused_and_leaves_nothing(archive, tmp_path, change, message):
    broken = damaged(archive, tmp_path / "broken.tar", change)
    with pytest.raises(DataError, match=message):
        exchange.open_archive(broken, tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.tar"]


def test_an_archive_cut_short_is_refused(archive, tmp_path):
    (tmp_path / "cut.tar").write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match="no whole export"):
        exchange.open_archive(tmp_path / "cut.tar", tmp_path / "target")
    assert not (tmp_path / "target").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DataError, match="not empty"):
        exchange.open_archive(archive, tmp_path / "full")


# --- imports -------------------------------------------------------------------------------------


@pytest.fixture
def theirs(tmp_path) -> str:
    """Somebody's store with two finished runs and one that is not."""
    uri = f"sqlite:///{tmp_path}/theirs.db"
    client = MlflowClient(uri)
    experiment = client.create_experiment("old work")
    for name, value, status in (
        ("svm", 0.5, "FINISHED"),
        ("knn", 0.25, "FINISHED"),
        ("x", 0.1, "FAILED"),
    ):
        run_id = client.create_run(experiment, run_name=name).info.run_id
        client.log_param(run_id, "c", value)
        client.log_metric(run_id, "precision:1", value)
        client.log_metric(run_id, "seconds", 3.0)
        client.set_terminated(run_id, status)
    return uri


def test_runs_of_another_store_come_in_once_under_our_names(inside, theirs):
    words = [
        "experiment",
        "import-runs",
        theirs,
        "old work",
        "--map",
        "precision:1=p_at_1*100",
        "--into",
        "imports",
    ]
    result = CliRunner().invoke(main, words)
    assert result.output == "imported 2 runs of old work\n", result.output
    store = Store("imports")
    runs = {run.info.run_name: run for run in store.search(f"tags.`{KIND}` = 'candidate'")}
    assert {name: run.data.metrics["p_at_1"] for name, run in runs.items()} == {
        "svm": 50,
        "knn": 25,
    }
    assert runs["svm"].data.metrics["seconds"] == 3.0
    assert runs["svm"].data.params["c"] == "0.5"
    assert runs["svm"].data.tags["family"] == "imported"
    assert "2 were here already" in CliRunner().invoke(main, words).output
    assert len(store.search()) == 2


def test_an_import_that_cannot_be_is_a_clear_error(inside, theirs, tmp_path):
    store = Store("imports-2")
    with pytest.raises(TrackingError, match="did you mean 'old work'"):
        import_runs.import_runs(store, theirs, "old wrok", [])
    with pytest.raises(ConfigError, match="no run of old work has a metric 'precision:2'"):
        import_runs.import_runs(
            store, theirs, "old work", import_runs.rules(["precision:2=p_at_2"])
        )
    with pytest.raises(ConfigError, match=r"wanted theirs=ours or theirs=ours\*100"):
        import_runs.rules(["precision:1"])
    with pytest.raises(TrackingError, match="there is no such file"):
        import_runs.import_runs(store, f"sqlite:///{tmp_path}/none.db", "x", [])
    assert not (tmp_path / "none.db").exists()


# --- a cluster -----------------------------------------------------------------------------------


def test_experiments_on_a_cluster_of_two_come_back_complete(tiny, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    project = copy_of(tiny, tmp_path / "project")
    project.edit({"publish": {"models": "none"}})
    project.commit("no models to MLflow")
    project.dvc("remote", "add", "--local", "-d", "shared", str(tmp_path / "remote"))
    project.dvc("push", "--run-cache")
    monkeypatch.setenv("COATTAIL_CACHE", str(tmp_path / "worker-cache"))
    monkeypatch.setenv("PATH", project.env["PATH"])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        words = ["experiment", "queue", "--on", cluster.scheduler_address]
        # A negative C is refused; the experiments beside it go on.
        output = project.run("coattail", *words, "-S", "train_linear.dismec.C=0.3,3,-1", code=1)
        again = project.run("coattail", *words, "-S", "train_linear.dismec.C=3", code=1)
    assert output.count("done ") == 2, output
    assert "dismec-C--1: dvc exp run" in output
    assert "train_linear.dismec.C" in output
    assert "already an experiment dismec-C-3" in again
    names = {"dismec-C-0.3", "dismec-C-3"}
    parents = {run.info.run_name: run for run in project.runs("parent")}
    for name in names:
        assert parents[name].info.status == "FINISHED"
        assert stage_sources(parents[name])["preprocess"] == "cached"
        assert stage_sources(parents[name])["train_linear/dismec"] == "executed"
    assert names <= set(project.dvc("exp", "list", "--name-only").split())
    # All of it came back through git and the remote.
    project.dvc("exp", "apply", "dismec-C-3")
    assert "Running stage" not in project.dvc("repro")
    assert project.params()["train_linear"]["dismec"]["C"] == 3


def test_an_experiment_that_mlflow_did_not_take_is_said_with_the_remedy(monkeypatch):
    finished = queue.Finished("c-3", "far", 1.0, b"", {}, {}, shown=False)
    monkeypatch.setattr(queue, "run_all", lambda *_: [("c-3", finished, "")])
    output = CliRunner().invoke(main, ["experiment", "queue", "-S", "c=3"]).output
    assert "done    c-3  (1 s on far)" in output
    assert "show them with: dvc exp apply c-3 && coattail experiment sync" in output
