"""`log-partitioner offsets`: arguments, the question before records are published twice or skipped, and exit codes.

Exit codes: 0 every TopicPartition is as requested; 1 it does not: refused, not confirmed, not known, or a
TopicPartition was left (a dry run: would be); 2 settings or arguments are wrong.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import structlog

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.admin import commit_offsets, require_nobody
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.consumer import KafkaConsumer
from log_partitioner.adapters.kafka.flush_records import KafkaFlushRecords
from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.adapters.kafka.topics import Search, source_topics_of
from log_partitioner.adapters.logs import configure
from log_partitioner.batch.messages import Sender, adoption_messages
from log_partitioner.boundary import END_OFFSET, Message
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_history import OurGroup
from log_partitioner.errors import SettingsError, SourceError
from log_partitioner.formats.log_events import OffsetsSkipped, tell
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.offsets.plans import Change, Target, plan_adoption, plan_changes, plan_skip
from log_partitioner.offsets.survey import ANSWER_S, Survey

NAME = "offsets"  # of this program, in place of a worker's name
_ACTIONS = {
    "show": "show what is committed and flushed, and what the log holds",
    "set": "set committed offsets; asks before records are published twice or skipped",
    "skip": "skip offsets that cannot be read: they become one dead letter; asks before",
    "adopt": "let the group of the settings go on at the offsets of another group, which has stopped",
}
_MEANINGS: dict[str, Target] = {"committed": "committed", "flushed": "flushed", "beginning": "beginning"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    show, change, skip, adopt = (
        actions.add_parser(action, help=text, description=text) for action, text in _ACTIONS.items()
    )
    show.add_argument("--topic", help="source topic; default: all of kafka.source_topics")
    for action in (change, skip, adopt):
        action.add_argument("--topic", required=True, help="source topic")
        action.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    for action in (change, skip):
        action.add_argument(
            "--yes", action="store_true", help="do not ask before records are published twice or skipped"
        )
    change.add_argument("--partition", type=int, action="append", default=[], help="only this partition (repeatable)")
    change.add_argument(
        "--to", type=_target, required=True, metavar="PLACE",
        help="committed: stay, and take the offset for one of the topic and log of now; flushed: where the flush "
        "records of this group end; beginning: the first offset of the log; or an offset, of exactly one --partition",
    )  # fmt: skip
    skip.add_argument("--partition", type=int, required=True, help="its partition")
    skip.add_argument(
        "--from", type=int, required=True, dest="first", metavar="OFFSET",
        help="the first one to skip: the committed one",
    )  # fmt: skip
    skip.add_argument(
        "--to", type=int, dest="end", metavar="OFFSET",
        help="the first one that is read again; default: the first that can be, which is looked for",
    )  # fmt: skip
    adopt.add_argument("--from", required=True, dest="from_group", metavar="GROUP", help="the group that has stopped")


def _target(text: str) -> Target:
    if text in _MEANINGS:
        return _MEANINGS[text]
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither an offset nor one of {', '.join(_MEANINGS)}") from None


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Run one of the commands; returns the exit code.

    Raises:
        LogPartitionerError: refused, or not known.
    """
    boot = secrets.token_hex(4)
    level = "info" if options.action == "skip" else "warning"
    configure(level=level, style=settings.log.format, worker=NAME, boot=boot, stream=sys.stderr)
    if options.action == "show":
        return _show(settings, [options.topic] if options.topic else source_topics_of(settings.kafka))
    if options.action == "adopt":
        return _adopt(options, settings)
    if options.action == "skip":
        return _skip(options, settings, boot)
    return _set(options, settings)


def _show(settings: Settings, topics: Sequence[str]) -> int:
    for topic in topics:
        with _Asking(settings, topic) as asking:
            sys.stdout.write("".join(f"{line}\n" for line in asking.survey().show()))
    return 0


def _set(options: argparse.Namespace, settings: Settings) -> int:
    with _Asking(settings, options.topic) as asking:
        survey = asking.survey()
        changes = plan_changes(survey, options.to, options.partition)
    sys.stdout.write("".join(f"{_line(survey, one)}\n" for one in changes))
    wanted = {one.tp: one.after for one in changes if one.after is not None}
    if wanted and not options.dry_run:
        if not is_confirmed(_cost(changes), is_yes=options.yes):
            return 1
        commit_offsets(asking.options, settings.kafka.group_id, wanted, timeout_s=ANSWER_S)
        sys.stdout.write(f"{len(wanted)} offsets of group {settings.kafka.group_id} are set\n")
    elif cost := _cost(changes):
        sys.stdout.write(f"{cost}: this asks for --yes\n")
    return 0 if all(one.is_met for one in changes) else 1


def _line(survey: Survey, change: Change) -> str:
    before = survey.describe(change.before)
    if change.after is None:
        return f"{change.tp}: {before}, left: {change.note}"
    costs = [
        f"{count} {words}" for count, words in ((change.twice, "published twice"), (change.skipped, "skipped")) if count
    ]
    return f"{change.tp}: {before} -> {survey.describe(change.after)}" + "".join(f", {cost}" for cost in costs)


def _cost(changes: Sequence[Change]) -> str:
    """Say how many records are published twice or skipped; empty if none are."""
    twice, skipped = sum(one.twice for one in changes), sum(one.skipped for one in changes)
    costs = []
    if twice:
        costs.append(f"up to {twice} records would be published a second time")
    if skipped:
        costs.append(f"up to {skipped} records would be skipped, and in no output")
    return "; ".join(costs)


