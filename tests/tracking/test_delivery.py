"""Training goes on when the server is away; what it missed arrives later, once and in order."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from coattail import tracking
from coattail.pipeline import result_params
from coattail.tracking import courier, journal, outbox, store
from coattail.tracking.courier import Courier
from coattail.tracking.publishing import gather
from coattail.tracking.publishing.publish import publish
from coattail.tracking.store import KIND, Store
from tests import services
from tests.tracking.fragile import Fragile
from tests.tracking.test_stage_runs import (
    PARAMS,
    STAGES,
    Toy,
    deliver,
    everything,
    kinds,
    left_by,
    run_stage,
    shown,
)

pytestmark = pytest.mark.services


class Server:
    """`mlflow server` on SQLite, to take away and bring back on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = services.free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [services.BIN / "mlflow", "server", "--host", "127.0.0.1", "--port", self.port]
        words += ["--workers", "1", "--backend-store-uri", f"sqlite:///{self.folder}/server.db"]
        words += ["--artifacts-destination", self.folder / "artifacts"]
        env = services.clean_environment() | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self.process = services.Process(words, self.folder / "log", cwd=self.folder, env=env)
        self.process.wait_for(self.answers)

    def answers(self) -> bool:
        with suppress(requests.RequestException):
            return requests.get(f"{self.url}/health", timeout=5).status_code == 200
        return False

    def kill(self) -> None:
        self.process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with git and params.yaml; each test has its own experiment on the server.

    No courier comes: `deliver` and `Courier.look` carry when a test says so.
    """
    monkeypatch.setattr(courier, "call", lambda: None)
    monkeypatch.setattr(courier, "REST", 0)
    monkeypatch.setattr(courier, "LEAST_REST", 0)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "DVC_EXP")):
            monkeypatch.delenv(name)
    store._ours.clear()
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.0)
    Path("params.yaml").write_text(json.dumps(PARAMS | {"dataset": {"name": tmp_path.name}}))
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "params.yaml"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    return tmp_path


def values(opened: Store, run_id: str, key: str = "loss") -> list[float]:
    return [point.value for point in opened.client.get_metric_history(run_id, key)]


def stage_runs(opened: Store) -> list:
    return [run for run in everything(opened) if run.data.tags[KIND] == "stage"]


def test_a_server_killed_in_the_middle_and_back_has_the_whole_run_once(
    project, server, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    carrier = Courier()
    with tracking.stage("train_deep", "x", Toy()) as run:
        for step in range(60):
            if step == 20:
                server.kill()
            if step == 40:
                server.start()
            run.log({"loss": 100.0 - step, "norm": step / 8}, step)
            if step % 4 == 0:
                carrier.look()
        run.metrics({"size": 7})
    carrier.look()
    assert not outbox.waiting()
    opened = Store(project.name)
    (found,) = stage_runs(opened)
    assert found.info.status == "FINISHED"
    assert values(opened, found.info.run_id) == [100.0 - step for step in range(60)]
    assert len(values(opened, found.info.run_id, "norm")) == 60
    assert found.data.metrics["size"] == 7


def test_a_server_away_for_the_whole_run_gets_it_later_once(project, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with tracking.stage("train_deep", "x", Toy(C=3.0)) as run:
        for step in range(30):
            run.log({"loss": float(step)}, step)
        run.note(device="cpu")
    record = left_by("train_deep@x")
    assert record.run_id is None
    assert len(record.history) == 30
    assert len(outbox.waiting()) == 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    assert deliver() == 1
    opened = Store(project.name)
    for _ in range(2):
        (found,) = stage_runs(opened)
        assert found.info.status == "FINISHED"
        assert found.info.start_time == record.started
        assert found.data.params == {"C": "3.0"}
        assert found.data.tags["device"] == "cpu"
        assert values(opened, found.info.run_id) == [float(step) for step in range(30)]
        assert kinds(opened) == ["parent", "stage"]
        assert deliver() == 0


def test_a_failed_stage_is_delivered_with_its_reason(project, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match="gone"), tracking.stage("download", None, Toy()):
        raise ValueError("labels are gone")
    assert not Path("data/runs/download.json").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    assert deliver() == 1
    opened = Store(project.name)
    assert {run.info.status for run in everything(opened)} == {"FAILED"}
    (found,) = stage_runs(opened)
    assert found.data.tags["failure"] == "ValueError: labels are gone"


def test_delivery_to_a_server_that_is_still_away_keeps_everything(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run_stage("download")
    with pytest.raises(tracking.store.TrackingError, match=r"127\.0\.0\.1:9"):
        deliver()
    assert len(outbox.waiting()) == 1


@contextmanager
def losing_answers(server: Server, lost: set[int]):
    """A way to the server on which the answers of some requests, by number, never arrive."""
    count, lock = [0], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def relay(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            answer = requests.request(
                self.command, f"{server.url}{self.path}", data=body, headers=headers, timeout=60
            )
            with lock:
                count[0] += 1
                number = count[0]
            if number in lost:
                self.close_connection = True
                return
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = relay

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()


@pytest.mark.parametrize("lost", [{3}, {4}, {5, 6}, {8, 11}, {12}, set(range(4, 60, 2))])
def test_answers_that_get_lost_double_nothing(project, server, monkeypatch, lost):
    with losing_answers(server, lost) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        carrier = Courier()
        with tracking.stage("train_deep", "x", Toy()) as run:
            for step in range(8):
                run.log({"loss": float(step)}, step)
                carrier.look()
        carrier.look()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    deliver()
    opened = Store(project.name)
    (found,) = stage_runs(opened)
    assert found.info.status == "FINISHED"
    assert values(opened, found.info.run_id) == [float(step) for step in range(8)]


def test_a_server_that_hangs_holds_up_no_stage_and_is_left_alone(project, monkeypatch, caplog):
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        monkeypatch.setattr(courier, "REST", 1000)
        carrier = Courier()
        for address in ("download", "preprocess", "build_plt@flat"):
            name, _, variant = address.partition("@")
            with tracking.stage(name, variant or None, Toy()) as run:
                for step in range(5):
                    run.log({"loss": float(step)}, step)
                    assert not carrier.look()
        silent.setblocking(False)
        calls = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                calls += 1
    assert calls == 1
    assert len(outbox.waiting()) == 3
    assert "the MLflow store fails" in caplog.text


def test_patience_is_ours_unless_the_user_has_set_it(project, monkeypatch):
    Store("toy", store.QUICK)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"
    Store("toy")
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "120"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    Store("toy", store.QUICK)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"


def gone() -> None:
    raise ConnectionError("gone")


@pytest.mark.parametrize("after", [False, True])
def test_publish_that_breaks_anywhere_is_completed_by_the_next_one(project, monkeypatch, after):
    records = {address: run_stage(address, size=1.0) for address in STAGES}
    told = shown(records)
    at = 1
    while True:
        figures = {name: values | {"try": float(at)} for name, values in told.metrics.items()}
        toy = replace(told, metrics=figures)  # results that nobody has shown
        broken = Store("toy")
        broken.client = Fragile(broken.client, at, after, gone)
        try:
            publish(broken, toy, key=f"try:{at}")
            break
        except ConnectionError:
            pass
        result = publish(Store("toy"), toy, key=f"try:{at}")
        opened = Store("toy")
        mine = opened.search(f"tags.`mlflow.parentRunId` = '{result['parent_run_id']}'")
        names = sorted(run.info.run_name for run in mine if run.data.tags[KIND] == "candidate")
        assert names == ["dismec", "dismec-rerank"], at
        assert all(run.info.status == "FINISHED" for run in mine), at
        parent = opened.client.get_run(result["parent_run_id"])
        assert parent.info.status == "FINISHED", at
        at += 9
    assert at > 20
    assert len(stage_runs(Store(project.name))) == len(STAGES)


def test_results_made_without_a_server_are_shown_later_once_as_they_were_made(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    records = {address: run_stage(address, size=1.0) for address in STAGES}
    toy = replace(shown(records), dataset=project.name)
    monkeypatch.setattr(gather, "gather", lambda *_: toy)
    monkeypatch.setattr(gather.Evaluation, "load", lambda _: None)
    monkeypatch.setattr(gather.pictures, "begin", lambda _: None)
    monkeypatch.setattr(gather, "load", lambda *_: result_params.PublishParams())
    text = gather.show(result_params.PublishParams())
    assert json.loads(text)["best"] == "dismec"
    Path("data/published.json").write_text(text)
    facts = journal.publication(hashlib.md5(text.encode()).hexdigest())
    assert facts["parent_run_id"] is None
    made_at = facts["made"]["git.commit"]
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "later"], check=True)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert gather.sync() == (
        f"delivered {len(STAGES)} runs that were kept\n"
        f"MLflow now shows 2 candidates of {project.name}"
    )
    assert gather.sync() == "MLflow already shows these results"
    opened = Store(project.name)
    assert kinds(opened) == ["candidate"] * 2 + ["parent"] + ["stage"] * len(STAGES)
    assert {run.info.status for run in everything(opened)} == {"FINISHED"}
    assert {run.data.tags["git.commit"] for run in everything(opened)} == {made_at}
    (parent,) = opened.search(f"tags.`{KIND}` = 'parent'")
    assert {parent.data.tags[f"stage.{record.name}"] for record in records.values()} == {"executed"}
