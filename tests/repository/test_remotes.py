"""Two people share results through a folder, over ssh and through S3, with real DVC commands."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from tests import services
from tests.processes import AUTHOR
from tests.refusing_proxy import refusing_proxy

pytestmark = [pytest.mark.services]

# A pipeline that only writes small files: the tests are about the remote.
STAGE = """
from pathlib import Path
rate = Path("params.yaml").read_text().split()[1]
out = Path("model")
out.mkdir(exist_ok=True)
for i in range(12):
    (out / f"{i}.txt").write_text(f"{rate} {i} " * 200)
"""
PIPELINE = """
stages:
  train:
    cmd: python train.py
    deps: [train.py]
    params: [rate]
    outs: [model]
"""


class Person:
    """Somebody with a clone, a home folder and an environment of their own."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        home.mkdir(exist_ok=True)
        self.env = services.clean_environment() | AUTHOR | {"HOME": str(home)}
        self.env.pop("SSH_AUTH_SOCK", None)

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=600
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(words)} gave {done.returncode}:\n{output}"
        return output

    def dvc(self, *words: str, code: int = 0) -> str:
        return self.run("dvc", *words, code=code)

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)

    def rate(self, value: float) -> None:
        (self.folder / "params.yaml").write_text(f"rate: {value}\n")

    def results(self) -> str:
        files = sorted((self.folder / "model").iterdir())
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@pytest.fixture
def ada(tmp_path) -> Person:
    """The first person: a repository with the pipeline, no remote yet."""
    folder = tmp_path / "ada"
    folder.mkdir()
    person = Person(folder, tmp_path / "home-of-ada")
    (folder / "train.py").write_text(STAGE)
    (folder / "dvc.yaml").write_text(PIPELINE)
    person.rate(0.1)
    person.run("git", "init", "-q")
    person.dvc("init", "-q")
    return person


def colleague(of: Person, folder: Path) -> Person:
    """The second person, in a fresh clone on what stands for another machine."""
    person = Person(folder, folder.parent / f"home-of-{folder.name}")
    subprocess.run(["git", "clone", "-q", of.folder, folder], check=True)
    return person


@pytest.fixture(scope="module")
def s3():
    with services.seaweedfs("team-cache") as server:
        yield server


@pytest.fixture(scope="module")
def ssh():
    with services.sshd() as server:
        yield server


def use_folder(person: Person, request, tmp_path: Path) -> None:
    person.dvc("remote", "add", "-d", "team", str(tmp_path / "shared"))


def use_ssh(person: Person, request, tmp_path: Path) -> None:
    ssh = request.getfixturevalue("ssh")
    person.dvc("remote", "add", "-d", "team", f"ssh://depot{ssh.folder}/{tmp_path.name}")


def use_s3(person: Person, request, tmp_path: Path) -> None:
    s3 = request.getfixturevalue("s3")
    person.dvc("remote", "add", "-d", "team", f"s3://team-cache/{tmp_path.name}")
    person.dvc("remote", "modify", "team", "endpointurl", s3.endpoint)


def credentials(person: Person, request, kind: str) -> list[str]:
    """Give a person what only they have; return what must be in no committed file."""
    if kind == "ssh":
        ssh = request.getfixturevalue("ssh")
        folder = Path(person.env["HOME"]) / ".ssh"
        folder.mkdir(mode=0o700)
        lines = ["Host depot", f"HostName {ssh.host}", f"Port {ssh.port}", f"User {ssh.user}"]
        (folder / "config").write_text("\n".join([*lines, f"IdentityFile {ssh.key}"]) + "\n")
        return [str(ssh.key)]
    if kind == "s3":
        s3 = request.getfixturevalue("s3")
        person.env |= s3.env
        return [s3.access_key, s3.secret_key]
    return []


@pytest.mark.parametrize(
    ("kind", "use"), [("folder", use_folder), ("ssh", use_ssh), ("s3", use_s3)]
)
def test_what_one_person_ran_nobody_runs_again(ada, tmp_path, request, kind, use):
    secrets = credentials(ada, request, kind)
    use(ada, request, tmp_path)
    assert "Running stage" in ada.dvc("repro")
    ada.commit("results")
    ada.dvc("push", "--run-cache")
    first = ada.results()
    # A second result that is in no commit. DVC pushes the outputs that dvc.lock names at the time.
    ada.rate(0.2)
    ada.dvc("repro")
    second = ada.results()
    ada.dvc("push", "--run-cache")
    tracked = [ada.folder / name for name in ada.run("git", "ls-files").split()]
    text = "".join(path.read_text() for path in tracked)
    assert not [secret for secret in secrets if secret in text]

    bela = colleague(ada, tmp_path / "bela")
    credentials(bela, request, kind)
    bela.dvc("pull", "--run-cache")
    assert "Running stage" not in bela.dvc("repro")
    assert bela.results() == first
    assert bela.run("git", "status", "--porcelain") == ""
    bela.rate(0.2)
    output = bela.dvc("repro", "--pull")
    assert "is cached - skipping run" in output
    assert "> python" not in output
    assert bela.results() == second


