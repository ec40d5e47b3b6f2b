"""A TCP proxy in front of one Kafka broker, with the faults of a network.

Latency, refusal, cut, hold; and those that know Kafka's framing: cut at a given kind of request, before the
broker sees it or after it has acted and before the client hears of it (an unknown commit outcome); hold a given
request, and let it go on its way later, come late after its connection is gone, or be answered by the proxy.
"""

import contextlib
import enum
import socket
import struct
import threading
import time
from dataclasses import dataclass

from tools.local.ports import LOOPBACK

# Kafka's API keys (protocol guide); those that tests most want to lose.
API_PRODUCE = 0
API_HEARTBEAT = 12
API_END_TXN = 26
API_TXN_OFFSET_COMMIT = 28

# A frame begins with the length of what follows the length. Forwarding whole frames makes every cut fall
# between two of them.
_LENGTH_BYTES = 4
_CORRELATION_BYTES = 4
_REQUEST_HEAD = struct.Struct(">ihhi")  # length, API key, API version, correlation id
_ANSWER_HEAD = struct.Struct(">ii")  # length, correlation id
_CONNECT_TIMEOUT_S = 5
_ANSWER_TIMEOUT_S = 30
_COMES_TIMEOUT_S = 60


class CutMoment(enum.Enum):
    """When the connection is cut, seen from the request that was waited for."""

    BEFORE_REQUEST = "the broker never sees the request"
    BEFORE_ANSWER = "the broker acts, the client never hears of it"


class HeldRequest:
    """A request that the proxy keeps from the broker, and all that follows it on its connection."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._has_come = threading.Event()
        self._may_go = threading.Event()
        self._is_answered = False
        self._frame = b""
        self._link: _Link | None = None

    def wait(self, timeout_s: float = _COMES_TIMEOUT_S) -> None:
        """Wait until the request has come.

        Raises:
            TimeoutError: none of its kind has.
        """
        if not self._has_come.wait(timeout_s):
            raise TimeoutError(f"no such request within {timeout_s:.0f} s")

    def release(self) -> None:
        """Let it pass to the broker on its connection, with everything behind it."""
        self._may_go.set()

    def cut(self) -> None:
        """Wait until it has come, and reset its connection; the broker sees it no more unless it is delivered."""
        self.wait()
        if self._link is not None:
            self._link.reset()
        self._may_go.set()

    def answer(self, body: bytes) -> None:
        """Answer it in the broker's place, once it has come; the broker does not see it, and what follows it passes."""
        self.wait()
        correlation_id = self._frame[_REQUEST_HEAD.size - _CORRELATION_BYTES : _REQUEST_HEAD.size]
        if self._link is not None:
            self._link.client.sendall(
                (len(correlation_id + body)).to_bytes(_LENGTH_BYTES, "big") + correlation_id + body
            )
        self._is_answered = True
        self._may_go.set()

    def deliver(self) -> bytes:
        """Bring it to the broker after its connection was cut, as a slow network does; return the answer's body."""
        with socket.create_connection((LOOPBACK, self._upstream_port), timeout=_ANSWER_TIMEOUT_S) as late:
            late.sendall(self._frame)
            with late.makefile("rb") as answers:
                length, _ = _ANSWER_HEAD.unpack(answers.read(_ANSWER_HEAD.size))
                return answers.read(length + _LENGTH_BYTES - _ANSWER_HEAD.size)

    def keep(self, frame: bytes, link: "_Link") -> bool:
        """Keep a request until it may go or its connection is cut; blocks until then. Returns whether it is to go."""
        self._frame, self._link = frame, link
        self._has_come.set()
        self._may_go.wait()
        return not self._is_answered


