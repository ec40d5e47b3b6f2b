"""What identifies entries, by the second opinion, is what its judge says and what rows have."""

from __future__ import annotations

import pytest

from service.config.s3_settings import S3Settings
from service.config.settings import IdSettings, InputSettings, KafkaSettings, Settings
from service.errors import UnreadableObjectError
from service.formats.identity import DEAD_ENTRY
from service.formats.model import HEADERS_UNREADABLE, SourceRecord
from service.formats.reference import decode_references
from service.oracle.identify import Identifier
from service.oracle.judge import Judge
from tests.fakes.records import P0, entry, record, value_of
from tests.fakes.rig import Rig
from tests.fakes.worker import REFERENCES, identifier

SETTINGS = Settings(
    kafka=KafkaSettings(bootstrap_servers="fake:9092", source_topics=("source",)),  # type: ignore[call-arg]
    s3=S3Settings(bucket="bucket"),  # type: ignore[call-arg]
    id=IdSettings(paths=("id",)),
    input=InputSettings(entries_field="entries"),  # type: ignore[call-arg]
)
RECORDS = [
    record(P0, 0, entry("ann", id="x"), entry("bea", hours_ago=3), entry(None), 7),
    record(P0, 1, value=b"{"),
    record(P0, 2, value=b"[]"),
    record(P0, 3, value=value_of({"entries": [entry("ann", id=5)]})),
    record(P0, 4, entry("ann", time="no time")),
    record(P0, 5, value=b'[{"user": "a\xff"}, {"user": "b", "time": 5}]'),
    record(P0, 6, entry("ann"))._replace(unreadable=HEADERS_UNREADABLE),
]


@pytest.mark.parametrize("one", RECORDS, ids=lambda one: str(one.offset))
def test_entries_are_those_of_the_judge(one: SourceRecord) -> None:
    """It says less of them, and nothing else."""
    judged, found = Judge(SETTINGS).judge(one), Identifier(SETTINGS).entries_of(one)
    assert found.is_whole == judged.is_whole
    assert len(found.entries) == len(judged.entries)
    for ours, theirs in zip(found.entries, judged.entries, strict=True):
        place = theirs.deliverable
        assert ours == (DEAD_ENTRY if place is None else (place.key, place.event_time_us, place.id))


def test_rows_of_an_object_are_read_by_their_references() -> None:
    """What a flush has written is what was consumed."""
    rig = Rig()
    worker = rig.owning()
    rig.broker.logs[P0].append(value_of(entry("ann", id="x"), entry("bea")), timestamp_ms=rig.clock.wall_ms())
    rig.drain()
    found = {}
    for message in rig.broker.messages(REFERENCES):
        for reference in decode_references(message.value or b""):
            for row in identifier().rows_of(rig.bucket.objects[reference.location.object], [reference]):
                found[row.offset, row.number] = row
    assert {at: (row.user, row.id, row.key.user) for at, row in found.items()} == {
        (0, 0): ("ann", "x", "ann"), (0, 1): ("bea", None, "bea"),
    }  # fmt: skip
    assert worker.verification is None


def test_bytes_that_are_no_object_are_refused() -> None:
    """Whatever the library makes of them."""
    with pytest.raises(UnreadableObjectError):
        list(identifier().rows_of(b"Obj\x01 and nothing else", []))
