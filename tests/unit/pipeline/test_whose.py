"""A table takes the references of one group and of the groups that it has adopted, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from log_partitioner.config.settings import KafkaSettings
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.flush_record import AdoptedTopicPartition, Adoption, encode_adoption, encode_flush_record
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import Reference
from log_partitioner.proof.audit.whose import Groups
from log_partitioner_pipeline.errors import TableError
from log_partitioner_pipeline.whose import OneHistory
from tests.golden.example import FLUSH_RECORD
from tests.pipeline.packs import KEY, TOPIC, Entry, write_object

if TYPE_CHECKING:
    from collections.abc import Iterable

(REFERENCE,) = write_object([Entry(KEY, {"n": 1})]).references


def reference(group_id: str, next_offset: int = 10, topic: str = TOPIC) -> Reference:
    """Make a reference of a group, of offsets of partition 0 up to this one."""
    (source,) = REFERENCE.sources
    source = msgspec.structs.replace(source, topic=topic, partition=0, first_offset=0, next_offset=next_offset)
    return msgspec.structs.replace(REFERENCE, group_id=group_id, sources=(source,))


class Flushes:
    """A flushes topic that counts how often it was read."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.reads = 0
        self._read = 0

    def flushed(self, group_id: str, topic: str = TOPIC) -> None:
        """Let a group flush a topic."""
        line = msgspec.structs.replace(FLUSH_RECORD.topic_partitions[0], topic=topic)
        record = msgspec.structs.replace(FLUSH_RECORD, group_id=group_id, topic_partitions=(line,))
        self.values.append(encode_flush_record(record))

    def adopted(self, group_id: str, from_group: str, next_offset: int) -> None:
        """Let a group go on where another has stopped."""
        line = AdoptedTopicPartition(topic=TOPIC, partition=0, next_offset=next_offset)
        adoption = Adoption(
            group_id=group_id, from_group=from_group, topic_ids={}, adopted_at_ms=0, topic_partitions=(line,)
        )
        self.values.append(encode_adoption(adoption))

    def history(self, of_table: str | None = None, left_out: Iterable[str] = (), **kafka: Any) -> OneHistory:
        """Begin to take references."""
        settings = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=(TOPIC,), **kafka)
        self._read = 0
        return OneHistory(settings, of_table, left_out=left_out, read_on=self._read_on)

    def _read_on(self, _kafka: KafkaSettings, groups: Groups) -> None:
        self.reads += 1
        for number, value in enumerate(self.values[self._read :], self._read):
            groups.add(SourceRecord(TopicPartition("flushes", 0), number, 0, None, value, ()))
        self._read = len(self.values)


def test_one_group_alone_is_taken_whatever_its_name_is_without_a_look_at_flush_records() -> None:
    """The settings name no group."""
    flushes = Flushes()
    history = flushes.history()
    some = [reference("a"), reference("a", 20)]
    assert history.take(some) == some
    assert (history.lineage and history.lineage.group_id, flushes.reads) == ("a", 0)


def test_second_group_that_turns_up_is_refused_by_name() -> None:
    """It is refused in the middle of a run as well; the table has none of its references."""
    flushes = Flushes()
    flushes.flushed("a")
    flushes.flushed("b")
    history = flushes.history()
    assert len(history.take([reference("a")])) == 1
    with pytest.raises(CouldNotTellError, match=f"groups a, b have flushed {TOPIC}: .* LOGP_KAFKA__GROUP_ID"):
        history.take([reference("a", 20), reference("b")])


def test_group_that_is_named_is_taken_alone() -> None:
    """The other one's copies are left out; flush records are read on each time, since it may become part."""
    flushes = Flushes()
    flushes.flushed("a")
    flushes.flushed("b")
    history = flushes.history(group_id="b")
    for _ in range(2):
        assert [one.group_id for one in history.take([reference("a"), reference("b")])] == ["b"]
    assert flushes.reads == 2
    assert history.left_out == {"a"}


def test_group_whose_flush_records_are_gone_is_one_of_several() -> None:
    """Its references are there, but no flush record says any more which group has adopted it."""
    flushes = Flushes()
    flushes.flushed("b")
    with pytest.raises(CouldNotTellError, match="groups a, b have flushed"):
        flushes.history().take([reference("a"), reference("b")])


