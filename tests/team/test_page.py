"""docs/how-to/team.md from its first line to its last, run as it is printed.

Every block marked ``sh`` is taken from the page and given to the shell of whoever types it there:
the server's admin, Ada, Bob, each with a HOME of their own. What the page leaves to the reader
(addresses, ports, folders, users of the system, passwords) is filled in by ``replaced`` and by
a few functions of the shell.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient
from ruamel.yaml import YAML

from tests import services
from tests.processes import Process, clean_environment, free_ports
from tests.project import ROOT, tiny_project

pytestmark = [pytest.mark.services, pytest.mark.pipeline]

PAGE = ROOT / "docs" / "how-to" / "team.md"
NOT_RUN = (
    "dask ",
    "coattail experiment queue --on tcp",
    "coattail experiment import-runs",
    "source ",
    "exec dask",
)
"""Commands of blocks that are not run here: the cluster's and imports have tests of their own."""

FUNCTIONS = """
apt-get() { true; }                       # this machine has what the page installs
make() { [ "$1" = setup ] || /usr/bin/make -o setup "$@"; }   # the environment is there
weed() { "$TEST_WEED" "$@" $TEST_WEED_PORTS; }                # on free ports, beside other tests
runuser() { (shift 3; export PGUSER=postgres PGPASSWORD="$TEST_PG"; "$@"); }  # the tests' cluster
"""


def fenced() -> Iterator[tuple[str, str]]:
    """Every block of the page with its mark, in its order."""
    mark, lines = None, []
    for line in textwrap.dedent(PAGE.read_text(encoding="utf-8")).splitlines():
        if not line.lstrip().startswith("```"):
            lines.append(line)
        elif mark is None:
            mark, lines = line.strip("` "), []
        else:
            yield mark, textwrap.dedent("\n".join(lines)) + "\n"
            mark = None


def blocks() -> list[str]:
    """What the page says to type."""
    return [text for mark, text in fenced() if mark == "sh"]


def test_every_command_of_the_page_is_in_a_block_that_is_run():
    for text in [text for mark, text in fenced() if mark != "sh"]:
        for line in text.splitlines():
            command = re.match(r" *(coattail|dvc|git|make|aws|weed|createuser|mlflow) ", line)
            assert not command or line.strip().startswith(NOT_RUN), f"not marked sh: {line}"


