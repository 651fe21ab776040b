"""`coattail doctor` finds what goes wrong in practice and says what to do."""

import json
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from coattail import tracking
from coattail.cli import doctor
from coattail.cli.main import main
from coattail.team.finding import Finding
from coattail.tracking import courier, delivery
from coattail.tracking.store import open_store

ROOT = Path(__file__).resolve().parents[2]
DEAD = 2**22 + 7  # above the largest process id Linux gives


@pytest.fixture
def project(tmp_path, monkeypatch, empty_store):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "DVC_EXP_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(courier, "call", lambda: None)
    shutil.copy(ROOT / "params.yaml", "params.yaml")
    shutil.copy(empty_store, "mlflow.db")
    Path(".gitignore").write_text("*.db\n.dvc/\ndata/\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


def findings(level: str) -> list[Finding]:
    return [finding for finding in doctor.examine() if finding.level == level]


def problems() -> str:
    return "\n".join(f"{one.what} -> {one.remedy}" for one in findings("problem"))


def test_a_healthy_project_has_no_problem(project):
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "params.yaml is valid" in result.output
    assert "the MLflow store answers" in result.output


def test_a_parent_left_open_is_found_and_closed(project):
    with tracking.stage("download", None, None):
        pass
    delivery.deliver(open_store)
    assert "was left open" in problems()
    result = CliRunner().invoke(main, ["doctor", "--close"])
    assert result.exit_code == 0, result.output
    assert "closed" in result.output
    assert problems() == ""


def test_a_store_that_cannot_be_reached_is_a_problem_with_its_address(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert "http://127.0.0.1:9" in problems()
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 1


def test_a_missing_gpu_is_a_problem_if_asked_for_and_a_note_if_not(project):
    assert any("no GPU" in one.what for one in findings("note"))
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("device: auto", "device: cuda", 1))
    assert "cuda" in problems()


def test_doctor_says_what_stages_compute_with(project, monkeypatch):
    monkeypatch.setattr(doctor.processor, "obstacle", lambda: "")
    said = next(one.what for one in findings("ok") if one.what.startswith("processor: any"))
    assert doctor.processor.name() in said
    assert "ATEN_CPU_CAPABILITY=avx2" in said
    monkeypatch.setattr(doctor.processor, "obstacle", lambda: "its processor lacks AVX2")
    assert any(one.what.endswith("its processor lacks AVX2") for one in findings("note"))
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("processor: any", "processor: native", 1))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")
    said = next(one.what for one in findings("note") if one.what.startswith("processor: native"))
    assert "OPENBLAS_CORETYPE=Zen" in said


def test_a_stale_lock_names_the_dead_process(project):
    Path(".dvc/tmp").mkdir(parents=True)
    holder = {"pid": DEAD, "cmd": "dvc repro"}
    Path(".dvc/tmp/rwlock").write_text(json.dumps({"/x": {"write": holder, "read": []}}))
    assert f"dead process {DEAD}" in problems()


def test_broken_params_are_a_problem(project):
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("min_df:", "min_dg:"))
    assert "did you mean 'min_df'" in problems()


def test_strays_leftovers_and_edits_are_notes(project):
    Path("data/ranked/old").mkdir(parents=True)
    Path("data/models/.dismec.abc").mkdir(parents=True)
    params = Path("params.yaml")
    params.write_text(params.read_text() + "\n")
    notes = "\n".join(one.what for one in findings("note"))
    assert "data/ranked/old" in notes
    assert "half-written" in notes
    assert "params.yaml" in notes


def test_runs_kept_while_the_store_was_away_are_a_note(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with tracking.stage("download", None, None):
        pass
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    notes = "\n".join(f"{one.what} -> {one.remedy}" for one in findings("note"))
    assert "1 runs were made while the MLflow store was away" in notes
    assert "coattail experiment sync" in notes
    with courier.lock():  # somebody carries them
        assert not any("coattail experiment sync" in one.remedy for one in findings("note"))
        assert any("1 runs are on their way" in one.what for one in findings("ok"))


def ask(address: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["doctor", "--server", address])
    return done.exit_code, done.output


def test_a_team_server_that_does_not_answer_is_a_problem(project):
    code, said = ask("http://127.0.0.1:9")
    assert code == 1
    assert "cannot be reached: Connection refused" in said
    assert ask("mlflow.example.org")[1].startswith("error: no team server named")


class Careless(BaseHTTPRequestHandler):
    """A server that lets everybody in, under any name, and whose clock is wrong."""

    def do_GET(self) -> None:
        self.send_response_only(200)
        self.send_header("Date", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_an_open_door_and_a_wrong_clock_of_a_team_server_are_seen(project):
    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as careless:
        Thread(target=careless.serve_forever, daemon=True).start()
        code, said = ask(f"http://127.0.0.1:{careless.server_address[1]}")
        careless.shutdown()
    assert code == 1
    assert "a caller without credentials gets 200, wanted 401" in said
    assert "answers under any host name" in said
    assert "seconds apart" in said
