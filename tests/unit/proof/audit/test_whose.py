"""The audit of one group among several: whose messages it takes, and that nothing to audit is not clean."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from log_partitioner.config.settings import KafkaSettings
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.dead_letter import DeadLetter, Reason
from log_partitioner.formats.findings import Kind
from log_partitioner.formats.flush_record import AdoptedTopicPartition, Adoption
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.proof.accounting import ExitCode
from log_partitioner.proof.audit.whose import Groups
from tests.unit.proof.audit.world import APP_0, APP_1, GROUP, World, clean_world, record

OTHER = "another"


def renamed(world: World, group_id: str, batches: set[str]) -> World:
    """Let these batches of a built world be another group's."""
    for number, message in enumerate(world.messages):
        if message.batch_id in batches:
            world.change_message(number, group_id=group_id)
    world.flush_records = [
        msgspec.structs.replace(one, group_id=group_id) if one.batch_id in batches else one
        for one in world.flush_records
    ]
    world.dead_letters = [_renamed(one, group_id, batches) for one in world.dead_letters]
    return world


def _renamed(letter: SourceRecord, group_id: str, batches: set[str]) -> SourceRecord:
    values = dict(letter.headers)
    if (values["lp-batch-id"] or b"").decode() not in batches:
        return letter
    headers = ((name, group_id.encode() if name == "lp-group-id" else value) for name, value in letter.headers)
    return letter._replace(headers=tuple(headers))


def adoption(ends: dict[TopicPartition, int], *, group_id: str = GROUP, from_group: str = OTHER) -> Adoption:
    """Say that the group goes on at these offsets."""
    lines = tuple(
        AdoptedTopicPartition(topic=tp.topic, partition=tp.partition, next_offset=n) for tp, n in ends.items()
    )
    return Adoption(group_id=group_id, from_group=from_group, topic_ids={}, adopted_at_ms=0, topic_partitions=lines)


def with_a_double() -> World:
    """Give a world in which another group has published everything, too, under batches of its own."""
    world, other = clean_world().build(), clean_world().build()
    for number, message in enumerate(other.messages):
        other.change_message(number, batch_id=f"o-{message.batch_id}")
    other.flush_records = [msgspec.structs.replace(one, batch_id=f"o-{one.batch_id}") for one in other.flush_records]
    other.dead_letters = [
        one._replace(headers=tuple((n, b"o-" + (v or b"") if n == "lp-batch-id" else v) for n, v in one.headers))
        for one in other.dead_letters
    ]
    renamed(other, OTHER, {"o-b1", "o-b2"})
    world.messages += other.messages
    world.flush_records += other.flush_records
    world.dead_letters += other.dead_letters
    return world


def nobody(world: World) -> World:
    world.committed = {APP_0: None, APP_1: None}
    return world


def test_group_that_never_was_could_not_tell_and_is_told_which_groups_there_are() -> None:
    """A typo in its name: nothing committed, no flush record, and nothing wrong with the messages of another."""
    report = nobody(clean_world().build()).audit(caught_up=False, kafka={"group_id": "log-partitoner"})
    assert report.exit_code is ExitCode.COULD_NOT_TELL
    (doubt,) = report.findings.doubts
    assert doubt.endswith(
        f"group log-partitoner has neither flush records nor work committed; flush records are of {GROUP}"
    )


def test_topics_without_any_group_could_not_tell() -> None:
    """No group has ever flushed, and there is a source."""
    world = nobody(clean_world())
    report = world.audit(caught_up=False)
    assert report.exit_code is ExitCode.COULD_NOT_TELL
    assert "there are no flush records at all" in report.findings.doubts[0]


def test_worker_that_waits_for_the_first_record_is_clean() -> None:
    """Its start positions are committed, and the source holds nothing."""
    world = World([], [], [], {}, {APP_0: 0, APP_1: 0}, {APP_0: 0, APP_1: 0})
    assert world.audit(caught_up=False).exit_code is ExitCode.CLEAN


def test_topic_partition_that_was_flushed_and_has_no_offset_is_a_finding() -> None:
    """Its flush records may cover nothing: an offset was committed with each."""
    world = clean_world().build()
    line = msgspec.structs.replace(
        world.flush_records[1].topic_partitions[0], partition=2, first_offset=7, next_offset=7, min_offset=None,
        max_offset=None, records=0, entries=0, dead_letters=0,
    )  # fmt: skip
    lines = (*world.flush_records[1].topic_partitions, line)
    world.flush_records[1] = msgspec.structs.replace(world.flush_records[1], topic_partitions=lines)
    report = world.audit(caught_up=False)
    assert report.findings.examples == {
        Kind.FLUSH_WRONG: ["app-2: flush records name it, and the group has no committed offset"]
    }


def test_reference_to_another_bucket_is_a_finding() -> None:
    """Who follows it finds nothing there, or something else."""
    world = clean_world().build()
    world.change_object(0, bucket="another-bucket")
    report = world.audit()
    (text,) = report.findings.examples.pop(Kind.REFERENCE_WRONG)
    assert report.findings.examples == {}
    assert "in bucket another-bucket, the settings say bucket" in text


@pytest.mark.parametrize("reason", [Reason.FATAL, Reason.UNKNOWN_SCHEMA])
@pytest.mark.parametrize(("value", "notes"), [({"user": "bob", "time": "2024-05-01T10:01:00Z"}, 1), (b"\x01", 0)])
def test_dead_letter_that_is_taken_at_its_word_is_told_if_its_record_decodes(
    value: object, notes: int, reason: Reason
) -> None:
    """It is accounted for, so that it is no finding; one that no decoder takes is as it should be."""
    bad = record(APP_0, 0, value)
    letter = DeadLetter(bad, reason, "", None)
    world = World([bad], [], [("b1", letter)], {"b1": {APP_0: (0, 1)}}, {APP_0: 1}, {APP_0: 1}).build()
    report = world.audit()
    assert report.exit_code is ExitCode.CLEAN
    expected = [f"app-0 offset 0: its dead letter is {reason}, and it decodes here: look at it, and replay it"]
    assert report.findings.notes == expected[:notes]


