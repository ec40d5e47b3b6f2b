"""Flush records tell of TopicPartitions without a committed offset, and of other groups."""

from __future__ import annotations

from itertools import permutations

import msgspec

from log_partitioner.config.source_topics import SourceNames
from log_partitioner.control.flush_history import SKEW_MS, FlushHistory, Foreign, OurGroup
from log_partitioner.formats.flush_record import Adoption, FlushRecord
from log_partitioner.formats.model import TopicPartition
from log_partitioner.formats.offset_metadata import SourceTopics
from tests.golden.example import ADOPTION, FLUSH_RECORD

APP_0, APP_3, APP_9 = TopicPartition("app", 0), TopicPartition("app", 3), TopicPartition("app", 9)
GROUP, IDS = FLUSH_RECORD.group_id, FLUSH_RECORD.topic_ids
MINUTE_MS = 60_000


def record(minute: int, next_offset: int, **fields: object) -> FlushRecord:
    """Give a flush record of both TopicPartitions, app-0 up to an offset."""
    first, second = FLUSH_RECORD.topic_partitions
    lines = (msgspec.structs.replace(first, next_offset=next_offset), second)
    return msgspec.structs.replace(
        FLUSH_RECORD, ended_at_ms=minute * MINUTE_MS, **({"topic_partitions": lines} | fields)
    )


def of(*records: FlushRecord, topic_ids: dict[str, str] = IDS) -> dict[TopicPartition, int]:
    """Give what these say of two TopicPartitions, one of which they do not name."""
    history = FlushHistory([APP_0, APP_9], group=OurGroup(GROUP), topics=SourceTopics(topic_ids))
    for one in records:
        history.add(one)
    return history.next_offsets


def test_newest_flush_record_counts_whatever_order_they_come_in() -> None:
    """This holds even if an administrator has set the offset back in between."""
    records = [record(0, 100), record(30, 900), record(60, 500)]
    for some in permutations(records):
        assert of(*some) == {APP_0: 500}


def test_furthest_of_flush_records_at_about_the_same_time_counts() -> None:
    """Clocks of two workers differ: what is handed over within a minute may seem to be older."""
    for some in permutations([record(10, 100), record(8, 120)]):
        assert of(*some) == {APP_0: 120}


def test_flush_records_near_to_each_other_do_not_hand_an_old_offset_on() -> None:
    """Set back half an hour ago, and flushed each few minutes since: what counts is near to the newest."""
    records = [record(0, 1000), *(record(minute, 10 + minute) for minute in range(9, 40, 9))]
    assert of(*records) == of(*reversed(records)) == {APP_0: 46}


def test_what_was_flushed_before_an_offset_was_set_is_passed_over_of_that_one_only() -> None:
    """Flushes after it are passed over for as long as clocks may differ."""
    topics = SourceTopics(IDS, set_ms={APP_0: 20 * MINUTE_MS})
    history = FlushHistory([APP_0, APP_3], group=OurGroup(GROUP), topics=topics)
    for minute in (10, 29):
        history.add(record(minute, 900))
    assert history.next_offsets == {APP_3: 9}
    history.add(record(31, 100))
    assert history.next_offsets == {APP_0: 100, APP_3: 9}


def test_flush_records_of_others_are_passed_over() -> None:
    """Another group, and another topic of the same name."""
    assert of(record(1, 100), record(2, 200, group_id="another")) == {APP_0: 100}
    assert of(record(1, 100), record(20, 200, topic_ids={"app": "another"})) == {APP_0: 100}


def test_topic_whose_id_is_not_known_is_not_another() -> None:
    """The id may be missing here or in the flush record."""
    assert of(record(1, 100, topic_ids={})) == {APP_0: 100}
    assert of(record(1, 100), topic_ids={}) == {APP_0: 100}


def test_part_of_a_flush_record_says_as_much_of_its_own() -> None:
    """Its transaction is committed, or no reader sees it."""
    assert of(record(1, 100, part=2, parts=3)) == {APP_0: 100}


def test_older_records_are_needed_until_all_are_named_and_the_clocks_cannot_explain_it() -> None:
    """Then reading ends."""
    history = FlushHistory([APP_0, APP_3], group=OurGroup(GROUP), topics=SourceTopics(IDS))
    assert not history.is_enough(0)
    history.add(record(60, 100))
    assert not history.is_enough(60 * MINUTE_MS - SKEW_MS)
    assert history.is_enough(60 * MINUTE_MS - SKEW_MS - 1)
    lacking = FlushHistory([APP_0, APP_9], group=OurGroup(GROUP), topics=SourceTopics(IDS))
    lacking.add(record(60, 100))
    assert not lacking.is_enough(0)


# Adoptions, and groups that publish the same.


