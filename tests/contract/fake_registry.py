"""A schema registry in memory behind HTTP, with the answers of Confluent's API; it may be told to misbehave."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

NO_CONTENT = {"error_code": 40403, "message": "Schema not found"}
_PATHS = (
    re.compile(r"/schemas/ids/(?P<id>\d+)"),
    re.compile(r"/schemas/guids/(?P<guid>[-0-9a-f]+)"),
    re.compile(r"/subjects/(?P<subject>[^/]+)/versions/(?P<version>\d+)"),
)


class FakeRegistry:
    """Holds schemas; `status`, `trickle_s` and `authorization` rule its next answers, `asked` has their paths."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.status = 200
        self.raw: bytes | None = None
        self.trickle_s = 0.0
        self.authorization: str | None = None
        self.is_served = False
        self.url = ""

    def register(self, subject: str, text: str, references: tuple[tuple[str, str, int], ...] = ()) -> int:
        """Add a schema; returns its id."""
        told = [{"name": name, "subject": of, "version": version} for name, of, version in references]
        number, version = len(self.schemas) + 1, 1 + sum(one["subject"] == subject for one in self.schemas)
        guid = f"00000000-0000-4000-8000-{number:012x}"
        self.schemas.append(
            {"id": number, "guid": guid, "subject": subject, "version": version, "schema": text, "references": told}
        )
        return number

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Answer a GET."""
        self.asked.append(path)
        self.headers = headers
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        if self.status != 200:
            return self.status, b'{"error_code": 50001, "message": "not now"}'
        if self.raw is not None:
            return 200, self.raw
        for pattern in _PATHS:
            if found := pattern.fullmatch(path):
                named = {name: unquote(value) for name, value in found.groupdict().items()}
                for schema in self.schemas:
                    if all(str(schema[name]) == value for name, value in named.items()):
                        return 200, json.dumps(schema).encode()
                return 404, json.dumps(NO_CONTENT).encode()
        return 404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'


@contextmanager
def serving(registry: FakeRegistry, port: int = 0, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve it, with `tls` as https; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not registry.is_served:  # a connection from before
                self.close_connection = True
                return
            status, body = registry.answer(self.path, dict(self.headers.items()))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for byte in body if registry.trickle_s else ():
                time.sleep(registry.trickle_s)
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    return
            if not registry.trickle_s:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    registry.is_served = True
    try:
        yield registry.url
    finally:
        registry.is_served = False
        server.shutdown()
        server.server_close()
        thread.join()