@dataclass
class Terminal:
    """A shell that somebody keeps open: what one block sets, the next one has."""

    folder: Path
    env: dict[str, str]
    replaced: dict[str, str]
    said: str = ""  # by the last command

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            ["bash"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._run(FUNCTIONS)

    def type(self, block: str, **more: str) -> str:
        """Run a block line by line, as printed but for ``replaced``; it may not fail."""
        for old, new in {**more, **self.replaced}.items():
            block = block.replace(old, new)
        whole = ""
        for command in _commands(block):
            self.said = self._run(command)
            whole += self.said
        return whole

    def _run(self, command: str) -> str:
        mark, said = secrets.token_hex(8), ""
        file = self.folder / f"typed-{mark}"
        file.write_text(command)
        self.process.stdin.write(f". {file} < /dev/null\necho {mark} $?\n")
        self.process.stdin.flush()
        while True:
            line = self.process.stdout.readline()
            assert line, f"the shell ended at:\n{command}\n{said}"
            if mark in line:
                break
            said += line
        assert line.split()[-1] == "0", f"{command} gave {line}:\n{said}"
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _commands(block: str) -> Iterator[str]:
    """Lines of a block; a here-document and what continues stay together."""
    waiting = ""
    for line in block.splitlines():
        waiting += line + "\n"
        opens = re.search(r"<<(\w+)", waiting)
        if (opens and line != opens[1]) or line.endswith("\\"):
            continue
        if waiting.strip():
            yield waiting
        waiting = ""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[dict]:
    """A machine as the page wants it: PostgreSQL, an empty folder, a repository to clone."""
    folder = tmp_path_factory.mktemp("page")
    origin = tiny_project(folder / "first")
    # One worker starts sooner than four; models take long and have tests of their own.
    config = origin.folder / "conf" / "team-server.yaml"
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port.grpc", "s3.port"]
    *ports, http = free_ports(len(names) + 1)
    weed = " ".join(f"-{name}={port}" for name, port in zip(names, ports, strict=True))
    with services.postgres(user="postgres") as postgres:
        text = config.read_text().replace("workers: 4", "workers: 1").replace("5000", str(http))
        text = text.replace("5432", str(postgres.port)).replace("8333", str(ports[-1]))
        config.write_text(text)
        origin.commit("where the server is")
        origin.run("git", "clone", "-q", "--bare", ".", str(folder / "origin.git"))
        (folder / "backup").mkdir()
        yield {
            "folder": folder,
            "url": f"http://127.0.0.1:{http}",
            "s3": f"http://127.0.0.1:{ports[-1]}",
            "env": clean_environment()
            | {
                "PATH": f"{postgres.bin}:{services.BIN}:{os.environ['PATH']}",
                "PGHOST": postgres.host,
                "PGPORT": str(postgres.port),
                "TEST_PG": postgres.password,
                "TEST_WEED": str(services.BIN / "weed"),
                "TEST_WEED_PORTS": f"{weed} -s3.port.iceberg=0 -s3.port.lance=0",
                "DVC_NO_ANALYTICS": "true",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
            "replaced": {
                "what-you-gave-to-createuser": "a-long-password",
                "postgresql+psycopg://mlflow@127.0.0.1/": (
                    f"postgresql+psycopg://mlflow@127.0.0.1:{postgres.port}/"
                ),
                "http://127.0.0.1:5000": f"http://127.0.0.1:{http}",
                "https://mlflow.example.org": f"http://127.0.0.1:{http}",
                "https://s3.example.org": f"http://127.0.0.1:{ports[-1]}",
                "/srv/storage": str(folder / "storage"),
                "/mnt/team": str(folder / "shared"),
                "/backup/": str(folder / "backup") + "/",
                "ADDRESS": str(folder / "origin.git"),
            },
        }


def _person(place: dict, name: str) -> Terminal:
    home = place["folder"] / name
    home.mkdir()
    me = {"HOME": str(home), "USER": name, "LOGNAME": name}
    for kind in ("AUTHOR", "COMMITTER"):
        me |= {f"GIT_{kind}_NAME": name, f"GIT_{kind}_EMAIL": f"{name}@example.org"}
    return Terminal(home, place["env"] | me, place["replaced"])


def _given(said: str) -> list[str]:
    """Keys that a command has shown once, as two words to export."""
    return re.findall(r"^(AWS_\w+=\w+)$", said, re.MULTILINE)


def test_the_page_from_its_first_line_to_its_last(place):
    text, folder = iter(blocks()), place["folder"]
    admin, ada, bob = (_person(place, name) for name in ("root", "ada", "bob"))
    servers: list[Process] = []

    def serve(block: str) -> None:
        """A block that stays in the foreground, in a terminal of its own."""
        words = ["bash", "-c", f"cd {clone}; set -a; . ./team.env; set +a; {FUNCTIONS}\n{block}"]
        servers.append(Process(words, folder / "server.log", env=admin.env))
        servers[-1].wait_for(lambda: "OK" in _health(place["url"]))

    try:
        # The server, once. createuser asks twice for the password of its new user.
        install = next(text)
        admin.type(
            install.replace(
                "--pwprompt mlflow", "--pwprompt mlflow <<< $'%s\\n%s'" % (("a-long-password",) * 2)
            )
        )
        admin.type(f"git clone -q {folder / 'origin.git'} coattail; cd coattail")
        clone = admin.folder / "coattail"
        _environment(clone)
        admin.type(next(text))
        keys = _given(admin.type(next(text)))
        bucket, start = next(text).splitlines()
        assert "it takes files" in admin.type(bucket)
        _containers(admin, place)
        serve(start)
        # The first users.
        said = admin.type(next(text))
        passwords = dict(re.findall(r"^password of (\w+), shown once: (\S+)$", said, re.MULTILINE))
        assert set(passwords) == {"ada", "bob", "rita"}
        assert "reader   rita" in said
        assert "BAD" not in said
        own = next(text)
        # The first person.
        _credentials(ada, place, "ada", passwords["ada"])
        ada.type("export NEW=a-new-password-of-ada; " + own)
        passwords["ada"] = "a-new-password-of-ada"
        (folder / "ada" / ".mlflow" / "credentials").unlink()
        said = ada.type(_filled(next(text), passwords["ada"], keys[:2]))
        assert "takes files and gives them back" in said
        assert "BAD" not in said
        # The second person runs nothing, then changes a value.
        said = bob.type(_filled(next(text), passwords["bob"], keys[2:]))
        assert "Running stage" not in said
        assert "BAD" not in said
        said = bob.type(next(text))
        assert "Running stage 'train_linear@dismec'" in said
        assert "Running stage 'preprocess'" not in said
        assert "dismec-rerank" in bob.said, "compare shows what changed"
        _look(place, passwords["bob"])
        # Other remotes: only their lines, on a branch that nobody keeps.
        ada.type(next(text) + next(text) + "git checkout -q .dvc/config\n")
        # Roles, in the page's order.
        said = admin.type("export NEW=a-new-password-of-bela; " + next(text))
        assert "removed bela" in said
        # Lineage, and the model made again from it, by somebody else.
        said = ada.type("git pull -q\n" + next(text))
        assert "every stage has the bytes of then" in said
        assert "by ada on" in said
        # An experiment for another team.
        said = bob.type(next(text))
        assert "already shows these results" in said
        assert "Running stage" not in said
        # Backup, restore, upgrade.
        before = _shown(place, passwords["ada"])
        said = admin.type(next(text))
        servers.pop().stop(patience=5)
        restore = next(text).splitlines()
        admin.type("\n".join(restore[:-1]) + "\n")
        admin.type(next(text))
        serve(restore[-1])
        assert _shown(place, passwords["ada"]) == before
        assert next(text, None) is None, "a block of the page was not run"
    finally:
        for one in servers:
            one.stop(patience=5)
        for person in (admin, ada, bob):
            person.type("kill $(jobs -p) 2>/dev/null; true")
            person.close()


def _containers(admin: Terminal, place: dict) -> None:
    """What deploy/compose.yaml runs to make the buckets, with the server of this test."""
    compose = YAML(typ="safe").load((ROOT / "deploy" / "compose.yaml").read_text())
    (command,) = compose["services"]["buckets"]["command"]
    command = command.replace("&&\n", "&& ")
    said = admin.type(command.replace("deploy/team-server.yaml", "conf/team-server.yaml"))
    assert said.count("takes files") == 2


def _health(url: str) -> str:
    import requests

    return requests.get(f"{url}/health", timeout=5).text


def _environment(clone: Path) -> None:
    """What `make setup` would make: this environment."""
    (clone / ".venv").symlink_to(services.BIN.parent)


def _credentials(person: Terminal, place: dict, name: str, password: str) -> None:
    """As the page says, in the person's own file."""
    file = person.folder / ".mlflow" / "credentials"
    file.parent.mkdir()
    file.write_text(
        f"[mlflow]\nmlflow_tracking_username = {name}\nmlflow_tracking_password = {password}\n"
    )
    person.type(f"export MLFLOW_TRACKING_URI={place['url']}\n")


def _filled(block: str, password: str, keys: list[str]) -> str:
    """A block with the three dots of the page filled in; the environment is linked, not made."""
    link = f"ln -sfn {services.BIN.parent} .venv && echo .venv >> .git/info/exclude && make setup"
    block = block.replace("make setup", link, 1)
    block = block.replace("MLFLOW_TRACKING_PASSWORD=...", f"MLFLOW_TRACKING_PASSWORD={password}")
    return block.replace("AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...", " ".join(keys))


def _client(place: dict, password: str, name: str = "ada") -> MlflowClient:
    os.environ |= {"MLFLOW_TRACKING_USERNAME": name, "MLFLOW_TRACKING_PASSWORD": password}
    return MlflowClient(place["url"])


@pytest.fixture(autouse=True)
def _own_environment():
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def _look(place: dict, password: str) -> None:
    """What the two see of each other in MLflow."""
    client = _client(place, password, "bob")
    where = [client.get_experiment_by_name("demo").experiment_id]
    runs = client.search_runs(where, "tags.`coattail.kind` = 'candidate'")
    people = sorted((run.info.run_name, run.data.tags["author"]) for run in runs)
    assert people == [(name, who) for name in ("dismec", "dismec-rerank") for who in ("ada", "bob")]
    parents = client.search_runs(where, "tags.`coattail.kind` = 'parent'")
    names = sorted(run.info.run_name.partition(" ")[2] for run in parents)
    assert names == ["ada: dismec, dismec-rerank", "bob: dismec, dismec-rerank"]
    assert {run.data.tags["git.dirty"] for run in parents} == {"false"}


def _shown(place: dict, password: str) -> list[tuple[str, str]]:
    client = _client(place, password)
    where = [one.experiment_id for one in client.search_experiments()]
    return sorted((run.info.run_id, run.info.status) for run in client.search_runs(where))