def adoption(group_id: str, from_group: str, next_offset: int = 100, minute: int = 40) -> Adoption:
    """Give an adoption of app-0 and app-3."""
    first, second = ADOPTION.topic_partitions
    lines = (
        msgspec.structs.replace(first, next_offset=next_offset),
        msgspec.structs.replace(second, next_offset=9),
    )
    changes = {"group_id": group_id, "from_group": from_group, "topic_partitions": lines}
    return msgspec.structs.replace(ADOPTION, adopted_at_ms=minute * MINUTE_MS, **changes)


def foreign_to(group: OurGroup, *records: FlushRecord | Adoption, topic_ids: dict[str, str] = IDS) -> list[Foreign]:
    """Give who is foreign."""
    history = FlushHistory([APP_0, APP_9], group=group, topics=SourceTopics(topic_ids))
    for one in records:
        history.add(one)
    return history.foreign


OURS = OurGroup(GROUP, alone_on=["app"])
THEIRS = record(30, 100, group_id="another")


def test_adoption_by_the_group_says_where_it_goes_on() -> None:
    """The group goes on as after a flush record of its own; an adoption by another group has no effect on it."""
    assert of(adoption(GROUP, "old", 100)) == {APP_0: 100}
    assert of(adoption(GROUP, "old", 100, minute=40), record(70, 300)) == {APP_0: 300}
    assert of(adoption("another", GROUP, 100)) == {}


def test_group_that_flushes_the_same_topic_is_foreign() -> None:
    """It is not if its name is accepted, or if our group need not be alone on that topic."""
    assert foreign_to(OURS, record(1, 50), THEIRS) == [Foreign("other", "another", (APP_0, 100))]
    assert foreign_to(OURS, record(1, 50)) == []
    assert foreign_to(OURS._replace(accepted=["another"]), THEIRS) == []
    assert foreign_to(OURS._replace(alone_on=["web"]), THEIRS) == []
    assert foreign_to(OURS._replace(alone_on=SourceNames(["^a.*"])), THEIRS) == [
        Foreign("other", "another", (APP_0, 100))
    ]


def test_group_of_another_topic_of_the_same_name_is_not_foreign() -> None:
    """By id; one that is not known, here or there, is no other one."""
    assert foreign_to(OURS, THEIRS, topic_ids={"app": "made anew"}) == []
    assert foreign_to(OURS, THEIRS, topic_ids={}) != []
    assert foreign_to(OURS, msgspec.structs.replace(THEIRS, topic_ids={})) != []


def test_adopted_group_is_part_of_the_history_up_to_the_adopted_offset() -> None:
    """Its later flushes are not, nor is another adoption of it."""
    adopted = adoption(GROUP, "another", 100)
    assert foreign_to(OURS, THEIRS, adopted) == []
    assert foreign_to(OURS, THEIRS, adopted, record(50, 101, group_id="another")) == [
        Foreign("beyond", "another", (APP_0, 101))
    ]
    assert foreign_to(OURS, THEIRS, adopted, adoption("third", "another", 100)) == [
        Foreign("heir", "third", (APP_0, 100))
    ]


def test_group_that_was_adopted_finds_its_heir() -> None:
    """It finds an heir that has flushed nothing yet, and one that was adopted in its turn."""
    ours = [record(1, 100), adoption("heir", GROUP, 100)]
    assert foreign_to(OURS, *ours) == [Foreign("heir", "heir", (APP_0, 100))]
    twice = [*ours, record(50, 300, group_id="heir"), adoption("last", "heir", 300)]
    assert {one.group_id for one in foreign_to(OURS, *twice)} == {"heir", "last"}
    assert foreign_to(OurGroup("last", alone_on=["app"]), *twice) == []


def test_flushes_of_an_adopted_group_where_nothing_was_adopted_are_of_another_group() -> None:
    """A topic that was forgotten when the group was renamed: to accept the old one would publish it all again."""
    lines = tuple(msgspec.structs.replace(line, topic="web") for line in THEIRS.topic_partitions)
    web = msgspec.structs.replace(THEIRS, topic_partitions=lines)
    older = msgspec.structs.replace(adoption("another", "first"), topic_partitions=adoption("", "").topic_partitions)
    both = OURS._replace(alone_on=["app", "web"])
    assert foreign_to(both, THEIRS, web, adoption(GROUP, "another"), older) == [
        Foreign("other", "another", (TopicPartition("web", 0), 100))
    ]


def test_adopted_group_that_a_person_had_set_back_before_is_part_of_the_history() -> None:
    """Flushes beyond the adopted offset, long before the adoption, do not make the group foreign; later ones do."""
    further, again = record(10, 1000, group_id="another"), record(30, 500, group_id="another")
    adopted = adoption(GROUP, "another", 500, minute=40)
    for some in permutations([further, again, adopted]):
        assert foreign_to(OURS, *some) == []
        assert foreign_to(OURS, *some, record(41, 600, group_id="another")) == [
            Foreign("beyond", "another", (APP_0, 600))
        ]
