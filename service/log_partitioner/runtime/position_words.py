"""Sentences about refused start positions: the fault, its offsets, and the ways on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from log_partitioner.control.flush_history import Foreign
from log_partitioner.formats.model import CommittedOffset, TopicPartition

LISTED_MAX = 50  # TopicPartitions in one message

Answers = Mapping[TopicPartition, CommittedOffset | None]


def describe_lost(group_id: str, lost: Mapping[TopicPartition, int], answers: Answers) -> str:
    """Name the committed offsets that are gone or stale, and the offsets at which to go on."""
    places = listed(
        f"{tp} at {offset} (committed: {'nothing' if (one := answers[tp]) is None else one.offset})"
        for tp, offset in sorted(lost.items())
    )
    return (
        f"group {group_id} has lost committed offsets: what it has flushed says to go on with {places}. Stop "
        f"all workers of the group, then set them: {_commands('flushed', lost)}"
    )


def describe_theirs(
    group_id: str, theirs: Mapping[TopicPartition, CommittedOffset], known: Mapping[TopicPartition, int]
) -> str:
    """Name the committed offsets that somebody else has set, and the records that they would skip."""
    ranges = listed(f"{tp} from {known[tp]} to {one.offset - 1}" for tp, one in sorted(theirs.items()))
    return (
        f"somebody else has committed offsets of group {group_id}, such as a consumer with the same group.id "
        f"or a tool: going on there would skip records that nobody has flushed: {ranges}. Stop who does that, and "
        "all workers of the group, then go on where the flush records end: "
        f"{_commands('flushed', theirs)}; or skip these records: {_commands('committed', theirs)}"
    )


def describe_made_anew(topic: str, topic_id: str, offsets: Iterable[str]) -> str:
    """Say that committed offsets are of another topic of the same name."""
    return (
        f"topic {topic} was made anew under its name: its id is {topic_id}, but the committed "
        f"offsets of {listed(offsets)} are of another topic. Stop all workers of the group, then go on at these "
        f"offsets, where they name the same records (`{command('committed', topic)}`), or begin anew at the "
        f"topic's beginning (`{command('beginning', topic)}`)."
    )


def command(to: str, topic: str) -> str:
    """Write the command line that sets offsets of a topic."""
    return f"log-partitioner offsets set --topic {topic} --to {to}"


def _commands(to: str, tps: Iterable[TopicPartition]) -> str:
    return listed(f"`{command(to, topic)}`" for topic in sorted({tp.topic for tp in tps}))


def describe_foreign(foreign: Foreign, group_id: str) -> str:
    """Name the group that publishes the same, and the ways on."""
    (tp, offset), other = foreign.place, foreign.group_id
    if foreign.kind == "heir":
        return (
            f"group {other} has adopted the work of group {group_id} on topic {tp.topic}, {tp} at {offset}: both would "
            f"publish the same records. Set kafka.group_id to {other}; or stop that group for good, and go on where it "
            f"stopped under a new kafka.group_id: `{adopting(other, tp.topic)}`"
        )
    if foreign.kind == "beyond":
        return (
            f"group {other}, whose work group {group_id} has adopted, was started again: it has flushed {tp} up to "
            f"{offset}, and all it has flushed since the adoption is published twice. Stop it for good, then "
            f"add {other} to kafka.accept_groups; readers leave out what it has flushed since"
        )
    return (
        f"group {other} publishes topic {tp.topic} to the same topics as this worker's group {group_id}, {tp} up to "
        f"{offset}: everything would be published twice. Three ways on: other topics for this group "
        f"(kafka.references_topic, kafka.flushes_topic, kafka.dead_letters_topic, and another s3.prefix if wanted); is "
        f"{group_id} the new name of {other}, stop {other} for good and go on where it stopped: "
        f"`{adopting(other, tp.topic)}`; or, if both are meant, or {other} is stopped and its copies are left out by "
        f"readers, add {other} to kafka.accept_groups"
    )


def adopting(group_id: str, topic: str) -> str:
    """Write the command line that goes on with another group's work."""
    return f"log-partitioner offsets adopt --from {group_id} --topic {topic}"


def listed(names: Iterable[str]) -> str:
    """Join names; if there are very many, the command lists the rest."""
    each = list(names)
    more = f" and {len(each) - LISTED_MAX} more" if len(each) > LISTED_MAX else ""
    return ", ".join(each[:LISTED_MAX]) + more
