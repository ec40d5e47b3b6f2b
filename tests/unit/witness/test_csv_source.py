"""What stands for an entry of the source where an older system's archive is the other side."""

import json

import pytest

from log_partitioner.config.settings import Settings
from log_partitioner_pipeline.audit.csv_source import _Reader


@pytest.mark.parametrize(
    ("entry", "entry_id"), [({"id": "a"}, "a"), ({"id": ""}, None), ({"id": None}, None), ({}, None)]
)
def test_an_empty_id_is_none(entry: dict[str, object], entry_id: str | None) -> None:
    """As in the archive, where nothing else can be told from it: both are counted, neither is compared."""
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "b", "source_topics": ["logs"]},
            "s3": {"bucket": "b"},
            "user": {"paths": ["user"]},
            "id": {"paths": ["id"]},
        }
    )
    message = {
        "key": None,
        "value": json.dumps({"user": "u"} | entry).encode(),
        "topic": "logs",
        "partition": 0,
        "offset": 7,
        "timestamp_ms": 1_772_600_400_000,
        "headers": None,
    }
    (row,) = _Reader(settings, ()).rows(message)
    assert (row["deliverable"], row["id"]) == (True, entry_id)