class TcpProxy:
    """Forwards 127.0.0.1:port to 127.0.0.1:upstream_port; all methods may be called from any thread."""

    def __init__(self, *, upstream_port: int, port: int) -> None:
        self.port = port
        self.latency_s = 0.0
        """Delay of everything sent to the broker and of everything sent back, each."""
        self._upstream_port = upstream_port
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._links: set[_Link] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._cuts: list[tuple[int, CutMoment, bool]] = []
        self._holds: list[tuple[int, HeldRequest]] = []
        self._held: list[HeldRequest] = []
        self._lost: set[bytes] = set()
        self.cuts_done = 0
        """How many of the cuts asked for by cut_at() have begun."""

    def start(self) -> None:
        """Accept connections."""
        self.accept()

    def stop(self) -> None:
        """Refuse new connections and cut the existing ones."""
        self.refuse()
        self.release()
        self.cut()

    def heal(self) -> None:
        """Undo all faults: no latency, nothing held, new connections accepted, no cut waiting."""
        self.latency_s = 0.0
        with self._lock:
            self._cuts.clear()
            self._holds.clear()
        self.release()
        self.accept()

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED); existing ones go on."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            # shutdown() wakes the thread that waits in accept(); close() alone would not.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def accept(self) -> None:
        """Accept new connections again; does nothing if it does already."""
        with self._lock:
            if self._listener is None:
                self._listener = socket.create_server((LOOPBACK, self.port))
                threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Reset all existing connections; clients may connect again at once."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()

    def hold(self) -> None:
        """Forward nothing any more, but keep connections open and accept new ones: a silent network."""
        self._flowing.clear()

    def release(self) -> None:
        """Forward again, beginning with the bytes held back."""
        self._flowing.set()
        with self._lock:
            held, self._held = self._held, []
        for one in held:
            one.release()

    def hold_at(self, api_key: int) -> HeldRequest:
        """Hold the next request of this kind, with all that follows on its connection; other connections go on.

        Each call holds one. It is released by the request's own methods, by `release` and by `heal`.
        """
        with self._lock:
            held = HeldRequest(self._upstream_port)
            self._holds.append((api_key, held))
            self._held.append(held)
            return held

    def cut_at(self, api_key: int, moment: CutMoment, *, then_refuse: bool = False) -> None:
        """Cut the connection on which the next request of this kind comes; each call cuts once.

        With `then_refuse` new connections are refused from that very moment on, and all others are cut: the request
        cannot be sent again. Nor can it after `heal`, if the broker was not to see it: a client may be at it still.
        """
        with self._lock:
            self._cuts.append((api_key, moment, then_refuse))

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # refuse() closed the listener
            try:
                broker = socket.create_connection((LOOPBACK, self._upstream_port), timeout=_CONNECT_TIMEOUT_S)
            except OSError:
                _reset(client)
                continue
            broker.settimeout(None)
            for connection in (client, broker):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, broker)
            with self._lock:
                is_refused = self._listener is not listener
                if not is_refused:
                    self._links.add(link)
            if is_refused:  # while we connected
                link.reset()
                return
            for pump in (self._pump_requests, self._pump_answers):
                threading.Thread(target=pump, args=(link,), daemon=True).start()

    def _pump_requests(self, link: "_Link") -> None:
        with contextlib.suppress(OSError), link.client.makefile("rb") as requests:
            while head := requests.read(_REQUEST_HEAD.size):
                length, api_key, _, correlation_id = _REQUEST_HEAD.unpack(head)
                body = requests.read(length + _LENGTH_BYTES - _REQUEST_HEAD.size)
                moment, link.is_last = self._take_cut(api_key) or (None, link.is_last)
                if moment is CutMoment.BEFORE_REQUEST and link.is_last:
                    self._lost.add(body)
                if moment is CutMoment.BEFORE_REQUEST or body in self._lost:
                    break
                if moment is CutMoment.BEFORE_ANSWER:
                    # Not at the first answer that comes: it may belong to an earlier request on this
                    # connection, and a reset then would make the broker drop ours unread.
                    link.unanswered = correlation_id
                held = self._take_hold(api_key)
                if held is not None and not held.keep(head + body, link):
                    continue
                self._pass_on()
                link.broker.sendall(head + body)
        self._end(link)

    def _pump_answers(self, link: "_Link") -> None:
        with contextlib.suppress(OSError), link.broker.makefile("rb") as answers:
            while head := answers.read(_ANSWER_HEAD.size):
                length, correlation_id = _ANSWER_HEAD.unpack(head)
                frame = head + answers.read(length + _LENGTH_BYTES - _ANSWER_HEAD.size)
                if correlation_id == link.unanswered:
                    break
                self._pass_on()
                link.client.sendall(frame)
        self._end(link)

    def _pass_on(self) -> None:
        """Wait as long as the network is slow or silent."""
        if self.latency_s:
            time.sleep(self.latency_s)
        self._flowing.wait()

    def _take_cut(self, api_key: int) -> tuple[CutMoment, bool] | None:
        with self._lock:
            for cut in self._cuts:
                if cut[0] == api_key:
                    self._cuts.remove(cut)
                    self.cuts_done += 1
                    return cut[1:]
        return None

    def _take_hold(self, api_key: int) -> HeldRequest | None:
        with self._lock:
            for hold in self._holds:
                if hold[0] == api_key:
                    self._holds.remove(hold)
                    return hold[1]
        return None

    def _end(self, link: "_Link") -> None:
        if link.is_last:
            link.is_last = False
            self.refuse()
            self.cut()
        with self._lock:
            self._links.discard(link)
        link.reset()


@dataclass(eq=False, slots=True)
class _Link:
    """One client's connection and its twin to the broker."""

    client: socket.socket
    broker: socket.socket
    unanswered: int | None = None
    """Correlation id of the request whose answer must not reach the client."""
    is_last: bool = False
    """Whether no connection is accepted when this one is cut."""

    def reset(self) -> None:
        _reset(self.client)
        _reset(self.broker)


def _reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN, and wake a thread that waits in recv()."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
