"""The flush records that a read_committed reader of the fake broker gets; they may be out of reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from service.control.deadline import Deadline
from service.control.flush_history import FlushHistory
from service.errors import HistoryUnknownError
from service.formats.flush_record import decode_flush_record
from service.formats.model import TopicPartition
from tests.fakes.broker import FakeBroker


class FakeFlushRecords:
    """Fulfils `runtime.ports.FlushRecords`; `error` is raised instead, `reads` counts."""

    def __init__(self, broker: FakeBroker, topic: str, group_id: str) -> None:
        self.error: Exception | None = None
        self.reads = 0
        self._broker = broker
        self._topic = topic
        self._group_id = group_id

    def next_offsets(
        self, tps: Iterable[TopicPartition], topic_ids: Mapping[str, str], *, deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Read all of them."""
        del deadline
        self.reads += 1
        if self.error is not None:
            raise self.error
        history = FlushHistory(tps, group_id=self._group_id, topic_ids=topic_ids)
        for message in self._broker.messages(self._topic):
            try:
                history.add(decode_flush_record(message.value or b""))
            except msgspec.DecodeError as error:
                raise HistoryUnknownError(str(error)) from error
        return history.next_offsets
