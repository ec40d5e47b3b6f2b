"""Values that are no projection of the golden object's schema; tests/property shows that others give the exact one."""

import json
from typing import Any

import pytest

from log_partitioner.formats.projection import project
from tests.golden.example import GOLDEN

SCHEMA: dict[str, Any] = json.loads((GOLDEN / "pack.avsc").read_text())


@pytest.mark.parametrize(
    "projection",
    [
        5,
        "null",
        {"items": "null"},
        [5],
        [-1],
        [2, 1],
        [1, 1],
        ["0"],
        [[]],
        [[0]],
        [[0.5, "null"]],
        [[0, None]],
        [[0, "new"]],
        [[0, [0]]],
        [[0, {"items": "null"}]],
        [[1, {"fields": "null"}]],
        [[1, {"name": "null"}]],
        [[1, [1]]],
        [[2, "long53"]],
        [[3, "empty-object"]],
        [[4, "empty-object"]],
        [[4, {"values": "null"}]],
        [[4, {}]],
        [[4, {"items": "long53"}]],
    ],
)
def test_what_is_no_projection_of_the_schema_is_refused(projection: Any) -> None:
    """Other fields, other parts, fields twice or out of order, a type that does not become the object's."""
    with pytest.raises(ValueError, match="no projection"):
        project(SCHEMA, projection)


def test_instant_is_no_long_of_which_there_is_a_narrower_one() -> None:
    """In Avro it is a long all the same."""
    meta, *_ = SCHEMA["fields"]
    instant = {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None}
    with pytest.raises(ValueError, match="no projection"):
        project({**SCHEMA, "fields": [meta, instant]}, [[0, "long53"]])
