"""Records that flow while a test does its worst.

Plain entries of a few users in one hour, so that a flush has few files; every tenth record holds three entries, one
of them without a user, so that every transaction has dead letters, too.
"""

import json
import threading
from collections.abc import Iterator
from typing import Self

from tests.integration.harness import Deployment
from tests.stack.kafka_helper import ToProduce

USERS = 4
ROUND_RECORDS = 40
ROUND_S = 0.1
_JOIN_S = 60


def some_records(count: int, *, partitions: int, first: int = 0) -> Iterator[ToProduce]:
    """Yield records evenly over the partitions; `first` is the number of the first one."""
    for number in range(first, first + count):
        entry = {"user": f"canary-user-{number % USERS}", "time": "2026-03-04T05:06:07Z", "n": number}
        several = [entry, {"n": number, "no": "user"}, {**entry, "third": True}]
        value = json.dumps(several if number % 10 == 9 else entry).encode()
        yield ToProduce(value=value, partition=number % partitions)


class Flow:
    """Writes to the source topic from a thread; a context manager that has stopped on leaving."""

    def __init__(self, deployment: Deployment, *, partitions: int = 6) -> None:
        self._deployment = deployment
        self._partitions = partitions
        self._written: list[tuple[int, int]] = []
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="flow")

    @property
    def written(self) -> list[tuple[int, int]]:
        """(partition, offset) of everything that is written by now."""
        return list(self._written)

    def _write(self) -> None:
        try:
            while not self._stop.wait(ROUND_S):
                records = some_records(ROUND_RECORDS, partitions=self._partitions, first=len(self._written))
                self._written += self._deployment.kafka.produce(self._deployment.source, records)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            self._error = error

    def stop(self) -> list[tuple[int, int]]:
        """Write nothing more; gives all that was written."""
        self._stop.set()
        self._thread.join(_JOIN_S)
        if self._error is not None:
            raise self._error
        return self.written

    def __enter__(self) -> Self:
        """Begin to write."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, without looking at errors."""
        self._stop.set()
        self._thread.join(_JOIN_S)
