"""The team server's config file and secrets: what is refused, and what no file may hold."""

from __future__ import annotations

import re
import stat
from base64 import b64decode
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from ruamel.yaml import YAML

from coattail.cli.main import main
from coattail.errors import ConfigError
from coattail.team import client, server, settings

ROOT = Path(__file__).resolve().parents[2]
GOOD = {
    "MLFLOW_AUTH_ADMIN_PASSWORD": "correct horse battery",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "0123456789abcdef0123456789abcdef",
    "PGPASSWORD": "staple-staple-staple",
    "AWS_ACCESS_KEY_ID": "key-of-the-server",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-server",
}


def write(folder: Path, **content: object) -> Path:
    path = folder / "team-server.yaml"
    with open(path, "w") as file:
        YAML().dump(content or {"port": 5000}, file)
    return path


def test_the_config_that_ships_is_valid_and_holds_its_defaults():
    shipped = settings.read(ROOT / "conf" / "team-server.yaml")
    plain = settings.TeamServerParams()
    changed = shipped.model_copy(update={"artifacts": plain.artifacts})
    assert changed == plain
    assert shipped.auth_cache_seconds > 0


def test_no_secret_can_be_written_into_the_config(tmp_path):
    with pytest.raises(ConfigError, match=r"database\.password: unknown parameter"):
        settings.read(write(tmp_path, database={"password": "x"}))


def test_a_misspelt_setting_names_the_right_one(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'allowed_hosts'"):
        settings.read(write(tmp_path, allowed_host=["a"]))


def test_a_server_open_to_others_must_name_its_hosts(tmp_path):
    with pytest.raises(ConfigError, match="allowed_hosts is empty"):
        settings.read(write(tmp_path, host="0.0.0.0"))
    with pytest.raises(ConfigError, match="lets any web page use the server"):
        settings.read(write(tmp_path, host="0.0.0.0", allowed_hosts=["*"]))
    named = settings.read(write(tmp_path, host="0.0.0.0", allowed_hosts=["mlflow.example.org"]))
    assert "mlflow.example.org" in server.command(named)


def test_good_secrets_pass():
    settings.check_secrets(GOOD)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_secret_is_named(name):
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        settings.check_secrets({k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize("weak", ["password1234", "Password", "changeme"])
def test_a_password_that_everybody_knows_is_refused(weak):
    with pytest.raises(ConfigError, match="MLFLOW_AUTH_ADMIN_PASSWORD is a password that every"):
        settings.check_secrets(GOOD | {"MLFLOW_AUTH_ADMIN_PASSWORD": weak})


def test_a_short_secret_is_refused_with_both_lengths():
    with pytest.raises(ConfigError, match="has 7 characters, wanted at least 32"):
        settings.check_secrets(GOOD | {"MLFLOW_FLASK_SERVER_SECRET_KEY": "only-me"})


def test_all_faults_are_told_at_once_and_no_secret_is_printed():
    with pytest.raises(ConfigError) as caught:
        settings.check_secrets(GOOD | {"PGPASSWORD": "hush", "AWS_ACCESS_KEY_ID": ""})
    assert "PGPASSWORD has 4" in str(caught.value)
    assert "AWS_ACCESS_KEY_ID is not set" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_starting_without_secrets_is_one_clear_error(tmp_path, monkeypatch):
    for name in GOOD:
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(main, ["team", "start", "--config", str(write(tmp_path))])
    assert result.exit_code == 1
    assert "MLFLOW_AUTH_ADMIN_PASSWORD is not set" in result.output
    assert "Traceback" not in result.output


def test_neither_the_command_line_nor_a_file_holds_a_secret(tmp_path, monkeypatch):
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    params = settings.TeamServerParams()
    path = server.write_auth_config(params, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text() + " ".join(server.command(params))
    assert not [name for name, value in GOOD.items() if value in text]
    assert re.search(r"auth_cache_ttl_seconds = 60", text)
    assert "postgresql+psycopg://mlflow@127.0.0.1:5432/mlflow_auth" in text


def test_an_old_auth_file_with_loose_rights_is_replaced(tmp_path):
    old = tmp_path / "auth-5000.ini"
    old.write_text("stale")
    old.chmod(0o644)
    path = server.write_auth_config(settings.TeamServerParams(), tmp_path)
    assert path == old
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "stale" not in path.read_text()


def test_the_server_runs_no_job_processes_and_sends_no_telemetry(tmp_path):
    artifacts = settings.ArtifactParams(endpoint="http://127.0.0.1:8333")
    params = settings.TeamServerParams(artifacts=artifacts)
    values = server.server_environment(params, tmp_path / "auth.ini")
    assert values["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert values["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert values["MLFLOW_S3_ENDPOINT_URL"] == "http://127.0.0.1:8333"
    plain = server.server_environment(settings.TeamServerParams(), tmp_path / "auth.ini")
    assert "MLFLOW_S3_ENDPOINT_URL" not in plain


def test_the_examples_of_deployment_fit_the_server():
    folder = ROOT / "deploy"
    settings.read(folder / "team-server.yaml")
    names = re.findall(r"^([A-Z_]+)=$", (folder / "team.env.example").read_text(), re.MULTILINE)
    assert names == list(settings.SECRETS)
    compose = YAML(typ="safe").load((folder / "compose.yaml").read_text())
    assert compose["services"]["server"]["command"][1:3] == ["team", "start"]
    assert "coattail team start" in (folder / "coattail-team.service").read_text()
    for path in folder.iterdir():
        if path.name not in ("team-server.yaml", "team.env.example"):
            said = " ".join(path.read_text().replace("#", "").replace("**", "").split())
            assert "not run by the tests" in said or "were run by the tests" in said, path
    # What holds both buckets on the page holds them in containers, too.
    page = (ROOT / "docs" / "how-to" / "team.md").read_text()
    (volumes,) = set(re.findall(r"-volume\.max=\d+", page))
    assert volumes in compose["services"]["storage"]["command"]


def test_a_password_in_the_address_is_used_and_never_shown():
    address = "https://ada:se%40cret@mlflow.example.org:5000/base/"
    asked = client.Server(address)
    assert asked.address == "https://mlflow.example.org:5000/base"
    assert asked.user == "ada"
    assert asked.stranger().user is None
    prepared = requests.Request("GET", asked.address, auth=asked._credentials).prepare()
    assert b64decode(prepared.headers["Authorization"].split()[1]) == b"ada:se@cret"
    named = client.Server(address, "bela", "other")
    assert named.user == "bela"


def test_every_command_in_the_guide_exists():
    text = (ROOT / "docs" / "how-to" / "team.md").read_text()
    found = re.findall(
        r"(?:^|`|&& )coattail ((?:(?:team|model|experiment|data) )?[a-z-]+)([^`\n#]*)",
        text,
        re.MULTILINE,
    )
    assert {"team start", "team user", "team backup", "team restore", "doctor"} <= {
        words for words, _ in found
    }
    for words, rest in found:
        command = main
        for word in words.split():
            assert word in command.commands, f"docs/how-to/team.md names coattail {words}"
            command = command.commands[word]
        known = {name for option in command.params for name in option.opts}
        unknown = set(re.findall(r"--[a-z-]+", rest)) - known
        assert not unknown, f"docs/how-to/team.md: coattail {words} has no {unknown}"
