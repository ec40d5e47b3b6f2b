"""References into the table: every entry once, every value under its original name, whatever conflicts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.jobs.materialize import Materialize
from pipeline.table_rows import restore
from service.audit.equal import canonical
from service.audit.json_text import parse_rounding
from tests.integration.harness import Deployment
from tests.integration.one_worker import run_through
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper

Places = dict[tuple[int, int, int], Any]

# One user, one hour each: every value of `x` meets every other, in one file and in files of their own.
CONFLICTING: list[Any] = [
    1, 2**53 + 1, -(2**63), 2**64, 0.5, 1e300, True, "text", "", {}, {"a": 1}, {"a": "one"}, {"a": {}}, {"a": {"b": []}},
    [], [None], [1, 2], ["a"], [1, "a"], [{}], [{"k": 1}, {"k": "v"}], [[1], []], [[]], {"a.b": 1, "A.b": 2}, {"": 0},
    {"__": 1, "a__long": 2, "%": 3, "é": 4, "with space": 5, "`": 6, '"': 7},
]  # fmt: skip
NAMES = {"_meta": 1, "_reference": "mine", "_META": {"user": "me"}, "v": 1, "V": 2, "a b": 3, "a_x20b": 4, "x__long": 5}


def test_values_that_conflict_are_all_in_the_table(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """Types that meet in one file and across files, odd names, empty containers: every entry comes back equal."""
    entries = [{"user": "one", "time": "2026-03-04T05:06:07Z", "x": value} for value in CONFLICTING]
    entries += [{"user": f"user-{at}", "time": "2026-03-04T05:06:07Z", "x": x} for at, x in enumerate(CONFLICTING)]
    entries += [{"user": "names", "time": "2026-03-04T06:00:00Z", **NAMES}]
    with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path) as deployment:
        written = run_through(
            deployment,
            [ToProduce(value=json.dumps(entry).encode(), partition=at % 6) for at, entry in enumerate(entries)],
        )
        lake = lake_of(deployment)
        Materialize(lake.spark, lake.settings).run(continuous=False)
        expected = {(*place, 0): canonical(entry) for place, entry in zip(written, entries, strict=True)}
        assert read_table(lake) == expected


def read_table(lake: Lake) -> Places:
    """Read every entry of the table by (partition, offset, index); one that is there twice fails."""
    found: Places = {}
    for row in lake.spark.table(lake.table).collect():
        meta = row["_meta"]
        place = (meta["partition"], meta["offset"], meta["index"])
        assert place not in found, f"{place} is in the table twice"
        found[place] = canonical(restore(row.asDict(recursive=True), parse_rounding))
    return found
