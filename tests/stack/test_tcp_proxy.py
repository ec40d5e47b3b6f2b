"""The TCP proxy's faults, seen from a client of a server that speaks in Kafka's frames."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tools.local.ports import LOOPBACK, find_free_ports
from tools.local.tcp_proxy import API_END_TXN, API_PRODUCE, CutMoment, TcpProxy


class EchoBroker:
    """Answers every frame with its correlation id, and notes which requests it has seen."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Accept nothing more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while head := connection.recv(12, socket.MSG_WAITALL):
                    length, api_key, _, correlation_id = struct.unpack(">ihhi", head)
                    connection.recv(length - 8, socket.MSG_WAITALL)
                    self.seen.append(api_key)
                    connection.sendall(struct.pack(">ii", 4, correlation_id))
            except OSError:
                return


class FrameClient:
    """Sends requests and reads answers on one connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=5)

    def send(self, api_key: int, correlation_id: int, body: bytes = b"a transaction") -> None:
        """Send one request without waiting."""
        self._socket.sendall(struct.pack(">ihhi", 8 + len(body), api_key, 0, correlation_id) + body)

    def receive(self, timeout_s: float = 5) -> int | None:
        """Return the correlation id of the next answer, None if the connection is gone."""
        self._socket.settimeout(timeout_s)
        try:
            answer = self._socket.recv(8, socket.MSG_WAITALL)
        except ConnectionResetError:
            return None
        return struct.unpack(">ii", answer)[1] if answer else None

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@pytest.fixture
def broker() -> Iterator[EchoBroker]:
    broker = EchoBroker()
    yield broker
    broker.close()


@pytest.fixture
def proxy(broker: EchoBroker) -> Iterator[TcpProxy]:
    proxy = TcpProxy(upstream_port=broker.port, port=find_free_ports(1)[0])
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.fixture
def client(proxy: TcpProxy) -> Iterator[FrameClient]:
    client = FrameClient(proxy.port)
    client.send(API_PRODUCE, 1)
    assert client.receive() == 1
    yield client
    client.close()


def test_latency_delays_request_and_answer(proxy: TcpProxy, client: FrameClient) -> None:
    proxy.latency_s = 0.1
    started = time.monotonic()
    client.send(API_PRODUCE, 2)

    assert client.receive() == 2
    assert time.monotonic() - started >= 0.2


def test_refuse_keeps_old_connections_and_lets_no_new_one_in(proxy: TcpProxy, client: FrameClient) -> None:
    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        FrameClient(proxy.port)
    client.send(API_PRODUCE, 2)
    assert client.receive() == 2

    proxy.accept()
    FrameClient(proxy.port).close()


def test_cut_resets_old_connections_and_lets_new_ones_in(proxy: TcpProxy, client: FrameClient) -> None:
    proxy.cut()

    assert client.receive() is None
    again = FrameClient(proxy.port)
    again.send(API_PRODUCE, 2)
    assert again.receive() == 2
    again.close()


def test_hold_is_silent_until_released(proxy: TcpProxy, client: FrameClient, broker: EchoBroker) -> None:
    proxy.hold()
    client.send(API_END_TXN, 2)
    with pytest.raises(TimeoutError):
        client.receive(0.2)
    assert broker.seen == [API_PRODUCE]

    proxy.release()
    assert client.receive() == 2


def test_request_that_never_comes_is_not_waited_for_without_end(proxy: TcpProxy, client: FrameClient) -> None:
    held = proxy.hold_at(API_END_TXN)
    client.send(API_PRODUCE, 2)
    assert client.receive() == 2

    with pytest.raises(TimeoutError, match="no such request"):
        held.wait(0.1)


def test_heal_undoes_everything(proxy: TcpProxy, client: FrameClient) -> None:
    proxy.refuse()
    proxy.hold()
    proxy.latency_s = 60
    proxy.cut_at(API_END_TXN, CutMoment.BEFORE_REQUEST)
    held = proxy.hold_at(API_END_TXN)

    proxy.heal()

    client.send(API_END_TXN, 2)
    assert client.receive() == 2
    FrameClient(proxy.port).close()
    with pytest.raises(TimeoutError):
        held.wait(0)
