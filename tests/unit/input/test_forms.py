"""docs/INPUTS.md: each form of records that it names has these rows, or becomes this dead letter."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from log_partitioner.config import checks
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.input.formats import find_format_problems
from log_partitioner.partitioning.partitioner import Partitioner, Placement
from log_partitioner.proof.oracle.judge import Judge
from tools.docs.inputs import FORMS, Form

READ = [form for form in FORMS if form.dead is None]
DEAD = [form for form in FORMS if form.dead is not None]
NEEDED = {
    "kafka.bootstrap_servers": "b:9092",
    "kafka.source_topics": "logs",
    "s3.bucket": "logs",
    "user.paths": "user",
    "time.paths": "time",
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read a form by its settings as a worker does, and hold it to the second opinion."""

    def read(form: Form) -> tuple[list[tuple[Any, ...]], list[str]]:
        for name, value in {**NEEDED, **form.settings}.items():
            monkeypatch.setenv(f"LOGP_{name.upper().replace('.', '__')}", value)
        settings = checks.load(find_format_problems)

        def find(ref: SchemaRef) -> Schema:
            assert ref.value == 7
            assert form.schema is not None
            return Schema(form.schema)

        record = SourceRecord(TopicPartition("logs", 0), 1, 1_772_600_000_000, None, form.value, form.headers)
        decoded, partitioner = (
            RecordDecoder(settings.input, find).decode(form.value, form.headers),
            Partitioner(settings),
        )
        rows = []
        for _, entry, _, around in decoded.entries:
            placed = partitioner.partition(entry, around, record)
            assert isinstance(placed, Placement)
            rows.append((placed.key, entry))
        judged = Judge(settings, find).judge(record).entries
        assert [one.deliverable.key for one in judged if one.deliverable is not None] == [key for key, _ in rows]
        dead = [f"{bad.reason}: {bad.message}" for bad in decoded.bad]
        assert len(judged) == len(rows) + len(dead)
        return rows, dead

    return read


@pytest.mark.parametrize("form", READ, ids=lambda form: form.name)
def test_form_has_its_rows(form: Form, read: Any) -> None:
    rows, dead = read(form)
    assert dead == []
    assert rows == [((user, "2026-03-04", 5), row) for user, row in form.rows]


@pytest.mark.parametrize("form", DEAD, ids=lambda form: form.name)
def test_form_that_is_not_read_is_a_dead_letter_that_says_what_to_do(form: Form, read: Any) -> None:
    rows, (dead,) = read(form)
    assert rows == []
    assert form.dead is not None
    assert re.match(re.escape(form.dead).replace("…", ".*"), dead)


def leaves(value: Any) -> Iterator[str]:
    """Yield the values of a document that are no object and no list."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield json.dumps(value)


@pytest.mark.parametrize("form", [form for form in READ if form.value[:1] in (b"{", b"[")], ids=lambda form: form.name)
def test_no_member_of_a_document_is_lost(form: Form, read: Any) -> None:
    """Take from the source what the rows have: nothing is left."""
    rows, _ = read(form)
    source = Counter(leaf.strip('"') for line in form.value.splitlines() for leaf in leaves(json.loads(line)))
    kept = Counter(leaf.strip('"') for _, row in rows for leaf in leaves(row))
    names = Counter({"service.name": 1, "user.id": 1})  # keys of attributes are keys of a map
    assert not source - kept - names
