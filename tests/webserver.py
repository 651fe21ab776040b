"""A real server on loopback that misbehaves on request, and archives to serve."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from coattail.data import fetch


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Site:
    """Files by path, and one trick per coming request (none: behave)."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    tricks: list[str] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    etag: str | None = '"v1"'


class Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        asked = self.headers.get("Range")
        site.requests.append((self.path, asked))
        trick = site.tricks.pop(0) if site.tricks else ""
        self.close_connection = True
        if trick.isdigit():
            self.send_error(int(trick))
            return
        if self.path not in site.files:
            self.send_error(404)
            return
        body = site.files[self.path]
        if_range = self.headers.get("If-Range")
        start = int(asked[6:-1]) if asked and if_range in (None, site.etag) else 0
        if trick == "ignore range" or start == 0:
            start = 0
            self.send_response(200)
        elif start >= len(body):
            self.send_error(416)
            return
        else:
            self.send_response(206)
            shown = start + 1 if trick == "wrong range" else start
            self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
        if site.etag and trick != "no version":
            self.send_header("ETag", site.etag)
        if trick == "web page":
            self.send_header("Content-Type", "text/html; charset=utf-8")
        rest = body[start:]
        announced = len(rest) + {"lie long": 1000, "lie short": -1000}.get(trick, 0)
        if trick == "no length":
            pass
        elif trick.startswith("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(announced))
        self.end_headers()
        if trick == "chunked cut":
            self.wfile.write(b"10000\r\n" + rest[:1000])
        else:
            self.wfile.write(rest[: len(rest) // 2] if trick == "cut" else rest)


@pytest.fixture
def site(monkeypatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": site}))
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members: dict[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                archive.addfile(info)
    return out.getvalue()
