"""The HTTP side of the S3 fault proxy: forward a request, or apply a rule to it.

One thread per connection, whole bodies in memory: a tool for tests. Decides nothing, the rulebook does.
"""

import contextlib
import dataclasses
import http.client
import threading
import time
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tools.local.ports import LOOPBACK
from tools.local.s3 import S3Endpoint
from tools.local.s3_fault_rules import Action, Rule, Rulebook, slow_down
from tools.local.s3_pace import Pace

_UPSTREAM_TIMEOUT_S = 60
_PIECE_BYTES = 64 * 1024  # of a body, between two looks at the pace
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_WITHOUT_FORWARDING = {Action.STATUS, Action.DROP_REQUEST, Action.STALL, Action.ERROR_BODY}


class FaultServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 and forwards to the S3 server behind, as far as the rules allow."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, upstream: S3Endpoint, book: Rulebook, pace: Pace) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.book = book
        self.pace = pace
        self.upstream = urlsplit(upstream.url)
        self._stalled = threading.Event()

    def release_stalled(self) -> None:
        """Let go the requests that are stalled now; later ones wait on a new event."""
        stalled, self._stalled = self._stalled, threading.Event()
        stalled.set()

    def stall(self, timeout_s: float | None = None) -> None:
        """Block until released, or until the time is over."""
        self._stalled.wait(timeout_s)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away in the middle is what this proxy is for."""


@dataclasses.dataclass(slots=True)
class _Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        """Keep quiet."""

    def handle_any(self) -> None:
        """Take one request, apply the rules to it, and answer or not."""
        body = self._read_body()
        path = unquote(urlsplit(self.path).path)
        rule = self.server.book.take(self.command, path)
        if rule is None and self.command == "PUT" and not self.server.pace.admit_put():
            rule = slow_down()
        try:
            answer = self._forward(body) if rule is None else self._misbehave(rule, body)
        except (OSError, http.client.HTTPException):
            answer = None  # the server behind is down: so are we
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer, trickle_s=rule.delay_s if rule and rule.action is Action.TRICKLE else 0.0)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = handle_any  # noqa: N815  # http.server looks these up

    def _misbehave(self, rule: Rule, body: bytes) -> _Answer | None:
        """Perform the rule's action; None means that the connection is closed without an answer."""
        if rule.action is not Action.TRICKLE:
            self.server.stall(rule.delay_s)
        if rule.action in _WITHOUT_FORWARDING:
            return self._refuse(rule)
        if rule.action is Action.CORRUPT_REQUEST:
            body = _change_one_byte(body)
        if rule.action is Action.TRUNCATE_REQUEST:
            body = body[: len(body) // 2]
        answer = self._forward(body)
        if rule.action is Action.STALL_ANSWER:
            self.server.stall()
        if rule.action in (Action.DROP_ANSWER, Action.STALL_ANSWER):
            return None
        if rule.action is Action.CUT_ANSWER:
            self._send(answer, cut_at=len(answer.body) // 2)
            return None
        if rule.action is Action.CORRUPT_ANSWER:
            answer.body = _change_one_byte(answer.body)
        return answer

    def _refuse(self, rule: Rule) -> _Answer | None:
        if rule.action is Action.STALL:
            self.server.stall()
        if rule.action in (Action.STALL, Action.DROP_REQUEST):
            return None
        status = 200 if rule.action is Action.ERROR_BODY else rule.status
        document = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{rule.code}</Code><Message>made by the fault proxy</Message></Error>"
        )
        return _Answer(status, [("Content-Type", "application/xml")], document.encode())

    def _forward(self, body: bytes) -> _Answer:
        upstream = self.server.upstream
        connection = http.client.HTTPConnection(
            upstream.hostname or LOOPBACK, upstream.port, timeout=_UPSTREAM_TIMEOUT_S
        )
        with contextlib.closing(connection):
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in _end_to_end(self.headers.items()):
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            headers = _end_to_end(response.getheaders())
            if self.command == "HEAD":
                headers.append(("Content-Length", response.getheader("Content-Length", "0")))
            return _Answer(response.status, headers, response.read())

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self._read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self._read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(chunks)

    def _read(self, size: int) -> bytes:
        pieces = []
        for left in range(size, 0, -_PIECE_BYTES):
            pieces.append(self.rfile.read(min(left, _PIECE_BYTES)))
            self.server.pace.pass_bytes(len(pieces[-1]))
        return b"".join(pieces)

    def _send(self, answer: _Answer, *, trickle_s: float = 0.0, cut_at: int | None = None) -> None:
        has_body = self.command != "HEAD" and answer.status != HTTPStatus.NO_CONTENT
        length = [("Content-Length", str(len(answer.body)))] if has_body else []
        lines = [f"{self.protocol_version} {answer.status} {http.client.responses.get(answer.status, '')}"]
        lines += [f"{name}: {value}" for name, value in answer.headers + length]
        message = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if has_body:
            message += answer.body[:cut_at]
        if not trickle_s:
            self.wfile.write(message)
            return
        for byte in message:
            self.wfile.write(bytes([byte]))
            time.sleep(trickle_s)


def _end_to_end(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


def _change_one_byte(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes(byte ^ 1 for byte in body[middle : middle + 1]) + body[middle + 1 :]
