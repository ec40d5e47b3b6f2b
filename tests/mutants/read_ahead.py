"""A layer over the client library that hands over what is asked for and keeps the rest, and its published bugs.

zio-kafka had such a layer: a stream per TopicPartition, records that no stream had asked for in a buffer, and a mode
that ends all streams at each rebalance. The service over it lost data for months: D. Vigovszky, "ZIO Kafka with
transactions - a debugging story", https://blog.vigoo.dev/posts/zio-kafka-debugging-story/, zio-kafka #427, #469, #473,
#500. Here it is a mixin over any consumer, so that it stands in the same place: under the worker.
"""

from __future__ import annotations

from typing import Any

from log_partitioner.boundary import Poll, RebalanceListener
from log_partitioner.control.deadline import Deadline
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from tests.fakes.records import poll_of

TopicPartitions = frozenset[TopicPartition]


class HearingListener:
    """Passes callbacks on, and lets the layer hear of them."""

    def __init__(self, listener: RebalanceListener, layer: ReadAhead) -> None:
        self._listener = listener
        self._layer = layer

    def on_assigned(self, tps: TopicPartitions) -> None:
        """Pass on."""
        self._listener.on_assigned(tps)
        self._layer.heard.add("assigned")
        self._layer.begins_anew(tps)

    def on_revoked(self, tps: TopicPartitions) -> None:
        """Pass on."""
        self._listener.on_revoked(tps)
        self._layer.heard.add("revoked")
        self._layer.begins_anew(tps)

    def on_lost(self, tps: TopicPartitions) -> None:
        """Pass on."""
        self._listener.on_lost(tps)
        self._layer.heard.add("revoked")
        self._layer.begins_anew(tps)


class ReadAhead:
    """Hands over half of the TopicPartitions in each turn; records of the others wait in a buffer.

    If a TopicPartition is assigned, revoked or sought, its records come again, so they leave the buffer. None is lost.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heard: set[str] = set()
        self._buffer: list[SourceRecord] = []
        self._is_held = False
        self._turns = 0

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""
        super().subscribe(HearingListener(listener, self))  # type: ignore[misc]

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records, and hand over those that are asked for, the older ones first."""
        self.heard.clear()
        self._turns += 1
        poll = super().consume(records_max=records_max, timeout_s=timeout_s)  # type: ignore[misc]
        polled = [poll[place] for place in range(len(poll))]
        if self.heard:
            polled = self.after_rebalance(polled)
        records = self._buffer + self.after_poll(polled)
        handed = [] if self._is_held else [one for one in records if self.is_asked_for(one.tp)]
        self._buffer = [one for one in records if self._is_held or not self.is_asked_for(one.tp)]
        return poll_of(handed)

    def is_asked_for(self, tp: TopicPartition) -> bool:
        """Return whether the worker wants records of it in this turn."""
        return (tp.partition + self._turns) % 2 == 0

    def begins_anew(self, tps: TopicPartitions) -> None:
        """Drop what comes again."""
        self._buffer = [one for one in self._buffer if one.tp not in tps]

    def after_rebalance(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Return what is kept of a poll in which the group was balanced anew."""
        return polled

    def after_poll(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Return what is kept of any poll."""
        return polled

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset."""
        super().seek(tp, start, deadline=deadline)  # type: ignore[misc]
        self.begins_anew(frozenset({tp}))

    def pause(self) -> None:
        """Hand over nothing."""
        super().pause()  # type: ignore[misc]
        self._is_held = True

    def resume(self) -> None:
        """Hand over again."""
        super().resume()  # type: ignore[misc]
        self._is_held = False


class DropsItsBuffer(ReadAhead):
    """Ends all streams at a rebalance, and with them what waits for those that stay (#469; attempts 1 and 2)."""

    def begins_anew(self, tps: TopicPartitions) -> None:
        """Drop everything at a callback."""
        self._buffer = [] if self.heard else [one for one in self._buffer if one.tp not in tps]


class KeepsNothingUnasked(ReadAhead):
    """Forgets to put into the buffer what the poll of a rebalance returned unasked (attempt 3)."""

    def after_rebalance(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Keep what is asked for."""
        return [one for one in polled if self.is_asked_for(one.tp)]


class AnswersEndedStreams(ReadAhead):
    """Answers requests of streams that the rebalance has ended with what its poll returned (attempt 4)."""

    def after_rebalance(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Keep what is not asked for."""
        return [one for one in polled if not self.is_asked_for(one.tp)]


class ExpectsBothCallbacks(ReadAhead):
    """Takes a rebalance for one only if revoke and assignment come in the same poll (attempt 5)."""

    def after_rebalance(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Keep everything if both came; else answer ended streams."""
        if self.heard == {"revoked", "assigned"}:
            return polled
        return [one for one in polled if not self.is_asked_for(one.tp)]


class AnswersLateRequests(ReadAhead):
    """Between revoke and assignment ended streams ask once more, and get the first records after it (attempt 6)."""

    _is_between = False
    _has_requests = False

    def after_rebalance(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Note what came without what."""
        if "assigned" in self.heard:
            self._has_requests, self._is_between = self._is_between, False
        else:
            self._is_between = True
        return polled

    def after_poll(self, polled: list[SourceRecord]) -> list[SourceRecord]:
        """Answer the requests of before, once."""
        if not polled or not self._has_requests:
            return polled
        self._has_requests = False
        return [one for one in polled if not self.is_asked_for(one.tp)]


class KeepsWhatIsRevoked(ReadAhead):
    """Keeps records of TopicPartitions that were given back, and hands them over when those come again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owned: TopicPartitions = frozenset()

    def begins_anew(self, tps: TopicPartitions) -> None:
        """Know what is owned, and keep everything."""
        if "assigned" in self.heard:
            self._owned |= tps
        elif "revoked" in self.heard:
            self._owned -= tps

    def is_asked_for(self, tp: TopicPartition) -> bool:
        """Return whether it is owned, and wanted."""
        return tp in self._owned and super().is_asked_for(tp)