def is_confirmed(cost: str, *, is_yes: bool) -> bool:
    """Ask whether a cost is meant, if there is one; without a terminal only `--yes` says so."""
    if not cost or is_yes:
        return True
    if not sys.stdin.isatty():
        sys.stderr.write(f"{cost}. Nothing is changed: repeat the command with --yes if that is meant\n")
        return False
    sys.stderr.write(f"{cost}. Go on? Type yes: ")
    return sys.stdin.readline().strip() == "yes"


def _skip(options: argparse.Namespace, settings: Settings, boot: str) -> int:
    kafka, tp, first = settings.kafka, TopicPartition(options.topic, options.partition), options.first
    with _Asking(settings, tp.topic) as asking:
        require_nobody(asking.options, [kafka.group_id], timeout_s=ANSWER_S)
        end = asking.readable_from(tp, first) if options.end is None else options.end
        skip = plan_skip(asking.survey(), tp.partition, first, end, group_id=kafka.group_id)
        sys.stdout.write(f"{tp}: the offsets {first} to {end - 1} become one dead letter, the group goes on at {end}\n")
        cost = f"up to {end - first} records would be skipped, and in no object"
        if options.dry_run:
            sys.stdout.write(f"{cost}: this asks for --yes\n")
            return 0
        if not is_confirmed(cost, is_yes=options.yes):
            return 1
        messages = skip.messages(
            Sender(NAME, boot, kafka, settings.s3.bucket), message_bytes_max=kafka.message_bytes_max
        )
        asking.commit(messages, {tp: skip.after})
        told = OffsetsSkipped(kafka.group_id, *tp, offset=first, end_offset=end)
        tell(structlog.get_logger("offsets").info, told)
        require_nobody(asking.options, [kafka.group_id], timeout_s=ANSWER_S)
    return 0


def _adopt(options: argparse.Namespace, settings: Settings) -> int:
    kafka, topic = settings.kafka, options.topic
    groups = (options.from_group, kafka.group_id)
    if options.from_group == kafka.group_id:
        raise SettingsError([f"--from {options.from_group} is kafka.group_id: set that to the name of the new group"])
    old = settings.model_copy(update={"kafka": kafka.model_copy(update={"group_id": options.from_group})})
    with _Asking(settings, topic) as heir, _Asking(old, topic, accepted=kafka.accept_groups) as stopped:
        require_nobody(heir.options, groups, timeout_s=ANSWER_S)
        plan = plan_adoption(
            stopped.survey(), heir.survey(), from_group=options.from_group, group_id=kafka.group_id, topic=topic
        )
        for tp, one in plan.offsets.items():
            sys.stdout.write(f"{tp}: group {kafka.group_id} goes on at {one.offset}\n")
        if options.dry_run:
            return 0
        messages = adoption_messages(
            plan.adoption, Sender(NAME, "", settings.kafka, settings.s3.bucket), partitions=heir.flushes_partitions()
        )
        heir.commit(messages, plan.offsets)
        require_nobody(heir.options, groups, timeout_s=ANSWER_S)
    sys.stdout.write(
        f"group {kafka.group_id} has adopted {options.from_group} on topic {topic}: start its workers, and never again "
        f"those of {options.from_group}\n"
    )
    return 0


class _Asking:
    """The clients of one group."""

    def __init__(self, settings: Settings, topic: str, *, accepted: Sequence[str] | None = None) -> None:
        """Make the clients; they look for groups beside this one if `accepted` names those to ignore."""
        self._settings, self._topic, kafka = settings, topic, settings.kafka
        self._clock = SystemClock()
        self.options = consumer_options(settings, worker=NAME)
        alone_on = () if accepted is None else (topic,)
        group = OurGroup(kafka.group_id, alone_on=alone_on, accepted=accepted or ())
        self._consumer = KafkaConsumer(self.options, [topic])
        self._flush_records = KafkaFlushRecords(self.options, kafka.flushes_topic, group=group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def survey(self) -> Survey:
        """Ask of the topic."""
        accepted = self._settings.kafka.accept_unknown_history
        return Survey(self._consumer, self._flush_records, self._topic, self._clock, accept_unknown=accepted)

    def readable_from(self, tp: TopicPartition, first: int) -> int:
        """Look for the first offset behind `first` that can be read, or the end of the log.

        Raises:
            SourceError: `first` can be read, or the broker cannot tell.
        """
        log_end = self._consumer.offsets_at([tp], END_OFFSET, deadline=self._deadline())[tp]
        end = Search(self.options, tp, self._deadline()).readable_from(first, log_end)
        if end == first:
            raise SourceError(f"{tp}: offset {first} can be read: to skip it all the same, name the end by --to")
        return end

    def flushes_partitions(self) -> list[int]:
        """Return the partitions of the flushes topic."""
        return [
            tp.partition
            for tp in self._consumer.partitions_of(self._settings.kafka.flushes_topic, deadline=self._deadline())
        ]

    def commit(self, messages: Iterable[Message], offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit messages and offsets in one transaction.

        Raises:
            SourceError: nothing is committed, or the outcome is not known.
        """
        options = producer_options(
            self._settings, worker=NAME, transactional_id=self._settings.offsets_transactional_id
        )
        committer = KafkaCommitter(options, init_budget_s=ANSWER_S, clock=self._clock)
        committer.commit_without_member(messages, offsets, self._consumer.membership(), deadline=self._deadline())

    def _deadline(self) -> Deadline:
        return Deadline.after(ANSWER_S, self._clock.now_s)
