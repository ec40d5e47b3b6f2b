"""The result of one audit: typed, versioned, and its JSON form; `encode` and `decode` are a pair.

Everything that shows an audit (the terminal, the history, metrics, the report) is made from this and from nothing else.
Its size is bounded: examples, flushes, hours and TopicPartitions have limits, and say so if one was reached.

Times: `*_ms` and `*_us` count from 1970 in UTC, a window is [from, until) by the Kafka timestamps of source records.
Dates and hours are those of the worker's partition zone; `record_hours` are hours of UTC.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode

RESULT_VERSION = 1


class Verdict(StrEnum):
    """The verdict of an audit, or of one hour of it: the exit code in words."""

    CLEAN = "clean"
    FINDINGS = "findings"
    COULD_NOT_TELL = "could_not_tell"


class Witness(StrEnum):
    """The data with which the source was compared."""

    OUTPUTS = "outputs"  # what committed references, dead letters and flush records of this product say
    CSV = "csv"  # the archive of an older system: the names of `Kind` mean its rows where they say files


class Example(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding. Everything but the text is None if it is not known or makes no sense for its kind.

    `user`, `date` and `hour` say where the entry belongs; the text says where it was found instead. `id` is its unique
    id, if the settings have a path to it.
    """

    text: str
    count: int = 1
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    index: int | None = None
    timestamp_ms: int | None = None
    user: str | None = None
    date: str | None = None
    hour: int | None = None
    id: str | None = None
    reference_id: str | None = None
    object: str | None = None
    batch_id: str | None = None
    worker: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one kind: how many, and the first examples in the order of the source."""

    kind: Kind
    count: int
    examples: list[Example]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The requested window; None at both ends means everything for which the worker answers.

    An audit of the outputs has the flushes that ended in it, one of an archive records by their timestamps. `padding_s`
    is the time by which these may be out of order: so much more of the source is read.
    """

    from_ms: int | None
    until_ms: int | None
    padding_s: float

    @property
    def is_everything(self) -> bool:
        """Whether everything is audited, not a window."""
        return self.from_ms is None and self.until_ms is None


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """One TopicPartition of the source: what there is, and which of its offsets were audited.

    Everything in [first_offset, next_offset) was compared; with a window it is the window with its padding, and
    [window_first_offset, window_next_offset) are the offsets from its first record on to behind its last one.
    `retained_offset` is the first that Kafka still has, `end_offset` the end of what is committed there,
    `committed_offset` the group's (None: none). records and entries are those in the window.
    """

    topic: str
    partition: int
    retained_offset: int
    end_offset: int
    committed_offset: int | None
    first_offset: int
    next_offset: int
    window_first_offset: int
    window_next_offset: int
    records: int = 0
    entries: int = 0


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts within the window.

    entries = deliverable + dead by the source. in_files and in_dead_letters count entries found there, each once; rows
    counts all rows of references, in_table all rows of the window in the table (None: not asked for). If the objects of
    references are retired (objects_retired of all objects), their rows are counted in the table: rows_retired.
    references, objects, object_bytes and flushes count all that reach into the window.
    """

    records: int = 0
    entries: int = 0
    deliverable: int = 0
    dead: int = 0
    in_files: int = 0
    in_dead_letters: int = 0
    rows: int = 0
    in_table: int | None = None
    references: int = 0
    objects: int = 0
    object_bytes: int = 0
    flushes: int = 0
    objects_retired: int = 0
    rows_retired: int = 0
    objects_listed: int | None = None


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """The part read of an older system's archive, and the counts of rows and entries that cannot be compared.

    rows = rows_compared + rows_without_id + rows_not_judged. `rows_not_judged` have an id that the source, as far as it
    was read, does not have, and are not of the window by their time, or have none; `rows_dead` are compared, too: rows
    of entries that must be dead letters, which the older system may have or not. `entries_without_id` are deliverable
    entries of the window.
    """

    files: int
    bytes: int
    rows: int
    rows_compared: int
    rows_dead: int
    rows_without_id: int
    rows_not_judged: int
    broken_lines: int
    entries_without_id: int


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    """Unique ids, if the settings have paths to them: source and files compared by id alone.

    `in_source` and `in_files` count deliverable entries and rows with an id; `missing` and `surplus` add up by how much
    ids occur less or more often in files; `repeated_in_source` counts ids that the source itself has more than once.
    """

    in_source: int
    in_files: int
    missing: int
    surplus: int
    repeated_in_source: int
    examples: list[str]


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """One date and hour of event time: its entries by the source, those found, and its findings.

    `expected` deliverable entries belong here; `in_files` and `in_dead_letters` of them were found (anywhere).
    `findings` are those of its entries and references, by kind. `bytes` are those of the blocks of its references.
    """

    date: str
    hour: int
    verdict: Verdict
    expected: int = 0
    in_files: int = 0
    in_dead_letters: int = 0
    findings: dict[str, int] = {}
    references: int = 0
    bytes: int = 0


class RecordHour(msgspec.Struct, frozen=True, kw_only=True):
    """One hour (UTC) of record timestamps: source against output. `begins_ms` None: records without a timestamp.

    `lag_*` is from a record's timestamp to the end of the flush that covers it (None: no record of the hour is
    covered, or the result is older than this field).
    """

    begins_ms: int | None
    records: int
    entries: int
    in_files: int
    in_dead_letters: int
    missing: int
    duplicated: int
    lag_p50_ms: int | None = None
    lag_p99_ms: int | None = None
    lag_max_ms: int | None = None


class FlushedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range of one TopicPartition in one flush; `timestamp_max_ms` is the newest record's."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    entries: int
    dead_letters: int
    timestamp_max_ms: int | None


class FlushSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One flush record that reaches into the window; ended_at_ms - timestamp_max_ms is its lag."""

    batch_id: str
    worker: str
    boot: str
    seq: int
    generation: int
    reason: str
    started_at_ms: int
    ended_at_ms: int
    entries: int
    entries_in_files: int
    dead_letters: int
    references: int
    bytes: int
    ranges: list[FlushedRange]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One audit.

    `could_not_tell` are the doubts, `notes` further remarks for the reader. `dead_letters` are entries by reason.
    `references_offsets` are the offsets of the references topic up to which everything was taken into account,
    `table_offsets` those up to which the table holds it (None: the table was not asked for). `findings` has only kinds
    that were found, in the order of `Kind`. `against` names the witness; `archive` has the counts of an older system's
    archive (None: not asked). `flushes` and `hours` are the newest if there were more than the limit:
    `flushes_left_out`, `hours_left_out`. `durations_s` are seconds by step, in their order; they add up to about
    `seconds`.
    """

    version: int = RESULT_VERSION
    against: Witness = Witness.OUTPUTS
    run_id: str
    started_at_ms: int
    seconds: float
    places: dict[str, str]
    window: Window
    coverage: list[Coverage]
    counts: Counts
    findings: list[Finding]
    could_not_tell: list[str]
    notes: list[str]
    ids: Ids | None
    dead_letters: dict[str, int]
    hours: list[Hour]
    record_hours: list[RecordHour]
    flushes: list[FlushSeen]
    references_offsets: dict[int, int]
    table_offsets: dict[int, int] | None = None
    archive: Archive | None = None
    hours_left_out: int = 0
    flushes_left_out: int = 0
    durations_s: dict[str, float] = {}

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: findings come before what could not be told."""
        return ExitCode.of(self.findings, self.could_not_tell)

    @property
    def verdict(self) -> Verdict:
        """The exit code in words."""
        return {
            ExitCode.CLEAN: Verdict.CLEAN,
            ExitCode.FINDINGS: Verdict.FINDINGS,
            ExitCode.COULD_NOT_TELL: Verdict.COULD_NOT_TELL,
        }[self.exit_code]


_decoder = msgspec.json.Decoder(Result)


def encode(result: Result) -> bytes:
    """Write a result as indented JSON; verdict and exit code stand in front."""
    document = {"verdict": result.verdict, "exit_code": int(result.exit_code), **msgspec.to_builtins(result)}
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def decode(text: bytes) -> Result:
    """Read a result; verdict and exit code follow from the rest.

    Raises:
        msgspec.DecodeError: it is none, or of a version that this code does not know.
    """
    result = _decoder.decode(text)
    if result.version != RESULT_VERSION:
        raise msgspec.ValidationError(f"version {result.version} of an audit's result is not {RESULT_VERSION}")
    return result
