"""The flush records that a read_committed reader of the fake broker gets; they may be out of reach."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import FlushedOffsets, FlushHistory, OurGroup
from log_partitioner.errors import HistoryUnknownError
from log_partitioner.formats.flush_record import decode_flushes
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from tests.fakes.broker import FakeBroker


class FakeFlushRecords:
    """Fulfils `boundary.FlushRecords`; `error` is raised instead.

    `budgets_s` are the seconds for each reading, `looks` counts those that ask for foreign groups alone.
    """

    def __init__(self, broker: FakeBroker, topic: str, group: OurGroup) -> None:
        self.error: Exception | None = None
        self.budgets_s: list[float] = []
        self.looks = 0
        self._broker = broker
        self._topic = topic
        self.group = group

    @property
    def reads(self) -> int:
        """How often they were read."""
        return len(self.budgets_s)

    def read(
        self,
        tps: Iterable[TopicPartition],
        topics: SourceTopics,
        *,
        newest_of: Iterable[TopicPartition] = (),
        deadline: Deadline,
    ) -> FlushedOffsets:
        """Read all of them."""
        wanted, newest = list(tps), list(newest_of)
        if wanted or newest:
            self.budgets_s.append(deadline.remaining_s())
        else:
            self.looks += 1
        if self.error is not None:
            raise self.error
        history = FlushHistory(wanted, newest_of=newest, group=self.group, topics=topics)
        for message in self._broker.messages(self._topic):
            try:
                history.add(decode_flushes(message.value or b""))
            except msgspec.DecodeError as error:
                raise HistoryUnknownError(str(error)) from error
        return history.flushed
