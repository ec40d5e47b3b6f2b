"""Which membership a batch may be committed as: our own proof that nobody else had our TopicPartitions meanwhile.

The broker lets a member commit offsets that it does not own; only member id and generation tell that it was away.
With the classic protocol a member that was put out comes back under another id. With KIP-848 it comes back under its
own, with a later epoch, which moves without a callback at other times too. That the client library does not join
again before it has called `on_lost` is its order of events, not ours (ADR 4). So there:

    1. a batch is committed with the epoch that it was opened in, never with a later one: a broker refuses it where the
       member was away meanwhile; since Kafka 4.3 it takes it where only the epoch has moved (KAFKA_FACTS R12);
    2. it is opened in an epoch only once the committed offsets, asked for in this epoch, are those that it begins at.
"""

from __future__ import annotations

import structlog

from service.boundary import Membership
from service.control.deadline import Deadline
from service.errors import DiscardError
from service.formats.log_events import CommittedByOthers, tell
from service.runtime.ports import Consumer
from service.runtime.recorder import Recorder
from service.runtime.start_positions import StartPositions


class MemberProof:
    """Used by the loop thread, outside callbacks."""

    def __init__(self, consumer: Consumer, recorder: Recorder, start_positions: StartPositions) -> None:
        self._consumer = consumer
        self._recorder = recorder
        self._start_positions = start_positions
        self._proven = 0
        self._log = structlog.get_logger("member_proof")

    def membership(self, *, deadline: Deadline) -> Membership | None:
        """Return the membership of now to open a batch with; None if what is owned must be rewound first.

        Raises:
            StopError: the broker does not answer, for the second time.
        """
        now = self._consumer.membership()
        if not now.outlives_fencing or now.generation == self._proven:
            return now
        positions = self._recorder.positions
        try:
            committed = self._start_positions.committed(positions, deadline=deadline)
        except DiscardError as error:
            self._log.warning("not_settled", message=str(error))
            return None
        where = {
            str(tp): (one.first_offset, at)
            for tp, one in sorted(positions.items())
            if (at := committed[tp]) and at.offset != one.first_offset
        }
        if where:
            tell(self._log.warning, CommittedByOthers(now.generation, offsets=where))
            return None
        self._proven = now.generation
        return now
