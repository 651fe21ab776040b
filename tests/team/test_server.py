"""The team's MLflow server, real from end to end: who may do what, what is kept and restored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from coattail.cli.main import main
from coattail.errors import ConfigError
from coattail.team import settings
from coattail.team.client import API, Server
from coattail.team.server import check_bucket, check_database
from coattail.tracking.store import Store
from tests import services
from tests.processes import wait_until

pytestmark = [pytest.mark.services]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server():
    with services.team_server() as server:
        server.add_user("wanda", "writer")
        server.add_user("walt", "writer")
        server.add_user("rita", "reader")
        yield server


@pytest.fixture
def as_user(server, monkeypatch, tmp_path):
    """A client of the server as somebody, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    def become(name: str | None = None, password: str | None = None) -> MlflowClient:
        for key, value in server.env(name).items():
            monkeypatch.setenv(key, value)
        if password is not None:
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        return MlflowClient(server.url)

    return become


@pytest.fixture(scope="module")
def run_of_wanda(server):
    """An experiment with one run, made by a writer; (experiment id, run id)."""
    wanda = Server(server.url, "wanda", server.passwords["wanda"])
    experiment = wanda.call("POST", f"{API}/experiments/create", json={"name": "shared"})
    run = wanda.call("POST", f"{API}/runs/create", json=experiment)
    return experiment["experiment_id"], run["run"]["info"]["run_id"]


# --- who may do what -----------------------------------------------------------------------------


