"""The surroundings of judging flushes: settings and second opinion, the store, findings; it outlives each flush."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.object_schema import ObjectSchemas

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.model import SourceRecord, TopicPartition
    from log_partitioner.proof.audit.findings import Findings
    from log_partitioner.proof.audit.ranges import Committed
    from log_partitioner.proof.audit.store import OpenObjects


class Context:
    """The surroundings of flushes.

    `open_objects` returns the objects of addresses in their order, `read_again` a record of the source. Below `lows`
    the source is gone. `are_whole`: references and dead letters still have their beginning. `require_time` is called
    for each row, and may raise.
    """

    def __init__(
        self,
        settings: Settings,
        findings: Findings,
        *,
        open_objects: OpenObjects,
        read_again: Callable[[TopicPartition, int], SourceRecord | None],
        committed: Committed,
        lows: Mapping[TopicPartition, int],
        are_whole: bool = True,
        require_time: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.findings = findings
        self.open_objects = open_objects
        self.committed = committed
        self.are_whole = are_whole
        self.require_time = require_time
        self.judge = Judge(settings)
        self.schemas = ObjectSchemas(self.judge.parse)
        self.dead_letters: Counter[str] = Counter()
        """Entries by the reason of their dead letter."""
        self._read_again = read_again
        self._lows = lows

    def is_gone(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether the source has lost an offset that flush records cover; notes a doubt if so."""
        return offset < self._lows.get(tp, 0)

    def explain(self, tp: TopicPartition, offset: int, index: int) -> Mapping[Kind, object] | None:
        """Read an entry of the source again: the `_meta` and the values that its row must have."""
        record = self._read_again(tp, offset)
        entry = None if record is None else self.judge.judge(record).entries[index].deliverable
        if record is None or entry is None:
            return None
        meta = {"event_time": entry.event_time_us, "id": entry.id, "timestamp": entry.timestamp_ms, "root": entry.root}
        return {Kind.META: meta, Kind.ALTERED: self.judge.values(record)[index]}
