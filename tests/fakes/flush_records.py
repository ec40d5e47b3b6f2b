"""The flush records that a read_committed reader of the fake broker gets; they may be out of reach."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from service.control.deadline import Deadline
from service.control.flush_history import FlushHistory
from service.errors import HistoryUnknownError
from service.formats.flush_record import decode_flush_record
from service.formats.model import TopicPartition
from service.formats.offset_metadata import SourceTopics
from tests.fakes.broker import FakeBroker


class FakeFlushRecords:
    """Fulfils `runtime.ports.FlushRecords`; `error` is raised instead, `budgets_s` are the seconds for each reading."""

    def __init__(self, broker: FakeBroker, topic: str, group_id: str) -> None:
        self.error: Exception | None = None
        self.budgets_s: list[float] = []
        self._broker = broker
        self._topic = topic
        self._group_id = group_id

    @property
    def reads(self) -> int:
        """How often they were read."""
        return len(self.budgets_s)

    def next_offsets(
        self,
        tps: Iterable[TopicPartition],
        topics: SourceTopics,
        *,
        newest_of: Iterable[TopicPartition] = (),
        deadline: Deadline,
    ) -> dict[TopicPartition, int]:
        """Read all of them."""
        self.budgets_s.append(deadline.remaining_s())
        if self.error is not None:
            raise self.error
        history = FlushHistory(tps, newest_of=newest_of, group_id=self._group_id, topics=topics)
        for message in self._broker.messages(self._topic):
            try:
                history.add(decode_flush_record(message.value or b""))
            except msgspec.DecodeError as error:
                raise HistoryUnknownError(str(error)) from error
        return history.next_offsets
