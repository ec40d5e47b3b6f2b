"""A tiny S3 on loopback: PUT, GET and HEAD with `If-None-Match`, checksums, and faults by script.

Only what `adapters.object_store` asks for; so that its way through boto3 is tested without a server to install.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import unquote

OK = 200
_PACE_BYTES = 16 * 1024
CUT_BEFORE, CUT_AFTER, NO_ETAG = "cut before storing", "cut after storing", "an answer without ETag"
# A GET is cut before its answer, or within it.
Fault = tuple[int, str] | str
"""(status, S3 error code), or one of the three above."""


class Call(NamedTuple):
    """A request, with its headers in lower case."""

    method: str
    key: str
    query: str
    headers: dict[str, str]


@dataclass
class HttpS3:
    """The server's objects, the requests that it got, and its next answers."""

    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    head_status: int = 200
    bytes_per_s: float | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    url: str = ""
    text: str = "scripted"
    page: bytes | None = None
    error_headers: dict[str, str] = field(default_factory=dict)
    is_overwriting: bool = False
    version_id: str | None = None

    def read(self, key: str) -> bytes | None:
        """Give the bytes of an object."""
        found = self.objects.get(key)
        return found[0] if found else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: HttpS3

    def parse_request(self) -> bool:
        """Note the request."""
        is_good = super().parse_request()
        if is_good:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.store.calls.append(Call(self.command, self._key(), self.path.partition("?")[2], headers))
        return is_good

    def _key(self) -> str:
        return unquote(self.path.partition("?")[0]).lstrip("/").partition("/")[2]

    def do_HEAD(self) -> None:
        """Tell about an object, or the bucket."""
        key, status = self._key(), self.store.head_status
        self.store.requests.append(("HEAD", key))
        found = self.store.objects.get(key) if key else (b"", {})
        if status != OK or found is None:
            self._answer(status if status != OK else 404)
        else:
            body, metadata = found
            self._answer(OK, {"ETag": _etag(body), "Content-Length": str(len(body)), **metadata})

    def do_GET(self) -> None:
        """Give an object back, or do what the script says."""
        key = self._key()
        self.store.requests.append(("GET", key))
        fault = self.store.faults.popleft() if self.store.faults else None
        found = self.store.objects.get(key)
        if isinstance(fault, tuple):
            self._error(*fault)
        elif fault == CUT_BEFORE:
            self._cut()
        elif found is None:
            self._error(404, "NoSuchKey")
        else:
            self._answer(OK, {"ETag": _etag(found[0]), "Content-Length": str(len(found[0]))})
            if fault == CUT_AFTER:
                self.wfile.write(found[0][:1])
                self._cut()
            else:
                self.wfile.write(found[0])

    def do_PUT(self) -> None:
        """Store an object, or do what the script says."""
        key = self._key()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.store.requests.append(("PUT", key))
        self.store.headers.append(headers)
        body = self._body(int(headers["content-length"]))
        fault = self.store.faults.popleft() if self.store.faults else None
        if isinstance(fault, tuple):
            self._error(*fault)
        elif fault == CUT_BEFORE:
            self._cut()
        elif headers.get("if-none-match") == "*" and key in self.store.objects and not self.store.is_overwriting:
            self._error(412, "PreconditionFailed")
        elif not _is_intact(body, headers):
            self._error(400, "BadDigest")
        else:
            metadata = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
            self.store.objects[key] = (body, metadata)
            if fault == CUT_AFTER:
                self._cut()
            else:
                self._answer(OK, {} if fault == NO_ETAG else {"ETag": _etag(body)})

    def _body(self, length: int) -> bytes:
        if self.store.bytes_per_s is None:
            return self.rfile.read(length)
        body = bytearray()
        begin = time.monotonic()
        while len(body) < length and (piece := self.rfile.read(min(_PACE_BYTES, length - len(body)))):
            body += piece
            time.sleep(max(0.0, begin + len(body) / self.store.bytes_per_s - time.monotonic()))
        return bytes(body)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _error(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{self.store.text}</Message></Error>".encode()
        text = text if self.store.page is None else self.store.page
        self.send_response(status)
        for name, value in self.store.error_headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _answer(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        version = {} if self.store.version_id is None else {"x-amz-version-id": self.store.version_id}
        for name, value in {"Content-Length": "0", **version, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing."""


@contextmanager
def serve(*, bytes_per_s: float | None = None, context: ssl.SSLContext | None = None) -> Iterator[HttpS3]:
    """Serve on a free port, by TLS if there is a context; a slow server buffers little: a client feels its pace."""
    store = HttpS3(bytes_per_s=bytes_per_s)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    if bytes_per_s is not None:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PACE_BYTES)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def trickle(*, reads: bool) -> Iterator[str]:
    """Give the address of a server that answers a byte now and then, or that takes a request a byte now and then."""
    ended = threading.Event()

    def serve_one(link: socket.socket) -> None:
        with link, suppress(OSError):
            if reads:
                threading.Thread(target=_drain, args=(link,), daemon=True).start()
                link.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.2):
                if reads:
                    link.sendall(b"x")
                elif not link.recv(1):
                    return

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PACE_BYTES)

    def accept() -> None:
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                threading.Thread(target=serve_one, args=(link,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.close()


def _drain(link: socket.socket) -> None:
    with suppress(OSError):
        while link.recv(65_536):
            pass


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _is_intact(body: bytes, headers: dict[str, str]) -> bool:
    sha256, crc32 = headers.get("x-amz-checksum-sha256"), headers.get("x-amz-checksum-crc32")
    if sha256 is not None and base64.b64decode(sha256) != hashlib.sha256(body).digest():
        return False
    return crc32 is None or base64.b64decode(crc32) == zlib.crc32(body).to_bytes(4, "big")
