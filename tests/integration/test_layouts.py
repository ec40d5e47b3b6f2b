"""However PartitionKeys are laid out in objects, what readers find of them is the same."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from log_partitioner.batch.pack_plan import FEW_PARTS
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import ReadObject, Row, difference, read_objects
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

USERS, RECORDS, PARTITIONS = 300, 700, 3
HEAVY = "canary-user-7"
STAMP_MS = int(time.time() * 1000)  # or the broker deletes the records
_SHAPES: tuple[dict[str, Any], ...] = (
    {"a": 1},
    {"a": None, "b": {}},
    {"a": 2**60, "b": {"c": [1, None]}},
    {"b": {"c": []}, "key with spaces": "x"},
    {"a": 0.5},
    {"a": "text"},
    {"B": True, "a": []},
    {"b": {"c": ["text"]}},
)

Known = dict[tuple[int, int, int], Row]


def _records() -> Iterator[ToProduce]:
    """Yield records of two entries; shapes agree and disagree, and one user has more than a pack takes of one."""
    for number in range(RECORDS):
        entries = [
            {
                "user": f"canary-user-{(number * 7 + index) % USERS}",
                "time": f"2026-03-04T0{5 + number % 2}:06:07.{number:06}Z",
                "n": number,
                **_SHAPES[(number + 3 * index) % len(_SHAPES)],
            }
            for index in range(2)
        ]
        if number % 10 == 0:
            entries.append({"user": HEAVY, "time": "2026-03-04T05:06:07Z", "long": f"{number:06}" * 4_000})
        yield ToProduce(value=json.dumps(entries).encode(), partition=number % PARTITIONS, timestamp_ms=STAMP_MS)


def test_layouts_give_the_same_entries(kafka: KafkaHelper, s3: S3Helper, tmp_path: Path) -> None:
    """Each layout has every entry as it went in, and the same schema of each PartitionKey; only objects differ."""
    rows: dict[str, Known] = {}
    schemas: dict[str, dict[tuple[str, str, int], str]] = {}
    for layout in ("file", "auto", "pack"):
        settings = {"LOGP_LAYOUT": layout}
        with Deployment(
            kafka=kafka,
            s3=s3,
            names=Names(f"layout {layout}"),
            root=tmp_path / layout,
            partitions=PARTITIONS,
            settings=settings,
        ) as deployment:
            written = run_through(deployment, _records())
            found = list(read_objects(deployment))
            rows[layout] = _require_entries(found, written)
            schemas[layout] = {one.reference.partition_key: one.exact_text for one in found}
            assert len(schemas[layout]) == len(found), "one batch, one reference for each PartitionKey"
            _require_objects(layout, found, deployment)
            deployment.require_clean()
    for layout in ("auto", "pack"):
        assert rows[layout] == rows["file"]
        assert schemas[layout] == schemas["file"]


def _require_entries(found: list[ReadObject], written: list[tuple[int, int]]) -> Known:
    """Check every row against the entry that went in; returns them without what differs from run to run."""
    entry_of = {
        (*place, index): entry
        for place, record in zip(written, _records(), strict=True)
        for index, entry in enumerate(json.loads(record.value or b""))
    }
    known: Known = {}
    for one in found:
        assert len(one.rows) == one.reference.entries
        for row in one.rows:
            place = (row.partition, row.offset, row.index)
            text = difference(entry_of[place], row.entry)
            assert text is None, f"{place}{text}"
            assert row.user == one.reference.partition_key.user == entry_of[place]["user"]
            assert place not in known, f"{place} comes out again"
            known[place] = row._replace(topic="")
    assert known.keys() == entry_of.keys()
    return known


def _require_objects(layout: str, found: list[ReadObject], deployment: Deployment) -> None:
    """Files: an object for each PartitionKey. Packs: a few objects, and one of its own for what is large."""
    data = {key for key in deployment.s3.keys(deployment.bucket) if key.endswith(".avro")}
    assert data == {one.reference.location.object for one in found}
    own = {one.reference.partition_key.user for one in found if "/user=" in one.reference.location.object}
    if layout == "file":
        assert len(data) == len(found) > 2 * USERS - FEW_PARTS
    else:
        assert own == {HEAVY}
        assert len(data) <= len(found) / 50
