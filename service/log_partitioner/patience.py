"""Bounds the wait for an answer once the process is asked to leave; for calls that nothing can interrupt."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from log_partitioner.errors import LeavingError

T = TypeVar("T")

GRACE_S = 1.0  # a healthy broker or store answers within it, so that the worker finishes its work and leaves
_LEAVE_S, _LEAVE_UNANSWERED_S, _CLOSE_S = 1.5, 0.5, 10.0
LEAVE_S_MAX = _CLOSE_S + 2.0  # longer than any patience for leaving
_LOOK_S = 0.1
_ALONE_S = 1.0


class Patience:
    """Ends some seconds after it has seen that the process is asked to leave; used by the loop thread only."""

    def __init__(self, is_leaving: Callable[[], bool] = lambda: False, *, grace_s: float = GRACE_S) -> None:
        self.is_leaving = is_leaving
        self._grace_s = grace_s
        self._since_s: float | None = None

    def has_ended(self) -> bool:
        """Return whether to wait no longer; the waiting loop asks again and again."""
        if not self.is_leaving():
            return False
        if self._since_s is None:
            self._since_s = time.monotonic()
        return time.monotonic() - self._since_s >= self._grace_s

    def to_leave(self) -> Patience:
        """Return the patience for leaving itself: less if nobody has answered, more if nobody asked to leave."""
        grace_s = _LEAVE_S if self.is_leaving() else _CLOSE_S
        return Patience(lambda: True, grace_s=_LEAVE_UNANSWERED_S if self.has_ended() else grace_s)

    def require(self) -> None:
        """Raise LeavingError if it has ended."""
        if self.has_ended():
            raise LeavingError("asked to leave while it waited for an answer")

    def ask(self, call: Callable[[], T]) -> T:
        """Return the result of a call, or raise its exception; blocks until then.

        The call runs in a thread of its own while this one stands still: no signal reaches C code, and its time-outs
        are too short for a slow broker or too long for a stop.

        Raises:
            LeavingError: there is no answer, and patience has ended; the call is left to itself.
        """
        outcome: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

        def run() -> None:
            try:
                outcome.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised again by whoever has asked
                outcome.put((None, error))

        Thread(target=run, name="ask", daemon=True).start()
        while True:
            try:
                value, error = outcome.get(timeout=_LOOK_S)
            except Empty:
                self.require()
                continue
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame: a cycle would keep what the call works on, as a client
            return value  # type: ignore[return-value]  # there is no error, so it is what the call has returned


def close_or_leave(close: Callable[[], None]) -> None:
    """Close a client whose close may never return, as after a broken batch (KAFKA_FACTS L8).

    Blocks for about a second at most; then it is left to itself.
    """
    with suppress(LeavingError):
        Patience(lambda: True, grace_s=_ALONE_S).ask(close)


@contextmanager
def end_process_after(seconds: float) -> Iterator[None]:
    """End the process, with exit code 1 and all stacks on standard error, if the block takes longer than that.

    For calls into C that never return and hold the interpreter's lock meanwhile: no thread of ours runs then, and no
    signal is seen (KAFKA_FACTS L9). The thread that ends the process needs no such lock.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
