"""A proxy on loopback that forwards HTTP and, from some moment on, refuses writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

REFUSAL = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>AccessDenied</Code><Message>The quota is used up</Message></Error>"
)


class Proxy(ThreadingHTTPServer):
    """Counts writes; lets ``allowed`` of them through (None: all)."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.allowed, self.writes = target, None, 0
        self.lock = Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def lets_through(self) -> bool:
        with self.lock:
            if self.allowed is not None and self.writes >= self.allowed:
                return False
            self.writes += 1
            return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: object) -> None:
        pass

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command in ("PUT", "POST") and not self.server.lets_through():
            self.reply(403, [("Content-Type", "application/xml")], REFUSAL)
            return
        connection = HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        try:
            # The Host header goes along as it came: the signature covers it.
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            self.reply(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # an answer to HEAD names a length and has no body
            elif name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward


@contextmanager
def refusing_proxy(port: int) -> Iterator[Proxy]:
    """A proxy in front of the service on ``port``; set ``allowed`` to make it refuse."""
    with Proxy(port) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
