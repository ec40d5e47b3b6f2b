"""The errors of a job, in words for a person; `cli` prints them and sets the exit code.

PipelineError
    BrokerError        a transaction fails or stays open, a client has no such option
    ObjectError        an object is absent, altered or unreadable
        ObjectTakenError   there is another object under this key
    ArchiveError       an older system's CSV is not there, or a file of it is not what settings say
    IncomparableError  two results that do not speak of the same
    RangeError         a range that a backfill may not take
    TableError         the table is of another version or of another references topic, or others have changed it
    OvertakenError     another driver has committed in our place: this one stops
    UnforeseenError    whatever else; its text is a library's, and input may stand in it
"""

from __future__ import annotations

import re

from log_partitioner import privacy
from log_partitioner.errors import CouldNotTellError, StoreRefusedError

_IN_TEXT = re.compile(r"\b(?:(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)|ExecutorLostFailure|FetchFailed)\b")
_ON_EXECUTOR = re.compile(r"\blog_partitioner(?:_pipeline)?\.(?:\w+\.)*\w+Error: (.+)")


class PipelineError(Exception):
    """A job cannot go on; the message says why."""


class BrokerError(PipelineError):
    """Kafka refuses or fails a request; if no broker can be asked at all, that is a CouldNotTellError."""


class ObjectError(PipelineError):
    """An object is absent, altered, or not what its reference says."""


class ObjectTakenError(ObjectError):
    """There is another object under the key of one to be made."""


class ArchiveError(PipelineError):
    """The archive of an older system is not there, or a file of it cannot be read as CSV to its end."""


class IncomparableError(PipelineError):
    """Two results of audits that do not speak of the same source and window."""


class RangeError(PipelineError):
    """A range of the source that a backfill may not take, or cannot read."""


class TableError(PipelineError):
    """The table is not one that this job may write to, or rely on."""


class OvertakenError(PipelineError):
    """Another driver has committed in the place of this one."""


class UnforeseenError(PipelineError):
    """An unforeseen error; its text comes from a library and may contain input."""


def cause_of(error: BaseException) -> str | None:
    """Return the message of an error for a person, raised here or on an executor (found in Spark's own text)."""
    if isinstance(error, UnforeseenError):
        return None
    if isinstance(error, PipelineError | CouldNotTellError | StoreRefusedError):
        return str(error)
    found = _ON_EXECUTOR.search(str(error))
    return None if found is None else found[1].strip()


def said_of(error: BaseException) -> str:
    """Return the printable part of an error: its message if it is ours, else its classes and those of its causes."""
    cause = cause_of(error)
    if cause is not None:
        return privacy.veiled(cause)
    return f"{privacy.describe(error)}; by class: {', '.join(classes_of(error))}"


def classes_of(error: BaseException) -> list[str]:
    """Return the classes of an error and of its causes, the outermost first; also those that Java's text names."""
    found: dict[str, None] = {}
    cause: BaseException | None = error
    while cause is not None:
        found |= dict.fromkeys([type(cause).__name__, *_IN_TEXT.findall(str(cause))])
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return list(found)
