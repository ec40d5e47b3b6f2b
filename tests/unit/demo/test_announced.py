"""What the demo adds up from references, flush records and dead letters."""

from pathlib import Path

import msgspec
import pytest

from service.formats.dead_letter import DeadLetter, Reason, headers_of
from service.formats.flush_record import decode_flush_record, split_parts
from service.formats.model import SourceRecord, TopicPartition
from service.formats.reference import decode_message
from tools.demo.announced import Announced
from tools.local.errors import StackError

GOLDEN = Path(__file__).parents[2] / "golden" / "format-1"


def letter(
    value: bytes, reason: Reason, *, indexes: tuple[int, ...] | None = None, key: str | None = None
) -> SourceRecord:
    """Make a message of the dead-letters topic."""
    record = SourceRecord(tp=TopicPartition("logs", 0), offset=7, timestamp_ms=1, key=None, value=value, headers=())
    headers = headers_of(DeadLetter(record, reason, "why", indexes), batch_id="b", group_id="g", object_key=key)
    return record._replace(headers=tuple(headers))


def test_announced_counts_lines_as_references_and_objects_once() -> None:
    """A message holds many references to one object; a second message may announce more of the same."""
    message = decode_message((GOLDEN / "references.json").read_bytes())
    announced = Announced()
    announced.add_references(message)
    announced.add_references(msgspec.structs.replace(message, first_number=100))

    assert announced.references == 2 * len(message.references)
    assert (len(announced.objects), len(announced.schemas), announced.objects_named) == (1, 1, 2)


def test_announced_puts_the_parts_of_a_flush_record_together() -> None:
    """Each part repeats the totals: they count once. A part that is missing is said."""
    record = decode_flush_record((GOLDEN / "flush_record.json").read_bytes())
    parts = list(split_parts(record, bytes_max=600))
    announced = Announced()
    announced.add_flushes(parts)

    assert len(parts) == 2
    assert (announced.flushes, announced.entries, announced.dead_letters) == (1, 7, 1)
    with pytest.raises(StackError, match="not whole"):
        Announced().add_flushes(parts[1:])


def test_announced_keeps_the_first_readable_entry_of_each_reason() -> None:
    """Reasons are counted by entries; the one with the most is the main one, and shows an entry that was meant."""
    announced = Announced(entries=6)
    announced.add_letter(letter(b"{", Reason.MALFORMED))
    announced.add_letter(letter(b'[{"user":"a"},{"b":1}]', Reason.NO_USER, indexes=(1,)))
    announced.add_letter(letter(b'[{"c":1},{"d":1}]', Reason.NO_USER, indexes=(0, 1), key="stored"))
    reason, found = announced.main_reason

    assert (reason, found.entries, found.entry) == (Reason.NO_USER, 3, {"b": 1})
    assert announced.reasons[Reason.MALFORMED].entry is None
    assert announced.letters_stored == {"stored"}


@pytest.mark.parametrize(("dead", "is_mostly_dead"), [(0, False), (5, False), (6, True), (10, True)])
def test_announced_is_mostly_dead_beyond_half(dead: int, is_mostly_dead: bool) -> None:  # noqa: FBT001
    """Half of the entries may be dead letters; nothing at all is not mostly dead."""
    assert Announced(entries=10, dead_letters=dead).is_mostly_dead is is_mostly_dead
    assert not Announced().is_mostly_dead
