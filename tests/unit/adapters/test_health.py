"""Probes: live while the loop turns, ready while a member; one port for both and the metrics."""

from __future__ import annotations

import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from log_partitioner.adapters import health
from log_partitioner.adapters.health import Health, HealthServer
from log_partitioner.errors import StopError
from tests.fakes.clock import FakeClock


class Bench:
    """A server on a free port of loopback."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.trouble: str | None = None
        self.health = Health(self.clock, live_max_s=360.0, trouble=lambda: self.trouble)
        self.server = HealthServer(
            "127.0.0.1", 0, health=self.health, exposition=lambda: b"log_partitioner_x 1\n", page=lambda: b"<h1>"
        )
        self.server.start()

    def get(self, path: str) -> tuple[int, str]:
        """Ask."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Give a bench."""
    made = Bench()
    yield made
    made.server.close()


def test_live_while_the_loop_turns(bench: Bench) -> None:
    """A flush may take its whole budget; a loop that stands longer is dead."""
    bench.clock.advance(359.0)
    assert bench.get("/livez")[0] == 200
    bench.clock.advance(2.0)
    status, why = bench.get("/livez")
    assert (status, why) == (503, "last turn of the loop 361.0 s ago\n")
    bench.health.beat()
    assert bench.get("/livez")[0] == 200


def test_ready_while_a_member_and_not_draining(bench: Bench) -> None:
    """A worker that drains is alive, but takes no part any more."""
    assert bench.get("/readyz") == (503, "not a member of the group yet\n")
    bench.health.is_member = True
    assert bench.get("/readyz") == (503, "member of the group, start positions are not proven yet\n")
    bench.health.is_positioned = True
    assert bench.get("/readyz")[0] == 200
    bench.health.is_draining = True
    assert bench.get("/readyz") == (503, "draining\n")
    assert bench.get("/livez")[0] == 200


def test_not_ready_while_no_broker_answers_and_says_which(bench: Bench) -> None:
    """As a member, too; the loop is alive all the same."""
    bench.trouble = "broker b:9092: connection refused, for 5 s"
    assert bench.get("/readyz") == (503, "not a member of the group yet: broker b:9092: connection refused, for 5 s\n")
    bench.health.is_member = bench.health.is_positioned = True
    assert bench.get("/readyz") == (503, "member of the group: broker b:9092: connection refused, for 5 s\n")
    assert bench.get("/livez")[0] == 200
    bench.trouble = None
    assert bench.get("/readyz")[0] == 200


def test_metrics_are_served(bench: Bench) -> None:
    """Under the path and with the type that Prometheus expects."""
    assert bench.get("/metrics") == (200, "log_partitioner_x 1\n")


def test_query_does_not_matter_and_other_paths_are_not_there(bench: Bench) -> None:
    """Some probes add a query."""
    assert bench.get("/livez?verbose")[0] == 200
    assert bench.get("/?again") == (200, "<h1>")
    assert bench.get("/other")[0] == 404


def test_port_that_is_taken_and_address_that_is_not_ours_are_told_with_their_settings(bench: Bench) -> None:
    """One sentence: both settings, the system's word."""
    taken = f"http.host 127.0.0.1 and http.port {bench.server.port}: Address already in use"
    with pytest.raises(StopError, match=taken):
        HealthServer("127.0.0.1", bench.server.port, health=bench.health, exposition=bytes, page=bytes)
    with pytest.raises(StopError, match=r"http.host 192\.0\.2\.1 and http.port 0: Cannot assign requested address"):
        HealthServer("192.0.2.1", 0, health=bench.health, exposition=bytes, page=bytes)


@pytest.mark.parametrize("said", [b"", b"GET /livez HT"], ids=["nothing", "half a request"])
def test_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """It would hold a thread for as long as the worker lives."""
    monkeypatch.setattr(health, "CONNECTION_S", 0.2, raising=False)
    made = Bench()
    with socket.create_connection(("127.0.0.1", made.server.port), timeout=5) as connection:
        connection.sendall(said)
        assert connection.recv(1) == b""
    assert made.get("/livez")[0] == 200
    made.server.close()


def test_client_that_goes_away_before_its_answer_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """A probe that timed out, or read the status alone, is no event; standard error has JSON, a line each."""
    client = socket.socket()
    handlers: list[threading.Thread] = []
    asked = threading.Event()

    def exposition() -> bytes:
        handlers.append(threading.current_thread())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
        client.close()
        asked.set()
        return bytes(1 << 20)

    server = HealthServer("127.0.0.1", 0, health=Health(FakeClock(), live_max_s=1.0), exposition=exposition, page=bytes)
    server.start()
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert asked.wait(timeout=5)
    handlers[0].join(timeout=5)
    server.close()

    assert capfd.readouterr().err == ""