def test_group_of_another_source_topic_is_left_out() -> None:
    """A staging release beside production needs no group by name, and costs no look at flush records."""
    flushes = Flushes()
    flushes.flushed("a")
    flushes.flushed("staging", "other")
    history = flushes.history()
    some = [reference("staging", topic="other"), reference("a"), reference("staging", topic="other")]
    assert [one.group_id for one in history.take(some)] == ["a"]
    assert flushes.reads == 0
    assert history.take(some[:1]) == []


@pytest.mark.parametrize("named", [{}, {"group_id": "a"}])
def test_renamed_group_goes_on_in_the_same_table(named: dict[str, str]) -> None:
    """The table is of `a`, and meets `b` in the middle of a run; `a`'s output beyond the adoption is foreign."""
    flushes = Flushes()
    flushes.flushed("a")
    history = flushes.history(**named)
    assert len(history.take([reference("a", 10)])) == 1
    flushes.adopted("b", "a", 20)
    flushes.flushed("b")
    some = [reference("a", 20), reference("b", 30), reference("a", 30)]
    assert history.take(some) == some[:2]
    assert history.lineage is not None
    assert history.lineage.groups == ("b", "a")


def test_table_of_an_adopted_group_is_taken_on_by_the_one_that_is_named() -> None:
    """A restart with the new name: the flushes topic says that they are one history."""
    flushes = Flushes()
    flushes.adopted("b", "a", 20)
    history = flushes.history(of_table="a", group_id="b")
    assert history.lineage is not None
    assert history.lineage.groups == ("b", "a")
    assert [one.group_id for one in history.take([reference("a", 20), reference("b", 30)])] == ["a", "b"]


def test_table_remembers_its_group_where_none_is_named() -> None:
    """Another one that turns up is refused, not taken for the only one."""
    flushes = Flushes()
    flushes.flushed("b")
    with pytest.raises(CouldNotTellError, match="groups a, b have flushed"):
        flushes.history(of_table="a").take([reference("b")])


def test_references_of_nobody_yet_are_none() -> None:
    """An empty slice says nothing of a group."""
    history = Flushes().history()
    assert history.take([]) == []
    assert history.lineage is None


def test_group_that_becomes_part_of_the_history_after_its_references_were_left_out_stops_by_name() -> None:
    """In this run, and in a later one, which knows from the table what was left out."""
    flushes = Flushes()
    flushes.flushed("b")
    history = flushes.history(group_id="a")
    assert [one.group_id for one in history.take([reference("a"), reference("b")])] == ["a"]
    flushes.adopted("b", "a", 20)
    wanted = "references of group b were left out of this table, and belong to the history of b now: .*left-out"
    with pytest.raises(TableError, match=wanted):
        history.take([reference("b", 30)])
    with pytest.raises(TableError, match=wanted):
        flushes.history(of_table="a", left_out={"b"}, group_id="a").take([reference("b", 30)])
    with pytest.raises(TableError, match=wanted):
        flushes.history(of_table="a", left_out={"b"}, group_id="b")


def test_stranger_to_a_table_is_told_nothing_of_what_it_lacks() -> None:
    """The job that opens it refuses another group's table as such."""
    flushes = Flushes()
    flushes.flushed("a", "b")
    assert flushes.history(of_table="a", left_out={"b"}, group_id="b").lineage.groups == ("b",)


def test_renamed_group_goes_on_beside_a_foreign_one() -> None:
    """The foreign group's references are left out and stop no run as long as it stays foreign."""
    flushes = Flushes()
    flushes.flushed("other")
    history = flushes.history(group_id="a")
    assert history.take([reference("other")]) == []
    flushes.adopted("b", "a", 20)
    some = [reference("other", 20), reference("b", 30)]
    assert history.take(some) == some[1:]
    assert history.left_out == {"other"}


def test_group_is_chosen_from_flush_records_before_references_are_left_out() -> None:
    """It may be the one whose references of another topic come first: they are of its history."""
    flushes = Flushes()
    flushes.flushed("a", "other")
    flushes.flushed("a")
    history = flushes.history()
    some = [reference("a", topic="other")]
    assert history.take(some) == some
    assert history.lineage is not None


def test_references_are_not_passed_over_while_nobody_can_tell_whose_the_table_is() -> None:
    """None of their groups has flushed a source topic, and none is named."""
    flushes = Flushes()
    flushes.flushed("staging", "other")
    wanted = f"references are of staging, and no group has flushed {TOPIC}: .* LOGP_KAFKA__GROUP_ID"
    with pytest.raises(CouldNotTellError, match=wanted):
        flushes.history().take([reference("staging", topic="other")])
