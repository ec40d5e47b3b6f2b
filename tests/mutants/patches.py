"""Wrong methods, for mutants that are one attribute of the product or of a fake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from log_partitioner.boundary import Poll, StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushCost, FlushReason, FlushWork, Size, StepSeconds
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition, WayPlace
from log_partitioner.input.decode import RecordContent, RecordDecoder
from log_partitioner.partitioning.chain import place_of, root_of
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.refetch import Refetcher
from log_partitioner.runtime.runloop import Runloop
from tests.fakes.consumer import FakeConsumer
from tests.fakes.records import poll_of
from tests.fakes.store import FakeObjectStore
from tests.fakes.worker import DEAD_LETTERS

_decode = RecordDecoder.decode
_put = FakeObjectStore.put
_pop = FakeConsumer._pop
_messages = Flusher._messages
_make_room = Runloop._make_room
_prepare = Controller.prepare
_after = FlushCost.after
EVERY, LOST = 17, 5


def nothing(*_: Any, **__: Any) -> None:
    """Look at nothing."""


# Lost or changed on the way through the worker.


def leaves_one_out(own: RecordDecoder, *given: Any) -> RecordContent:
    """Forget the last entry of a record that has several."""
    decoded = _decode(own, *given)
    return decoded._replace(entries=decoded.entries[:-1]) if len(decoded.entries) > 1 else decoded


def writes_one_twice(own: RecordDecoder, *given: Any) -> RecordContent:
    """Take the last entry of a record that has several twice."""
    decoded = _decode(own, *given)
    return decoded._replace(entries=[*decoded.entries, *decoded.entries[-1:]]) if len(decoded.entries) > 1 else decoded


def overwrites(own: FakeObjectStore, key: str, body: bytes, **more: Any) -> StoredObject:
    """Write other bytes over an object once it is stored."""
    stored = _put(own, key, body, **more)
    if key.endswith(".avro"):
        own._bucket.objects[key] = bytes(len(body))
    return stored


def sends_no_letters(own: Flusher, *arguments: Any) -> Any:
    """Leave dead letters out of the transaction."""
    return (one for one in _messages(own, *arguments) if one.topic != DEAD_LETTERS)


def drops_before_the_tap(own: FakeConsumer, records_max: int) -> list[SourceRecord]:
    """Lose records as a client library might: never the last one, or the lag would tell."""
    ends = {tp: log.records[-1].offset for tp, log in own._broker.logs.items() if log.records}
    return [one for one in _pop(own, records_max) if one.offset % EVERY != LOST or one.offset == ends[one.tp]]


def drops_in_the_library(consume: Callable[..., Poll]) -> Callable[..., Poll]:
    """Return the same for the adapter over the real client library."""

    def consume_less(own: Any, **how: Any) -> Poll:
        poll = consume(own, **how)
        return poll_of([poll[place] for place, offset in enumerate(poll.offsets) if offset % EVERY != LOST])

    return consume_less


def by_the_root_alone(record: SourceRecord) -> WayPlace | None:
    """Take the first link for the way, without its republishers and the topics between."""
    place, root = place_of(record), root_of(record)
    return None if place is None or root is None else WayPlace(f"{root.topic}-{root.partition}", (root.offset,))


# Liveness.


def shrinks_nothing(size_max: Size | None, _discarded: Size) -> Size | None:
    """Leave the limit where it was."""
    return size_max


def learns_from_commits_alone(cost: FlushCost, work: FlushWork, seconds: StepSeconds, done: StepSeconds) -> FlushCost:
    """Learn nothing if a step was cut short."""
    return cost if min(done) < 1 else _after(cost, work, seconds, done)


def goes_on_behind_damage(own: Refetcher, *, flush: Callable[[], None], deadline: Deadline) -> None:
    """Go on at the next offset that can be read, and say nothing of those before it."""
    del flush
    tried: dict[TopicPartition, int] = own.__dict__.setdefault("tried", {})
    for tp in own.ports.consumer.failures().keys() & own.recorder.ledgers.keys():
        tried[tp] = 1 + max(own.recorder.ledgers[tp].next_offset, tried.get(tp, 0))
        own.ports.consumer.seek(tp, CommittedOffset(tried[tp]), deadline=deadline)


def takes_error_events_for_nothing(_own: Any, _error: Any, _message: Any) -> None:
    """Judge no error event of the client library."""


# Order of effects and start positions.


def flush_on_lost(controller: Controller, tps: frozenset[TopicPartition]) -> None:
    """Treat lost like revoked."""
    with controller._in_callback():
        controller._flush_open(FlushReason.REVOKED)
        controller._release(tps & controller.state.owned, is_lost=False)


def record_past_a_failed_flush(loop: Runloop, record: SourceRecord) -> bool:
    """Take the record that did not fit for the first of the next batch, whatever became of the flush before it."""
    _make_room(loop, record)
    return True


def settle_before_init(controller: Controller) -> None:
    """Ask for the committed offsets before the last transaction is ended."""
    tps = controller.state.to_seek
    for tp, start in controller.ports.consumer.committed(tps, deadline=controller.deadline).items():
        controller.recorder.start(tp, start or CommittedOffset(0), is_new=start is None)
        controller.ports.consumer.seek(tp, start or CommittedOffset(0), deadline=controller.deadline)
    controller._become(controller.state.sought(tps))
    _prepare(controller)
