"""Kinds of findings: of both audits, of verification mode, and labels of its metric."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of findings; the comment of a kind names the thing that its count counts."""

    MISSING = "missing"  # an entry that must be in a file is in no file and no dead letter
    DUPLICATED = "duplicated"  # a surplus place of an entry: once too often in files and dead letters
    UNEXPECTED = "unexpected"  # a row of an entry that the source does not have, or that must be dead
    MISPLACED = "misplaced"  # a row under a wrong user, date or hour, by its reference or its `_meta`
    ALTERED = "altered"  # a row with values that are not those of the source
    META = "meta"  # a row whose `_meta` has a wrong event time (in the right hour), id, timestamp or root
    ID_MISMATCH = "id_mismatch"  # a unique id in other numbers than in the source, though positions agree
    DEAD_LETTER_MISSING = "dead_letter_missing"  # an entry that must be dead is in no dead letter and no file
    DEAD_LETTER_DUPLICATED = "dead_letter_duplicated"  # a surplus dead letter of an entry
    DEAD_LETTER_UNEXPECTED = "dead_letter_unexpected"  # a dead letter of an entry without fault, or of none
    DEAD_LETTER_WRONG = "dead_letter_wrong"  # an entry's dead letter with a wrong reason, index, bytes or headers
    REFERENCE_MISSING = "reference_missing"  # a reference that a flush or run record counts, and that is not there
    REFERENCE_DUPLICATED = "reference_duplicated"  # a surplus line with the same reference id
    REFERENCE_WRONG = "reference_wrong"  # a reference that says what is not so: counts, bytes, times, schema, version
    OBJECT_MISSING = "object_missing"  # an object (data, or that of a dead letter) that is referenced and not there
    OBJECT_ALTERED = "object_altered"  # an object whose size, checksum or etag is not the reference's
    OBJECT_UNREADABLE = "object_unreadable"  # an object with the right bytes that is no Avro file of this product
    OBJECT_UNREFERENCED = "object_unreferenced"  # an object under the prefix, or bytes of one, that nothing names
    FLUSH_GAP = "flush_gap"  # a hole between flush records, or between them and the committed offset
    FLUSH_OVERLAP = "flush_overlap"  # offsets of a TopicPartition that two flush records cover
    FLUSH_WRONG = "flush_wrong"  # a statement of a flush record that source or references do not bear out
    REPLAY_MISSING = "replay_missing"  # a record discarded as a replay of one that is not there
    REPLAY_DIFFERS = "replay_differs"  # a record discarded as a replay of one with other values
    BACKFILL_WRONG = "backfill_wrong"  # a statement of a backfill's run record that its messages do not bear out
    TABLE_MISSING = "table_missing"  # an entry in a file that the table has taken, and not in the table
    TABLE_DUPLICATED = "table_duplicated"  # a surplus row of an entry in the table, beyond those in files
    TABLE_UNEXPECTED = "table_unexpected"  # a row of the table of an entry that the source does not have or is dead
    TABLE_ALTERED = "table_altered"  # a row of the table with values or `_meta` neither of the source nor of a file
    CSV_BROKEN = "csv_broken"  # a line of the archived CSV that is no row
    CSV_UNREADABLE = "csv_unreadable"  # a file of the archive that cannot be read to its end as what settings say


def to_be_shown(counts: Mapping[Kind, int]) -> list[tuple[str, int]]:
    """Return what a person asks first, missing and duplicated, even if it is 0, then each other kind that was found."""
    asked = (Kind.MISSING, Kind.DUPLICATED)
    return [(kind.value, number) for kind in Kind if (number := counts.get(kind, 0)) or kind in asked]