# Several groups.


def test_two_groups_of_a_source_topic_are_refused_by_name_unless_one_is_named() -> None:
    """Named, each is audited for itself; a note says what was left out."""
    with pytest.raises(CouldNotTellError, match=f"groups {OTHER}, {GROUP} have flushed app: .* LOGP_KAFKA__GROUP_ID"):
        with_a_double().audit()
    for name in (GROUP, OTHER):
        report = with_a_double().audit(kafka={"group_id": name})
        assert report.findings.examples == {}
        assert report.exit_code is ExitCode.CLEAN
        (note,) = report.findings.notes
        assert note.startswith("9 messages are of group ")


def adopted_world() -> World:
    """Give a world whose first batch was another group's, which has been adopted since."""
    world = renamed(clean_world().build(), OTHER, {"b1"})
    world.adoptions = [adoption({APP_0: 2, APP_1: 1})]
    return world


@pytest.mark.parametrize("kafka", [{}, {"group_id": GROUP}, {"group_id": OTHER}])
def test_group_and_the_one_that_it_has_adopted_are_one_history(kafka: dict[str, str]) -> None:
    """By the name of either, and without one."""
    report = adopted_world().audit(kafka=kafka)
    assert report.findings.examples == {}
    assert (report.exit_code, report.findings.notes) == (ExitCode.CLEAN, [])
    assert report.group_id == GROUP


def adopt_less(world: World) -> None:
    world.adoptions = [adoption({APP_0: 1, APP_1: 1})]


def adopt_nothing(world: World) -> None:
    world.adoptions = [adoption({})]


@pytest.mark.parametrize("plant", [adopt_less, adopt_nothing])
def test_what_was_not_adopted_is_missing(plant: Callable[[World], None]) -> None:
    """Beyond the adopted offset the history has a hole."""
    world = adopted_world()
    plant(world)
    report = world.audit(kafka={"group_id": GROUP})
    assert report.findings.counts[Kind.MISSING]
    assert report.findings.counts[Kind.FLUSH_GAP]


def test_adoption_of_a_later_version_could_not_tell() -> None:
    """Half of a history would be called missing."""
    world = adopted_world()
    world.adoptions = [msgspec.structs.replace(world.adoptions[0], format_version=2)]
    with pytest.raises(CouldNotTellError, match="flushes-0 offset 0 is an adoption that this version does not read"):
        world.audit()


def test_references_whose_flush_record_is_another_groups_are_findings() -> None:
    """Nothing vouches for them."""
    world = clean_world().build()
    world.flush_records[0] = msgspec.structs.replace(world.flush_records[0], group_id=OTHER)
    report = world.audit(kafka={"group_id": GROUP})
    assert set(report.findings.examples) == {Kind.FLUSH_GAP, Kind.REFERENCE_WRONG}


def adopting(group_id: str, from_group: str, topic: str) -> Adoption:
    """Let a group adopt partition 0 of a topic from another."""
    return adoption({TopicPartition(topic, 0): 1}, group_id=group_id, from_group=from_group)


BOTH = {"a": {"app"}, "b": {"app"}}
TO_B = adopting("b", "a", "app")


@pytest.mark.parametrize("source_topics", [("app",), ("^a.*", "^ap[p]")])
@pytest.mark.parametrize(
    ("topics", "adoptions", "named", "chosen"),
    [
        ({"a": {"app"}}, [], None, "a"),  # the only one there is, whatever its name is
        ({"a": {"app"}, "b": {"web"}}, [], None, "a"),  # a staging release beside production, on the same outputs
        (BOTH, [TO_B], None, "b"),
        (BOTH, [TO_B], "a", "b"),
        (BOTH, [adopting("b", "a", "web")], "a", "a"),  # an adoption of another topic decides nothing
        (BOTH, [adopting("b", "a", "web")], None, CouldNotTellError("groups a, b have flushed (app|.*\\^ap.*):")),
        (BOTH, [TO_B, adopting("c", "a", "app")], "a", CouldNotTellError("groups b, c have all adopted a")),
        (BOTH, [TO_B, adopting("c", "a", "app")], "b", "b"),
        (BOTH, [TO_B, adopting("a", "b", "app")], "a", "a"),  # renamed, and named back
        (BOTH, [TO_B, adopting("a", "b", "app")], None, CouldNotTellError("a, b have adopted each other: .*GROUP_ID")),
    ],
)
def test_group_that_is_audited_is_the_one_that_goes_on(
    topics: dict[str, set[str]],
    adoptions: list[Adoption],
    named: str | None,
    chosen: str | CouldNotTellError,
    source_topics: tuple[str, ...],
) -> None:
    """It is one of the groups that have flushed the source topics; if the choice is not clear, the audit names them."""
    groups, given = Groups(), {} if named is None else {"group_id": named}
    groups.topics, groups.adoptions = topics, adoptions
    settings = KafkaSettings(bootstrap_servers="nowhere:1", source_topics=source_topics, **given)
    if isinstance(chosen, str):
        assert groups.lineage(settings).group_id == chosen
    else:
        with pytest.raises(CouldNotTellError, match=str(chosen)):
            groups.lineage(settings)
