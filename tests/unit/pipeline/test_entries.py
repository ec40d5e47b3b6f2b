"""Entries for counting: the same of every layout, and told apart by where they first were."""

from itertools import chain
from typing import Any

import pytest

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.model import PartitionKey, RootLink
from log_partitioner.proof.oracle.decode import Decoder
from log_partitioner.proof.oracle.equal import canonical
from log_partitioner_pipeline.activity.entries import Reading, entries_of, size_of
from log_partitioner_pipeline.config import ActivitySettings
from log_partitioner_pipeline.objects import Content
from log_partitioner_pipeline.pieces import pieces_of
from tests.pipeline.packs import KEY, TOPIC, Entry, Written, write_object

READING = Reading(S3Settings(bucket="data"), InputSettings(), ActivitySettings())


def rows_of(written: Written, reading: Reading = READING) -> list[dict[str, Any]]:
    """Give the rows of all references of an object."""
    return [
        row
        for piece in pieces_of(written.references)
        for row in entries_of(piece, Content(((0, written.content),)), reading)
    ]


def test_entries_are_the_same_in_every_layout() -> None:
    """Sizes, too: `{}` is as large where others of the pack have fields in it."""
    values: list[Any] = [{}, {"a": 1}, None, {"a": None}]
    entries = [
        Entry(PartitionKey(f"u{at % 3}", *KEY[1:]), {"x": values[at % 4]}, offset=at // 2, index=at % 2)
        for at in range(12)
    ]
    users = sorted({entry.key for entry in entries})
    by_user = [[entry for entry in entries if entry.key == user] for user in users]
    pack = rows_of(write_object(chain(*by_user)))
    files = [rows_of(write_object(some)) for some in by_user]
    assert pack == [row for rows in files for row in rows]
    assert [(row["user"], row["topic"], len(row["sizes"])) for row in pack] == [(f"u{n}", TOPIC, 4) for n in range(3)]


def test_entries_of_republished_records() -> None:
    """By their root, unless settings say otherwise; a republisher's several records of one are several."""
    roots = [RootLink("root", 7, 5), None, RootLink("root", 7, 5, 0), RootLink("root", 7, 5, 1)]
    written = write_object(Entry(KEY, {"n": 1}, offset, index=2, root=root) for offset, root in enumerate(roots))
    by_record, by_root = rows_of(written)
    assert (by_record["topic"], by_record["offsets"], by_record["indexes"]) == (TOPIC, [1], [2])
    assert (by_root["topic"], by_root["partition"], by_root["offsets"]) == ("root", 7, [5, 5, 5])
    assert by_root["indexes"] == [2, (1 << 31) + 2, (2 << 31) + 2]
    (every,) = rows_of(written, READING._replace(activity=ActivitySettings(identity="record")))
    assert (every["offsets"], every["indexes"]) == ([0, 1, 2, 3], [2, 2, 2, 2])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"a":1,"b":null}', 7),
        ('{"ä":"ö"}', 11),
        ("1e400", len("1e400")),
        ('{"a":[1e400,-1e400]}', len('{"a":[1e400,-1e400]}')),
        (str(10**400), len("1e400")),
        (r'"{\"x\":"', len(r'"{\"x\":"')),
    ],
)
def test_size_is_that_of_the_json_text(text: str, size: int) -> None:
    """A number that no double holds is as large as its text, not as what stands for it among us."""
    assert size_of(canonical(Decoder(InputSettings()).parse(text))) == size