def test_nobody_without_credentials_gets_anything(server, run_of_wanda):
    experiment, run = run_of_wanda
    for method, path in [
        ("GET", f"{API}/experiments/get?experiment_id={experiment}"),
        ("GET", f"{API}/runs/get?run_id={run}"),
        ("POST", f"{API}/runs/create"),
        ("GET", f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/x"),
        ("GET", "/"),
    ]:
        assert requests.request(method, server.url + path).status_code == 401, path


def test_a_wrong_password_is_refused(as_user):
    with pytest.raises(MlflowException, match=r"not authenticated|401"):
        as_user("wanda", password="not-her-password").search_experiments()


def test_a_reader_reads_and_is_refused_every_write(as_user, run_of_wanda, tmp_path):
    experiment, run = run_of_wanda
    rita = as_user("rita")
    assert rita.get_run(run).info.experiment_id == experiment
    (tmp_path / "note.txt").write_text("mine")
    for attempt in (
        lambda: rita.create_run(experiment),
        lambda: rita.log_metric(run, "loss", 1.0),
        lambda: rita.set_tag(run, "a", "b"),
        lambda: rita.delete_run(run),
        lambda: rita.log_artifact(run, str(tmp_path / "note.txt")),
        lambda: rita.rename_experiment(experiment, "hers"),
    ):
        with pytest.raises(Exception, match=r"Permission denied|403|FORBIDDEN"):
            attempt()


@pytest.mark.parametrize("name", ["wanda", None], ids=["writer", "admin"])
def test_a_writer_and_an_admin_log_runs_artifacts_and_models(as_user, run_of_wanda, tmp_path, name):
    experiment, _ = run_of_wanda
    client = as_user(name)
    run = client.create_run(experiment).info
    client.log_metric(run.run_id, "loss", 0.5)
    (tmp_path / "note.txt").write_text("words")
    client.log_artifact(run.run_id, str(tmp_path / "note.txt"))
    back = client.download_artifacts(run.run_id, "note.txt", str(tmp_path / "back"))
    assert Path(back).read_text() == "words"
    model = f"model-of-{name}"
    client.create_registered_model(model)
    version = client.create_model_version(model, f"{run.artifact_uri}/note.txt", run.run_id)
    client.set_registered_model_alias(model, "champion", version.version)
    assert client.get_model_version_by_alias(model, "champion").run_id == run.run_id


RIGHTS = {
    # verb: (reader, writer, admin)
    "read": (True, True, True),
    "make an experiment": (False, True, True),
    "write": (False, True, True),
    "delete own": (False, True, True),
    "delete others'": (False, False, True),
    "take others' for own": (False, False, False),
    "delete an experiment of one's own": (False, False, True),
    "move champion": (False, True, True),
    "delete a model": (False, False, True),
}
"""The table of docs/how-to/team.md."""


def do(verb: str, client: MlflowClient, who: str, experiment: str, others: str, own: str) -> None:
    """Try a verb; ``others`` and ``own`` are runs, made before."""
    match verb:
        case "read":
            client.get_run(others)
        case "make an experiment" | "delete an experiment of one's own":
            made = client.create_experiment(f"{verb} {who}")
            if verb.startswith("delete"):
                client.delete_experiment(made)
        case "write":
            client.log_metric(others, "loss", 1.0)
        case "delete own":
            client.delete_run(own)
            client.restore_run(own)
        case "delete others'":
            client.delete_run(others)
            client.restore_run(others)
        case "take others' for own":
            client.set_tag(others, "coattail.owner", who)
            client.delete_run(others)
        case "move champion":
            client.set_registered_model_alias("shared-model", "champion", "1")
        case "delete a model":
            client.delete_registered_model("shared-model")


def test_each_role_may_do_what_the_page_says_and_nothing_else(server, as_user, run_of_wanda):
    experiment, others = run_of_wanda
    wanda = as_user("wanda")
    wanda.create_registered_model("shared-model")
    where = wanda.get_run(others).info.artifact_uri
    wanda.create_model_version("shared-model", f"{where}/model", others)
    for verb, allowed in RIGHTS.items():
        for who, may in zip(("rita", "walt", None), allowed, strict=True):
            client = as_user(who)
            own = client.create_run(experiment).info.run_id if who != "rita" else others
            refused = ""
            try:
                do(verb, client, str(who), experiment, others, own)
            except MlflowException as error:
                refused = str(error)
            if verb == "take others' for own" and who is None:
                continue  # an admin may do anything, and needs no trick
            assert (not refused) == may, f"{verb} as {who}: {refused or 'allowed'}"
            assert may or "Permission denied" in refused, refused
    # Whoever made the experiment: what the doctor or a first publish made is nobody's to delete.
    with pytest.raises(MlflowException, match="Permission denied"):
        as_user("wanda").delete_experiment(experiment)


def test_everybody_sees_the_users_and_only_what_is_known_of_them(server):
    assert {"admin    admin", "reader   rita", "writer   walt"} <= set(
        server.command("team", "user").splitlines()
    )
    said = server.command("team", "user", user="walt").splitlines()
    assert {"admin    admin", "unknown  rita", "writer   walt", "unknown  wanda"} <= set(said)
    assert "only an admin sees what others may do" in said


def test_a_user_changes_their_own_password(server):
    server.add_user("pia", "reader")
    done = subprocess.run(
        [services.BIN / "coattail", "team", "user", "pia", "--password-stdin"],
        input="a-password-of-my-own",
        env=services.clean_environment() | server.env("pia"),
        capture_output=True,
        text=True,
    )
    assert "changed pia: new password" in done.stdout, done.stdout + done.stderr
    asked = requests.get(
        f"{server.url}{API}/users/current", auth=("pia", "a-password-of-my-own"), timeout=30
    )
    assert asked.json()["user"]["username"] == "pia"


def test_artifacts_lie_in_the_bucket_and_clients_need_no_keys_to_it(server, as_user, run_of_wanda):
    client = as_user("wanda")
    run = client.create_run(run_of_wanda[0]).info
    assert run.artifact_uri.startswith("mlflow-artifacts:/")
    client.log_text(run.run_id, "through the server", "deep/down.txt")
    assert f"artifacts/{run.experiment_id}/{run.run_id}/artifacts/deep/down.txt" in server.s3.keys(
        server.bucket
    )


def test_a_writer_who_becomes_a_reader_may_write_no_more(server, as_user, run_of_wanda):
    server.add_user("otto", "writer")
    as_user("otto").create_run(run_of_wanda[0])
    assert "changed otto: reader" in server.command("team", "user", "otto", "--role", "reader")
    assert "reader   otto" in server.command("team", "user")
    with pytest.raises(MlflowException, match=r"Permission denied|403"):
        as_user("otto").create_run(run_of_wanda[0])
    assert "removed otto" in server.command("team", "user", "otto", "--remove")
    assert "otto" not in server.command("team", "user")


def test_only_an_admin_manages_users(server):
    said = server.command("team", "user", "eve", "--role", "admin", user="wanda", code=1)
    assert "wanda may not manage users" in said
    assert "eve" not in server.command("team", "user")


def test_a_new_user_gets_a_password_that_works(server):
    said = server.command("team", "user", "nora")
    password = said.split("shown once: ")[1].split()[0]
    asked = requests.get(f"{server.url}{API}/users/current", auth=("nora", password))
    assert asked.json()["user"]["username"] == "nora"


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_foreign_host_or_origin_is_refused(server, header):
    auth = (server.admin, server.password)
    address = f"{server.url}{API}/experiments/create"
    ask = {"name": "planted"}
    assert requests.post(address, json=ask, auth=auth, headers=header).status_code == 403
    assert (
        requests.get(
            f"{server.url}{API}/experiments/get-by-name?experiment_name=planted", auth=auth
        ).status_code
        == 404
    )


@pytest.mark.parametrize(
    ("who", "password", "dataset", "sentence"),
    [
        ("wanda", "wrong", "shared", "does not accept wanda with this password (401)"),
        ("rita", None, "unheard-of", "forbids rita to do this (403)"),
        ("nobody's", None, "shared", "does not answer; is it running"),
    ],
)
def test_a_store_that_says_no_is_one_sentence_with_the_remedy(
    server, as_user, monkeypatch, tmp_path, who, password, dataset, sentence
):
    as_user("wanda" if who == "nobody's" else who, password)
    if who == "nobody's":
        (closed,) = services.free_ports(1)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed}")
        monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    (tmp_path / "params.yaml").write_text(f"dataset: {{name: {dataset}}}\n")
    for words in (["model", "lineage", "dismec"], ["model", "lineage", "--stage", "x"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 1
        assert sentence in done.output
        assert len(done.output.splitlines()) == 1, done.output
        assert "coattail" in done.output.partition(sentence)[2], "the remedy"


def test_a_run_that_is_not_there_is_unknown_though_the_server_forbids_it(
    server, as_user, run_of_wanda
):
    as_user("wanda")
    store = Store("shared")
    there = store.client.create_run(run_of_wanda[0]).info.run_id
    assert store.run("0" * 32) is None
    assert store.run(there).info.run_id == there
    assert set(store.runs([there, "0" * 32, None])) == {there}


# --- what is kept --------------------------------------------------------------------------------

WORKER = """
import sys, time
from pathlib import Path
from coattail.tracking.record import Point
from coattail.tracking.store import Store
name = sys.argv[1]
store = Store("crowd")
run = store.create(name, "stage", None, {})
Path(f"{name}.ready").touch()
while not Path("go").exists():
    time.sleep(0.01)
for start in range(0, 1000, 100):
    store.metrics(run, [Point("loss", float(i), i, 1000 + i) for i in range(start, start + 100)])
store.finish(run, "FINISHED")
Path(f"{name}.run").write_text(run)
"""


def test_four_workers_log_a_thousand_metrics_each_at_once_and_all_are_there(
    server, as_user, tmp_path
):
    client = as_user("wanda")
    env = services.clean_environment() | server.env("wanda")
    names = ["one", "two", "three", "four"]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, name],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        wait_until(lambda: all((tmp_path / f"{n}.ready").exists() for n in names), workers)
        (tmp_path / "go").touch()
        outputs = [worker.communicate(timeout=300) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0] * 4, outputs
    for name in names:
        run = (tmp_path / f"{name}.run").read_text()
        assert client.get_run(run).info.status == "FINISHED"
        history = client.get_metric_history(run, "loss")
        assert [(m.step, m.value) for m in sorted(history, key=lambda m: m.step)] == [
            (i, float(i)) for i in range(1000)
        ]


def everything(client: MlflowClient, server, folder: Path) -> dict:
    """All that a team would miss, as plain values."""
    content: dict = {"users": server.command("team", "user"), "runs": {}, "models": {}}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            files = {}
            for one in client.list_artifacts(run.info.run_id):
                path = client.download_artifacts(run.info.run_id, one.path, str(folder))
                if Path(path).is_file():
                    files[one.path] = Path(path).read_bytes()
            content["runs"][run.info.run_id] = [
                experiment.name,
                run.info.status,
                run.data.params,
                run.data.tags,
                {
                    k: [vars(m) for m in client.get_metric_history(run.info.run_id, k)]
                    for k in run.data.metrics
                },
                files,
            ]
    for model in client.search_registered_models():
        versions = client.search_model_versions(f"name = '{model.name}'")
        content["models"][model.name] = [
            dict(model.aliases),
            sorted((v.version, v.run_id, v.source) for v in versions),
        ]
    return content


def test_dump_lose_restore_and_nothing_is_missing(server, as_user, run_of_wanda, tmp_path):
    experiment, _ = run_of_wanda
    wanda = as_user("wanda")
    run = wanda.create_run(experiment, tags={"why": "backup"}).info
    wanda.log_param(run.run_id, "lr", 0.1)
    for step in range(5):
        wanda.log_metric(run.run_id, "loss", 1 / (1 + step), step=step)
    wanda.log_text(run.run_id, "précieux ✓", "note.txt")
    wanda.create_registered_model("kept")
    version = wanda.create_model_version("kept", f"{run.artifact_uri}/note.txt", run.run_id)
    wanda.set_registered_model_alias("kept", "champion", version.version)
    admin = as_user()
    before = everything(admin, server, tmp_path)
    assert before["models"]["kept"][0] == {"champion": "1"}

    config = ("--config", str(server.config))
    said = server.command("team", "backup", str(tmp_path / "backup"), *config)
    assert "files" in said
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    refused = server.command("team", "restore", str(tmp_path / "backup"), *config, code=1)
    assert "database mlflow is not empty" in refused
    server.stop()
    server.postgres.drop("mlflow", "mlflow_auth")
    for key in server.s3.keys(server.bucket):
        server.s3.client().delete_object(Bucket=server.bucket, Key=key)
    server.s3.client().delete_bucket(Bucket=server.bucket)
    gone = server.command("team", "restore", str(tmp_path / "backup"), *config, code=1)
    assert "createdb -O mlflow mlflow" in gone

    server.postgres.create("mlflow", "mlflow_auth")
    assert "restored" in server.command("team", "restore", str(tmp_path / "backup"), *config)
    server.start()
    assert everything(admin, server, tmp_path / "after") == before
    # Passwords and permissions came back too, not only names.
    assert as_user("wanda").get_run(run.run_id).info.status == "RUNNING"
    wanda.log_metric(run.run_id, "loss", 0.0, step=5)
    with pytest.raises(MlflowException, match=r"Permission denied|403"):
        as_user("rita").log_metric(run.run_id, "loss", 9.0)


def test_a_spoilt_backup_is_refused_before_anything_is_touched(server, tmp_path):
    config = ("--config", str(server.config))
    server.command("team", "backup", str(tmp_path / "backup"), *config)
    assert "exists already" in server.command(
        "team", "backup", str(tmp_path / "backup"), *config, code=1
    )
    dump = tmp_path / "backup" / "runs.dump"
    dump.write_bytes(dump.read_bytes()[:-1])
    said = server.command("team", "restore", str(tmp_path / "backup"), *config, code=1)
    assert "runs.dump has changed since the backup was made" in said


# --- starting it ---------------------------------------------------------------------------------


def test_starting_says_what_is_missing_in_one_sentence(server, monkeypatch):
    for name, value in server.secrets.items():
        monkeypatch.setenv(name, value)
    params = settings.read(server.config)
    check_database(params)
    check_bucket(params)

    def changed(part: str, **values: object) -> settings.TeamServerParams:
        section = getattr(params, part).model_copy(update=values)
        return params.model_copy(update={part: section})

    with pytest.raises(ConfigError, match="createdb -O mlflow nowhere"):
        check_database(changed("database", runs="nowhere"))
    with pytest.raises(ConfigError, match=r"there is no bucket absent.*--make-bucket"):
        check_bucket(changed("artifacts", bucket="absent"))
    (closed,) = services.free_ports(1)
    with pytest.raises(ConfigError, match="does not answer"):
        check_bucket(changed("artifacts", endpoint=f"http://127.0.0.1:{closed}"))
    check_bucket(changed("artifacts", bucket="fresh"), make=True)
    check_bucket(changed("artifacts", bucket="fresh"))
    monkeypatch.setenv("PGPASSWORD", "not-the-password")
    with pytest.raises(ConfigError, match=r"password authentication failed.*PGPASSWORD"):
        check_database(params)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    with pytest.raises(ConfigError, match="refuses the keys AWS_ACCESS_KEY_ID"):
        check_bucket(params)


def test_the_running_server_shows_no_secret_to_other_users_of_the_machine(server):
    shown = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout
    assert f"--port {server.port}" in shown
    auth = list(server.folder.rglob("auth-*.ini"))
    assert [path.stat().st_mode & 0o777 for path in auth] == [0o600]
    public = shown + auth[0].read_text() + server.config.read_text()
    assert not [
        name
        for name, value in server.secrets.items()
        if value in public and name != "AWS_DEFAULT_REGION"
    ]


# --- the doctor ----------------------------------------------------------------------------------


@pytest.fixture
def doctor(monkeypatch, tmp_path):
    """`coattail doctor --server` in this process: its exit code and what it says."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody's real credentials
    for name in ("URI", "USERNAME", "PASSWORD"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)

    def ask(address: str, env: dict[str, str]) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["doctor", "--server", address], env=env)
        return done.exit_code, done.output

    return ask


def test_the_doctor_finds_a_healthy_server_healthy(server, doctor):
    code, said = doctor(server.url, server.env("wanda"))
    for line in (
        f"{server.url} answers",
        "callers without credentials are refused",
        "requests under a foreign host name are refused",
        "the clocks agree",
        "the server knows user wanda",
        "on both sides",
        "user wanda may write (EDIT)",
        "an artifact went there and back",
    ):
        assert line in said, said
    assert "BAD" not in said
    assert code == 0


def test_the_doctor_says_what_is_wrong_with_a_user(server, doctor):
    wrong = server.env("wanda") | {"MLFLOW_TRACKING_PASSWORD": "wrong-password"}
    for env, complaint in (
        (wrong, "does not accept user wanda"),
        ({}, "no credentials to try"),
    ):
        code, said = doctor(server.url, env)
        assert code == 1
        assert complaint in said


def test_a_reader_who_may_not_write_is_well(server, doctor):
    code, said = doctor(server.url, server.env("rita"))
    assert "rita is a reader: may look at everything and write nothing" in said
    assert (code, "BAD" in said) == (0, False)


def test_the_doctor_reads_credentials_where_mlflow_reads_them(server, doctor, tmp_path):
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text(
        "[mlflow]\nmlflow_tracking_username = wanda\n"
        f"mlflow_tracking_password = {server.passwords['wanda']}\n"
    )
    assert "the server knows user wanda" in doctor(server.url, {})[1]
