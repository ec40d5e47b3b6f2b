"""What the audit on Spark lists under the prefix: every object but the one that no flush creates."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner_pipeline.audit import executors
from log_partitioner_pipeline.objects import Listed

SCHEMA = pa.schema([("object", pa.string()), ("size", pa.int64()), ("modified_ms", pa.int64())])


def test_object_by_which_workers_check_the_store_is_no_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there in every healthy bucket; nothing names it."""

    class Bucket:
        def __init__(self, *_: object, **__: object) -> None:
            """Take what the real one takes."""

        def list(self, _bucket: str, prefix: str) -> Iterator[Listed]:
            """Give an object, and that of the check."""
            yield Listed(f"{prefix}_check", 1, 0)
            yield Listed(f"{prefix}user=a/_check", 1, 0)

    monkeypatch.setattr(executors, "Objects", Bucket)
    kafka = KafkaSettings(bootstrap_servers="b:1", source_topics=("t",))
    settings = Settings(kafka=kafka, s3=S3Settings(bucket="b", prefix="logs"))
    one_row = iter([pa.RecordBatch.from_pylist([{"id": 0}])])

    (batch,) = executors.list_objects(one_row, settings=settings, schema=SCHEMA)

    assert batch.column("object").to_pylist() == ["logs/user=a/_check"]
