"""Consumer and committer as verification mode has them: what passes is noted, and passed on as it is.

They stand where records come in and messages go out, so that whatever the worker does in between is looked at from
outside. Without verification mode there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from service.batch.messages import Sender
from service.boundary import Membership, Message, Poll, RebalanceListener
from service.control.deadline import Deadline
from service.errors import CommitUnknownError
from service.formats.dead_letter import DeadLetterHeaders, parse_headers
from service.formats.model import CommittedOffset, TopicPartition
from service.runtime.ports import Committer, Consumer
from service.runtime.verification import Sent, Verification


class TappedConsumer:
    """Fulfils `runtime.ports.Consumer` by another one, whose records are noted as it hands them over."""

    def __init__(self, consumer: Consumer, verification: Verification) -> None:
        self._consumer = consumer
        self._verification = verification
        # Passed on as they are.
        self.failures = consumer.failures
        self.committed = consumer.committed
        self.offsets_at = consumer.offsets_at
        self.partitions_of = consumer.partitions_of
        self.topic_ids = consumer.topic_ids
        self.pause, self.resume = consumer.pause, consumer.resume
        self.membership = consumer.membership
        self.ends, self.held_up = consumer.ends, consumer.held_up
        self.close = consumer.close

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group."""
        self._consumer.subscribe(_TappedListener(listener, self._verification))

    def consume(self, *, records_max: int, timeout_s: float) -> Poll:
        """Take records, and note them before anybody decides about them."""
        poll = self._consumer.consume(records_max=records_max, timeout_s=timeout_s)
        self._verification.consumed(poll)
        return poll

    def seek(self, tp: TopicPartition, start: CommittedOffset, *, deadline: Deadline) -> None:
        """Go to an offset: what stands there comes again."""
        self._consumer.seek(tp, start, deadline=deadline)
        self._verification.sought(tp, start.offset)

    def fetch_again(self, tp: TopicPartition, start: CommittedOffset) -> None:
        """Fetch one that has failed from this offset on: what stands there comes again."""
        self._consumer.fetch_again(tp, start)
        self._verification.fetched_again(tp, start.offset)


class _TappedListener:
    """What is owned, as the client library says it."""

    def __init__(self, listener: RebalanceListener, verification: Verification) -> None:
        self._listener = listener
        self._verification = verification

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        self._listener.on_assigned(tps)

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        self._listener.on_revoked(tps)
        self._verification.given_back(tps)

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        self._listener.on_lost(tps)
        self._verification.given_back(tps)


@dataclass(slots=True)
class _Passing:
    """What has passed of one transaction."""

    references: list[bytes] = field(default_factory=list)
    letters: list[DeadLetterHeaders] = field(default_factory=list)


class TappedCommitter:
    """Fulfils `runtime.ports.Committer` by another one, and notes what each transaction has made visible."""

    def __init__(self, committer: Committer, verification: Verification, sender: Sender) -> None:
        self._committer = committer
        self._verification = verification
        self._sender = sender
        self.prepare, self.close = committer.prepare, committer.close

    @property
    def is_ready(self) -> bool:
        """Whether a producer is ready that no transaction was begun on."""
        return self._committer.is_ready

    def commit(
        self,
        messages: Iterable[Message],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        *,
        deadline: Deadline,
    ) -> None:
        """Run one transaction; what became of one that fails otherwise is known: nothing."""
        passing, next_offsets = _Passing(), {tp: one.offset for tp, one in offsets.items()}
        try:
            self._committer.commit(self._pass(messages, passing), offsets, membership, deadline=deadline)
        except CommitUnknownError:
            self._verification.unknown(Sent(next_offsets, passing.references, passing.letters))
            raise
        self._verification.committed(Sent(next_offsets, passing.references, passing.letters))

    def _pass(self, messages: Iterable[Message], passing: _Passing) -> Iterator[Message]:
        for message in messages:
            if message.topic == self._sender.references_topic:
                passing.references.append(message.value or b"")
            elif message.topic == self._sender.dead_letters_topic:
                passing.letters.append(parse_headers(message.headers))
            yield message
