"""Exact schemas in the audit on Spark: what a projection of an object's schema may differ in."""

from __future__ import annotations

import json
from itertools import product

from log_partitioner.avro.entry_types import EntryTypes
from log_partitioner.avro.schema import row_schema
from log_partitioner.batch.pack_plan import GROUPS_MAX
from log_partitioner.batch.pack_schema import MergedFields
from log_partitioner_pipeline.audit.object_reader import ObjectReader
from tests.strategies import SCHEMA_BOUNDS
from tests.unit.batch.test_pack_plan import plan, rows_of
from tests.unit.proof.audit.world import settings


def test_names_that_differ_by_case_alone_are_right_in_the_pack_where_packs_give_out() -> None:
    """128 users with one field each, all integers: no name has several fields, and Avro names are numbered."""
    entries = [{"".join(letters): 1} for letters in product(*((one, one.upper()) for one in "request"))]
    made = plan(rows_of([(f"user-{n:03}", entry) for n, entry in enumerate(entries)]))
    merged = made.merged[GROUPS_MAX]
    types, fields, text = EntryTypes(SCHEMA_BOUNDS), MergedFields(merged), row_schema(merged).text
    reader = ObjectReader(settings(), 1)
    own = [types.of(entries[part.key]) for part in made.parts if part.group == GROUPS_MAX]
    assert len(own) == len(entries) - GROUPS_MAX
    exact = [reader.exact_schema(text, json.dumps(fields.projection(one))) for one in own]
    assert [problem for one in exact for problem in one.problems] == []
