"""One HTTP port: /livez (the loop moves), /readyz (a member of the group that its brokers answer), /metrics, a page."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from log_partitioner.boundary import Clock
from log_partitioner.errors import StopError

CONNECTION_S = 10.0  # without a word on a connection, which has a thread of its own


class Answer(NamedTuple):
    """The answer to a probe: whether all is well, and a text."""

    well: bool
    text: str


class Health:
    """The state that the probes report: written by the loop thread, read by the server's; single assignments only."""

    def __init__(self, clock: Clock, *, live_max_s: float, trouble: Callable[[], str | None] = lambda: None) -> None:
        """Make it; `trouble` says in a sentence what is wrong outside, and is asked by the server's threads."""
        self._clock = clock
        self._trouble = trouble
        self._live_max_s = live_max_s
        self._beat_at_s = clock.now_s()
        self.is_member = False
        self.is_positioned = False
        self.is_draining = False
        self.difference: str | None = None

    def beat(self) -> None:
        """Note that the loop turned."""
        self._beat_at_s = self._clock.now_s()

    def live(self) -> Answer:
        """Return whether the loop has turned recently, and a text; a flush may take its whole budget."""
        age_s = self._clock.now_s() - self._beat_at_s
        return Answer(age_s < self._live_max_s, f"last turn of the loop {age_s:.1f} s ago")

    def ready(self) -> Answer:
        """Return whether the worker takes part, and a text."""
        if self.is_draining:
            return Answer(well=False, text="draining")
        if self.difference is not None:
            return Answer(well=False, text=f"verification: {self.difference}")
        trouble = self._trouble()
        text = "member of the group" if self.is_member else "not a member of the group yet"
        if self.is_member and not self.is_positioned:
            text = "member of the group, start positions are not proven yet"
        well = self.is_member and self.is_positioned and trouble is None
        return Answer(well, text if trouble is None else f"{text}: {trouble}")


class HealthServer:
    """Serves the probes from a thread of its own."""

    def __init__(
        self, host: str, port: int, *, health: Health, exposition: Callable[[], bytes], page: Callable[[], bytes]
    ) -> None:
        """Listen; `start` begins to answer. `page` is what stands at `/`.

        Raises:
            StopError: the port is taken, or this machine does not have the address.
        """
        probes = {"/livez": health.live, "/readyz": health.ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = CONNECTION_S

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._send(200, exposition(), "text/plain; version=0.0.4; charset=utf-8")
                elif path == "/":
                    self._send(200, page(), "text/html; charset=utf-8")
                elif path in probes:
                    answer = probes[path]()
                    self._send(200 if answer.well else 503, f"{answer.text}\n".encode(), "text/plain; charset=utf-8")
                else:
                    self._send(404, b"/ /livez /readyz /metrics\n", "text/plain; charset=utf-8")

            def _send(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
                """Write nothing: a probe every few seconds is not an event."""

        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            where = f"http.host {host} and http.port {port}: {error.strerror or error}"
            raise StopError(
                f"the probes cannot be served on {where}. Give the worker a free port of this machine"
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Write a traceback, unless the client has gone: a probe that timed out is not an event."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
