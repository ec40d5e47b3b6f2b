"""A small HTTP proxy in front of an S3 server that fails as networks and S3 do on bad days.

The Host header is kept, so signatures stay valid.
"""

import dataclasses
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from tools.local.ports import LOOPBACK, find_free_ports
from tools.local.s3 import S3Endpoint
from tools.local.s3_fault_rules import Action, Rule, Rulebook, SeenRequest
from tools.local.s3_fault_server import FaultServer
from tools.local.s3_pace import Pace


class S3FaultProxy:
    """The proxy, served by threads of this process; a context manager.

    Clients use `endpoint`, which has the credentials of the server behind. `pace` holds them to rates.
    """

    def __init__(self, upstream: S3Endpoint) -> None:
        (self.port,) = find_free_ports(1)
        self.endpoint = dataclasses.replace(upstream, url=f"http://{LOOPBACK}:{self.port}")
        self.pace = Pace()
        self._book = Rulebook()
        self._upstream = upstream
        self._server: FaultServer | None = None

    def add(self, *rules: Rule) -> None:
        """Put rules behind those in force; the first that matches a request is applied to it."""
        for rule in rules:
            self._book.add(rule)

    def clear(self) -> None:
        """Forget all rules and release stalled or delayed requests (a delayed one is then forwarded)."""
        self._book.clear()
        if self._server is not None:
            self._server.release_stalled()

    @property
    def done(self) -> Counter[Action]:
        """How often each action was done."""
        return self._book.done

    @property
    def seen(self) -> list[SeenRequest]:
        """All requests so far, in the order of their arrival."""
        return self._book.seen

    def start(self) -> None:
        """Listen; requests are answered when this returns."""
        self._server = FaultServer(self.port, self._upstream, self._book, self.pace)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening and release stalled requests."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.release_stalled()
            self._server = None

    def __enter__(self) -> Self:
        """Start the proxy."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the proxy."""
        self.stop()