def test_a_write_refused_in_the_middle_of_a_push_is_told_and_the_next_push_completes_it(
    ada, tmp_path, request, s3
):
    credentials(ada, request, "s3")
    use_s3(ada, request, tmp_path)
    with refusing_proxy(s3.port) as proxy:
        ada.dvc("remote", "modify", "team", "endpointurl", proxy.address)
        ada.dvc("repro")
        ada.commit("results")
        proxy.allowed = 5
        output = ada.dvc("push", "--run-cache", code=1)
        assert proxy.writes == 5
        assert "9 files failed to upload" in output
        assert "The quota is used up" in output
        assert "Traceback" not in output
        there = s3.keys("team-cache")
        assert 0 < len([key for key in there if key.startswith(tmp_path.name)]) <= 5
        bela = colleague(ada, tmp_path / "bela")
        credentials(bela, request, "s3")
        bela.dvc("pull", code=1)  # half a model is never taken for a whole one

        proxy.allowed = None
        ada.dvc("push", "--run-cache")
        bela.dvc("pull", "--run-cache")
        assert "Running stage" not in bela.dvc("repro")
        assert bela.results() == ada.results()


def test_without_or_with_wrong_keys_the_storage_refuses(ada, tmp_path, request, s3):
    use_s3(ada, request, tmp_path)
    ada.dvc("repro")
    assert "credentials" in ada.dvc("push", code=255).lower()
    credentials(ada, request, "s3")
    ada.env["AWS_SECRET_ACCESS_KEY"] = "not-the-secret"
    output = ada.dvc("push", code=255)
    assert "signature" in output.lower() or "forbidden" in output.lower(), output
    assert not [key for key in s3.keys("team-cache") if key.startswith(tmp_path.name)]


def test_a_stranger_without_a_key_cannot_push_over_ssh(ada, tmp_path, request, ssh):
    credentials(ada, request, "ssh")
    config = Path(ada.env["HOME"]) / ".ssh" / "config"
    lines = [line for line in config.read_text().splitlines() if "IdentityFile" not in line]
    config.write_text("\n".join(lines) + "\n")
    use_ssh(ada, request, tmp_path)
    ada.dvc("repro")
    assert "ermission denied" in ada.dvc("push", code=255)
    assert not os.listdir(ssh.folder) or tmp_path.name not in os.listdir(ssh.folder)


def test_a_conflict_in_the_lock_file_is_mended_without_training(ada, tmp_path, request):
    use_folder(ada, request, tmp_path)
    ada.dvc("repro")
    ada.commit("start")
    bela = colleague(ada, tmp_path / "bela")
    for person, value in ((ada, 0.2), (bela, 0.3)):
        person.rate(value)
        person.dvc("repro")
        person.commit(f"rate {value}")
        person.dvc("push", "--run-cache")
    assert "CONFLICT" in ada.run("git", "pull", "-q", "--no-rebase", str(bela.folder), code=1)
    ada.rate(0.3)  # they agree on one value; either side of dvc.lock will do
    ada.run("git", "checkout", "--ours", "dvc.lock")
    ada.dvc("fetch", "--run-cache")
    output = ada.dvc("repro", "--pull")
    assert "is cached - skipping run" in output
    assert "> python" not in output
    assert ada.results() == bela.results()
    ada.commit("merged")
    assert ada.run("git", "diff", "HEAD", "HEAD^2", "--", "dvc.lock") == ""


def test_an_experiment_travels_by_name_without_touching_a_branch(ada, tmp_path, request):
    use_folder(ada, request, tmp_path)
    ada.dvc("repro")
    ada.commit("start")
    subprocess.run(["git", "clone", "-q", "--bare", ada.folder, tmp_path / "origin"], check=True)
    bela = colleague(ada, tmp_path / "bela")
    for person in (ada, bela):
        person.run("git", "config", "remote.origin.url", str(tmp_path / "origin"))
    ada.dvc("exp", "run", "-q", "-n", "ada-03", "-S", "rate=0.3")
    ada.dvc("exp", "push", "origin", "ada-03")
    bela.dvc("exp", "pull", "origin", "ada-03")
    bela.dvc("exp", "apply", "ada-03")
    assert bela.results() == ada.results()
    assert "Running stage" not in bela.dvc("repro")
