"""A registry that does not give a schema: records wait for it, the group keeps its member, nothing is lost or doubled.

The format is JSON of which the framing names a schema, in a header: the small audit reads it as plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from structlog.testing import capture_logs

from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import Cause, PathsError, RegistryError
from log_partitioner.formats.dead_letter import HEADER_REASON
from log_partitioner.formats.model import Headers, SourceRecord, TopicPartition
from log_partitioner.formats.schema import Schema, SchemaRef
from log_partitioner.input.format import Format
from log_partitioner.input.formats import FORMATS
from log_partitioner.input.framing.confluent import HEADER
from tests.fakes.committer import Outcome
from tests.fakes.records import P0, P1, entry, value_of
from tests.fakes.rig import STYLES, Rig
from tests.fakes.worker import DEAD_LETTERS, FakeWorker, Rules

GOOD, LATE = 1, 2
CAUSES: list[Cause] = ["unanswered", "refused", "unknown"]


class FakeSchemas:
    """Fulfils `boundary.Schemas`: gives the schemas of `known`, None for those of `nobodys`, and else raises."""

    def __init__(self, cause: Cause) -> None:
        self.known = {GOOD}
        self.nobodys: set[int] = set()
        self.asked = 0
        self._cause = cause

    def find(self, ref: SchemaRef, *, deadline: Deadline) -> Schema | None:
        """Answer, or not."""
        assert ref.kind == "id"
        assert not deadline.has_passed()
        self.asked += 1
        if ref.value in self.nobodys:
            return None
        if ref.value not in self.known:
            raise RegistryError(f"no schema {ref}", cause=self._cause)
        return Schema("{}")


@pytest.fixture(autouse=True)
def needy() -> Iterator[None]:
    """Have a format that needs schemas."""
    FORMATS["needy"] = lambda _rules: Format(read_by=lambda _schema: msgspec.json.decode)
    yield
    del FORMATS["needy"]


def world(style: str, schemas: FakeSchemas) -> tuple[Rig, FakeWorker]:
    """Give a worker that needs schemas, and owns everything."""
    rig = Rig(style, (P0, P1))
    rules = Rules(schemas=schemas).with_settings(input={"format": "needy", "framing": "confluent"})
    return rig, rig.owning(rules=rules)


def fill(rig: Rig, *schemas: int) -> None:
    """Append a record of each schema to both TopicPartitions."""
    for tp in (P0, P1):
        fill_one(rig, tp, *schemas)


def fill_one(rig: Rig, tp: TopicPartition, *schemas: int) -> None:
    """Append a record of each schema."""
    for number, schema in enumerate(schemas):
        headers: Headers = ((HEADER, schema.to_bytes(5)),)
        rig.broker.logs[tp].append(value_of(entry(n=number)), headers=headers, timestamp_ms=rig.clock.wall_ms())


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("style", STYLES)
def test_records_wait_for_a_schema_and_other_topic_partitions_go_on(style: str, cause: Cause) -> None:
    """The member stays in the group for as long as that takes: longer than any session."""
    schemas = FakeSchemas(cause)
    rig, worker = world(style, schemas)
    generation = worker.controller.state.generation
    fill(rig, GOOD, GOOD, LATE, GOOD)

    with capture_logs() as logs:
        rig.turn_for(600)

    assert rig.committed() == {P0: 2, P1: 2}
    assert worker.controller.state.generation == generation
    lines = [line for line in logs if line["event"] == "unreadable"]
    assert {(line["offset"], line["code"]) for line in lines} == {(2, f"SCHEMA_{cause.upper()}")}
    assert len(lines) < 40
    assert worker.metrics.total("fetch_failures", code=f"SCHEMA_{cause.upper()}") == len(lines)
    assert worker.metrics.total("batches_discarded") == 0

    schemas.known.add(LATE)
    rig.turn_for(120)
    rig.drain()


@pytest.mark.parametrize("style", STYLES)
def test_a_topic_partition_with_known_schemas_does_not_wait_for_another(style: str) -> None:
    schemas = FakeSchemas("unanswered")
    rig, _ = world(style, schemas)
    fill_one(rig, P0, LATE, GOOD)
    fill_one(rig, P1, GOOD, GOOD, GOOD)

    rig.turn_for(120)

    assert rig.committed()[P1] == 3


@pytest.mark.parametrize("style", STYLES)
def test_a_schema_that_nobody_knows_is_a_dead_letter(style: str) -> None:
    schemas = FakeSchemas("unknown")
    schemas.nobodys = {LATE}
    rig, worker = world(style, schemas)
    fill(rig, GOOD, LATE, GOOD)

    rig.turn_for(120)

    assert set(rig.committed().values()) == {3}
    dead = [dict(one.headers)[HEADER_REASON] for one in rig.broker.messages(DEAD_LETTERS)]
    assert dead == [b"unknown_schema"] * 2
    assert worker.metrics.total("written_entries", time="entry") == 4


@pytest.mark.parametrize("outcome", ["TRANSACTION_ABORTABLE", Outcome.UNKNOWN_COMMITTED, Outcome.UNKNOWN_OPEN])
@pytest.mark.parametrize("style", STYLES)
def test_a_flush_that_fails_meanwhile_loses_nothing(style: str, outcome: Outcome | str) -> None:
    schemas = FakeSchemas("unanswered")
    rig, worker = world(style, schemas)
    worker.committer.script.append(outcome)
    fill(rig, GOOD, GOOD, LATE, GOOD)

    rig.turn_for(60)
    schemas.known.add(LATE)
    rig.turn_for(120)

    rig.drain()


@pytest.mark.parametrize("style", STYLES)
def test_a_rebalance_while_records_wait_loses_nothing(style: str) -> None:
    schemas = FakeSchemas("unanswered")
    rig, worker = world(style, schemas)
    fill(rig, GOOD, LATE, GOOD)
    rig.turn_for(30)

    rules = Rules(schemas=schemas).with_settings(input={"format": "needy", "framing": "confluent"})
    rig.worker("b", rules=rules)
    rig.turn_for(60)
    assert len(worker.controller.state.owned) == 1
    schemas.known.add(LATE)
    rig.turn_for(120)

    rig.drain()


@pytest.mark.parametrize("style", STYLES)
def test_records_of_others_stay_in_hand_while_one_waits(style: str) -> None:
    """A record behind it in the poll that ends the process can be found by the next one."""
    schemas = FakeSchemas("unanswered")
    rig, worker = world(style, schemas)
    journal = worker.journal
    fill_one(rig, P0, LATE)
    fill_one(rig, P1, GOOD, GOOD)
    seen: list[bytes] = []
    record = worker.recorder.record

    def noting(one: SourceRecord) -> int:
        if one.tp == P1:
            seen.append(journal.read())
        return record(one)

    worker.recorder.record = noting  # type: ignore[method-assign]
    rig.turn_for(10)
    assert seen
    assert all(seen)


def test_settings_that_fit_nothing_are_told_though_records_have_schemas() -> None:
    """The sample of a batch that is all dead is decoded by the schemas, too."""
    schemas = FakeSchemas("unanswered")
    rig = Rig(STYLES[0], (P0,))
    rules = Rules(schemas=schemas).with_settings(
        input={"format": "needy", "framing": "confluent"}, user={"paths": ["nobody"]}, dead_letters={"share_max": 0.5}
    )
    worker = rig.worker("a", rules=rules)
    fill_one(rig, P0, *[GOOD] * 300)
    with pytest.raises(PathsError, match="fields that were seen: "):
        rig.turn_for(60)
    assert worker.metrics.total("batches_committed") == 0
