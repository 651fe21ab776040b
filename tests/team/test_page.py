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
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import suppress
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
            start_new_session=True,
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
        """With all that was started in it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
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


class Walk:
    """Whoever types what the page says, and where they have come to in it."""

    def __init__(self, place: dict) -> None:
        self.place, self.left = place, iter(blocks())
        self.admin, self.ada, self.bob = (_person(place, name) for name in ("root", "ada", "bob"))
        self.clone = self.admin.folder / "coattail"
        self.servers: list[Process] = []
        self.passwords: dict[str, str] = {}
        self.keys: list[str] = []

    def next(self) -> str:
        return next(self.left)

    def serve(self, block: str) -> None:
        """A block that stays in the foreground, in a terminal of its own."""
        before = f"cd {self.clone}; set -a; . ./team.env; set +a; {FUNCTIONS}"
        log = self.place["folder"] / "server.log"
        words = ["bash", "-c", f"{before}\n{block}"]
        self.servers.append(Process(words, log, env=self.admin.env))
        self.servers[-1].wait_for(lambda: "OK" in _health(self.place["url"]))

    def set_up_the_server(self) -> None:
        # createuser asks twice for the password of its new user.
        twice = " <<< $'a-long-password\\na-long-password'"
        self.admin.type(self.next().replace("--pwprompt mlflow", f"--pwprompt mlflow{twice}"))
        self.admin.type(f"git clone -q {self.place['folder'] / 'origin.git'} coattail; cd coattail")
        (self.clone / ".venv").symlink_to(services.BIN.parent)  # as `make setup` would make it
        self.admin.type(self.next())
        self.keys = _given(self.admin.type(self.next()))
        bucket, start = self.next().splitlines()
        assert "it takes files" in self.admin.type(bucket)
        _containers(self.admin)
        self.serve(start)

    def make_the_users(self) -> None:
        said = self.admin.type(self.next())
        shown = re.findall(r"^password of (\w+), shown once: (\S+)$", said, re.MULTILINE)
        self.passwords = dict(shown)
        assert set(self.passwords) == {"ada", "bob", "rita"}
        assert "reader   rita" in said
        assert "BAD" not in said
        # Ada changes hers, with the credentials of her own file.
        file = _credentials(self.ada, "ada", self.passwords["ada"])
        self.passwords["ada"] = "a-new-password-of-ada"
        self.ada.type(
            f"export MLFLOW_TRACKING_URI={self.place['url']} NEW={self.passwords['ada']}\n"
            + self.next()
        )
        file.unlink()

    def share(self) -> None:
        said = self.ada.type(_filled(self.next(), self.passwords["ada"], self.keys[:2]))
        assert "takes files and gives them back" in said
        assert "BAD" not in said
        # Bob runs nothing, then changes a value.
        said = self.bob.type(_filled(self.next(), self.passwords["bob"], self.keys[2:]))
        assert "Running stage" not in said
        assert "BAD" not in said
        said = self.bob.type(self.next())
        assert "Running stage 'train_linear@dismec'" in said
        assert "Running stage 'preprocess'" not in said
        assert "dismec-rerank" in self.bob.said, "compare shows what changed"
        _look(self.place, self.passwords["bob"])

    def look_further(self) -> None:
        # Other remotes: only their lines, and nobody keeps them.
        self.ada.type(self.next() + self.next() + "git checkout -q .dvc/config\n")
        said = self.admin.type("export NEW=a-new-password-of-bela\n" + self.next())
        assert "removed bela" in said
        # A model made again from its lineage.
        said = self.ada.type("git pull -q\n" + self.next())
        assert "every stage has the bytes of then" in said
        assert "by ada on" in said
        # An experiment for another team.
        said = self.bob.type(self.next())
        assert "already shows these results" in said
        assert "Running stage" not in said

    def keep(self) -> None:
        """Backup, restore, upgrade."""
        before = _shown(self.place, self.passwords["ada"])
        self.admin.type(self.next())
        self.servers.pop().stop(patience=5)
        *restore, start = self.next().splitlines()
        self.admin.type("\n".join(restore) + "\n")
        self.admin.type(self.next())
        self.serve(start)
        assert _shown(self.place, self.passwords["ada"]) == before

    def close(self) -> None:
        for one in self.servers:
            one.stop(patience=5)
        for person in (self.admin, self.ada, self.bob):
            person.close()


def test_the_page_from_its_first_line_to_its_last(place):
    walk = Walk(place)
    try:
        walk.set_up_the_server()
        walk.make_the_users()
        walk.share()
        walk.look_further()
        walk.keep()
        assert next(walk.left, None) is None, "a block of the page was not run"
    finally:
        walk.close()


def _containers(admin: Terminal) -> None:
    """What deploy/compose.yaml runs to make the buckets, with the server of this test."""
    compose = YAML(typ="safe").load((ROOT / "deploy" / "compose.yaml").read_text())
    (command,) = compose["services"]["buckets"]["command"]
    command = command.replace("&&\n", "&& ")
    said = admin.type(command.replace("deploy/team-server.yaml", "conf/team-server.yaml"))
    assert said.count("takes files") == 2


def _health(url: str) -> str:
    import requests

    return requests.get(f"{url}/health", timeout=5).text


def _credentials(person: Terminal, name: str, password: str) -> Path:
    """As the page says, in the person's own file."""
    file = person.folder / ".mlflow" / "credentials"
    file.parent.mkdir()
    file.write_text(
        f"[mlflow]\nmlflow_tracking_username = {name}\nmlflow_tracking_password = {password}\n"
    )
    return file


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
