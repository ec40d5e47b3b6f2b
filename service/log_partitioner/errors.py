"""Every exception of the service, in one tree.

    LogPartitionerError
      SettingsError            settings are wrong or contradict each other; the process does not start (cli)
      DiscardError             the batch is discarded, the consumer rewound, work goes on (runtime.flusher catches)
        SpoolError             the local disk refused: no space, no permission, an input/output error
        UploadError            an object did not reach the store within the deadline
        CodedError             the transaction failed; the broker or the client library says how
          CommitAbortedError   it was aborted: nothing of this batch is visible
          FencedError          the producer is dead for good: another one has our id, or its transaction timed out
          CommitUnknownError   the outcome is unknown; a new producer and the committed offsets tell
        MembershipError        the group metadata does not prove membership; nothing was sent to the broker
        CommittedOffsetError   a committed offset is stale or missing, or may be; the worker asks again
      HistoryUnknownError      flush records cannot be read (runtime.positions asks again, or accepts it)
        TopicMissingError      their topic is not there
      CouldNotTellError        Kafka or S3 do not answer an audit or a job, or not in time
        UnansweredError        the client library's word for it (adapters.kafka.topics)
        DamagedError           an object is not what its reference says, or no Avro file (operations.find goes on)
      NotFoundError            a command was asked for something that does not exist (cli)
      UnmetError               something outside is missing, or refuses the worker (adapters.preflight asks again)
        StoreBusyError         the store throttles us, or fails for a moment: a worker goes on all the same
      ReadBackError            a flush cannot be read again now (runtime.verification counts it as not verified)
      RegistryError            a registry has not given a schema (runtime.refetch asks again)
      KeyTakenError            an object key is taken by something not provably ours (runtime.uploader takes another)
      StopError                the process ends with a non-zero code (cli catches)
        StartPositionError     a committed offset is missing, out of range, or of another topic of that name
        SourceError            the source topic, the group or the permissions do not allow to go on
        TokenError             there is no token to log in to Kafka with (a flush is discarded, and tried again)
        LeavingError           asked to leave while it waited for an answer: the process ends in order (app catches)
        StoreRefusedError      the object store refuses us: no such bucket, no permission
        PathsError             almost all of a first batch is dead: the settings do not fit the source
        TooManyFailuresError   unknown outcomes or fatal errors came too often
        VerificationError      verification mode found a difference, and the policy is to stop

Three verdicts only: *retry* (inside the adapter, within a deadline), *discard and rewind*, *stop the process*.
"""

from __future__ import annotations

from typing import Literal

Cause = Literal["unanswered", "refused", "unknown"]
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class LogPartitionerError(Exception):
    """Root of all errors of this product."""


class SettingsError(LogPartitionerError):
    """Settings are wrong; `problems` has one sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class DiscardError(LogPartitionerError):
    """This batch cannot be committed; discard it, rewind, go on."""


class SpoolError(DiscardError):
    """The local disk refused a write or a read."""


class UploadError(DiscardError):
    """An object did not reach the store in time; `object_key` names the first that failed."""

    def __init__(self, message: str, *, object_key: str) -> None:
        super().__init__(message)
        self.object_key = object_key


class CodedError(DiscardError):
    """A transaction has failed; `code` is the broker's or the client library's error name."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has our transactional id, or the transaction has timed out."""
        return isinstance(self, FencedError) or self.code in _FENCED


class CommitAbortedError(CodedError):
    """The transaction was aborted."""


class FencedError(CodedError):
    """The producer is dead for good before a commit was asked for.

    Another process has our transactional id, or the broker has timed the transaction out (KAFKA_FACTS T4). Counted:
    two workers of one name would fence each other for ever.
    """


class CommitUnknownError(CodedError):
    """The outcome of the transaction is not known yet; `code` is the last error seen."""


class MembershipError(DiscardError):
    """Group metadata without a generation or a member id: a broker would not fence it (KAFKA_FACTS F3)."""


class CommittedOffsetError(DiscardError):
    """A committed offset is older than one known to be committed, or the broker cannot tell: ask again."""


class HistoryUnknownError(LogPartitionerError):
    """The group's flush history is unknown, because flush records cannot be read, or not in time."""


class TopicMissingError(HistoryUnknownError):
    """The topic of flush records is not there: no setting helps, an operator has to create it."""


class CouldNotTellError(LogPartitionerError):
    """An audit or a job cannot reach what it needs; nothing is said about the data."""


class DamagedError(CouldNotTellError):
    """An object is not the one that was referenced, or does not hold what it should."""


class NotFoundError(LogPartitionerError):
    """Nothing has the name that a command was given."""


class KeyTakenError(LogPartitionerError):
    """The key is taken by something that is not provably ours: use another key."""


class UnmetError(LogPartitionerError):
    """Something that a worker needs outside is missing or refused; an operator can mend it while the worker waits."""


class StoreBusyError(UnmetError):
    """The store throttles us, or fails by itself: nothing is known to be missing, and flushes wait for it."""


class RegistryError(LogPartitionerError):
    """A schema cannot be had now; `cause` says whether the registry refuses us, does not know it yet, or is silent."""

    def __init__(self, message: str, *, cause: Cause = "unanswered") -> None:
        super().__init__(message)
        self.cause = cause


class ReadBackError(LogPartitionerError):
    """An object cannot be read now: the store does not answer, or not in time."""


class StopError(LogPartitionerError):
    """The process cannot go on; it ends with a non-zero code and commits nothing more."""


class StartPositionError(StopError):
    """A committed offset is missing and no policy helps, or it was lost, is out of range, or is of another topic."""


class SourceError(StopError):
    """Consuming cannot continue: the topic is missing, the group refuses us, or a permission is missing."""


class TokenError(StopError):
    """No client of Kafka can be made, because there is no token to log in with."""


class LeavingError(StopError):
    """The process was asked to leave while it waited for an answer that did not come: it ends in order."""


class StoreRefusedError(StopError):
    """The object store rejects requests, and retrying will not help."""


class PathsError(StopError):
    """Almost all entries of a group's first batch are dead, and nothing of it is committed: the settings do not fit."""


class TooManyFailuresError(StopError):
    """Unknown outcomes or fatal errors came more often than the process tolerates (DESIGN 4.1)."""


class VerificationError(StopError):
    """A committed flush does not hold exactly the entries of the source; the worker commits nothing more."""
