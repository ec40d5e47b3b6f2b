"""What happens to the worker, and what it does about it: the events and effects of `control.machine`."""

from __future__ import annotations

from dataclasses import dataclass

from service.control.flush_policy import FlushReason, Size
from service.formats.model import TopicPartition

TopicPartitions = frozenset[TopicPartition]

# Events. `at_s` is monotonic time; `has_progress` tells whether the open batch covers any offset.


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave us these, beside what we own."""

    tps: TopicPartitions
    has_progress: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group asks these back and waits for us."""

    tps: TopicPartitions
    has_progress: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """These are somebody else's already."""

    tps: TopicPartitions
    at_s: float


@dataclass(frozen=True, slots=True)
class FlushDue:
    """A trigger fired on a batch that covers something."""

    reason: FlushReason
    at_s: float


@dataclass(frozen=True, slots=True)
class StopRequested:
    """SIGTERM or SIGINT."""

    has_progress: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class FlushCommitted:
    """The transaction is committed."""

    at_s: float


@dataclass(frozen=True, slots=True)
class FlushDiscarded:
    """The batch was not committed, or nobody knows; `counts_as_failure` for fatal and unknown outcomes."""

    counts_as_failure: bool
    size: Size
    at_s: float


@dataclass(frozen=True, slots=True)
class RecordingFailed:
    """A record that was handed over could not be recorded: the disk refused."""

    at_s: float


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """Records that were handed over are not recorded: too little time, or the group would not take their commit."""

    at_s: float


@dataclass(frozen=True, slots=True)
class ConsumeReturned:
    """`consume` has returned, so that no callback runs.

    `again` are TopicPartitions to rewind: not proven yet, or others have committed of them.
    """

    again: TopicPartitions
    may_be_open: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The broker has ended what our last transaction left open."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Rewound:
    """These are at their committed offsets."""

    tps: TopicPartitions
    at_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot go on; nothing is committed any more."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by."""

    at_s: float


Event = (
    Assigned
    | Revoked
    | Lost
    | FlushDue
    | StopRequested
    | FlushCommitted
    | FlushDiscarded
    | RecordingFailed
    | RecordsRefused
    | ConsumeReturned
    | TransactionEnded
    | Rewound
    | Failed
    | Tick
)


# Effects, in the order in which the shell performs them.


@dataclass(frozen=True, slots=True)
class Flush:
    """Flush the open batch and report FlushCommitted or FlushDiscarded."""

    reason: FlushReason


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the open batch and its files."""


@dataclass(frozen=True, slots=True)
class Own:
    """Begin to own these at their committed offsets."""

    tps: TopicPartitions


@dataclass(frozen=True, slots=True)
class Release:
    """Stop owning these, which somebody else may own already."""

    tps: TopicPartitions
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Take no records for a while, but go on polling."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Resume:
    """Take records again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group and end the loop."""


Effect = Flush | Discard | Own | Release | Pause | Resume | Leave
