"""`log-partitioner offsets`: arguments, the question before records are published twice or skipped, and exit codes.

Exit codes: 0 what was asked for holds, in each TopicPartition that was asked for; 1 it does not: refused, not
confirmed, not known, or a TopicPartition was left (a dry run: would be); 2 settings or arguments are wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from service.batch.messages import Sender, adoption_messages
from service.config.settings import Settings
from service.control.deadline import Deadline
from service.control.flush_history import OurGroup
from service.errors import SettingsError
from service.offsets import adopting, setting
from service.offsets.setting import Change, Target
from service.offsets.survey import ANSWER_S, Survey

if TYPE_CHECKING:
    from service.adapters.kafka_consumer import KafkaConsumer

NAME = "offsets"  # of this program, where a worker's would stand
_MEANINGS: dict[str, Target] = {"committed": "committed", "flushed": "flushed", "beginning": "beginning"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    text = "show what is committed and flushed, and what the log holds"
    show = actions.add_parser("show", help=text, description=text)
    show.add_argument("--topic", help="source topic; default: all of kafka.source_topics")
    text = "set committed offsets; asks before records are published twice or skipped"
    action = actions.add_parser("set", help=text, description=text)
    action.add_argument("--topic", required=True, help="source topic")
    action.add_argument("--partition", type=int, action="append", default=[], help="only this one (repeatable)")
    action.add_argument(
        "--to",
        type=_target,
        required=True,
        metavar="PLACE",
        help="committed: stay, and take the offset for one of the topic and log of now; flushed: where the flush "
        "records of this group end; beginning: the first offset of the log; or an offset, of exactly one --partition",
    )
    _add_confirmation(action)
    text = "go on, as the group of the settings, where a group of another name has stopped"
    adopt = actions.add_parser("adopt", help=text, description=text)
    adopt.add_argument("--topic", required=True, help="source topic")
    adopt.add_argument("--from", required=True, dest="from_group", metavar="GROUP", help="the group that has stopped")
    adopt.add_argument("--dry-run", action="store_true", help="say what would be committed, and change nothing")


def _add_confirmation(action: argparse.ArgumentParser) -> None:
    action.add_argument("--dry-run", action="store_true", help="say what would be set, and change nothing")
    action.add_argument("--yes", action="store_true", help="do not ask, though records are published twice or skipped")


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
    from service.adapters.logs import configure  # noqa: PLC0415 - the other commands need no Kafka client

    configure(level="warning", style=settings.log.format, worker=NAME, boot="", stream=sys.stderr)
    if options.action == "show":
        return _show(settings, [options.topic] if options.topic else settings.kafka.source_topics)
    if options.action == "adopt":
        return _adopt(options, settings)
    return _set(options, settings)


def _show(settings: Settings, topics: Sequence[str]) -> int:
    for topic in topics:
        with _Asking(settings, topic) as asking:
            sys.stdout.write("".join(f"{line}\n" for line in asking.survey().show()))
    return 0


def _set(options: argparse.Namespace, settings: Settings) -> int:
    from service.adapters.kafka_offsets import commit_offsets  # noqa: PLC0415

    with _Asking(settings, options.topic) as asking:
        survey = asking.survey()
        changes = setting.plan(survey, options.to, options.partition)
    sys.stdout.write("".join(f"{_line(survey, one)}\n" for one in changes))
    wanted = {one.tp: one.after for one in changes if one.after is not None}
    if wanted and not options.dry_run:
        if not _is_confirmed(changes, is_yes=options.yes):
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
    """Say what records are published twice or skipped; empty where none are."""
    twice, skipped = sum(one.twice for one in changes), sum(one.skipped for one in changes)
    costs = []
    if twice:
        costs.append(f"up to {twice} records would be published a second time")
    if skipped:
        costs.append(f"up to {skipped} records would be skipped, and in no output")
    return "; ".join(costs)


def _is_confirmed(changes: Sequence[Change], *, is_yes: bool) -> bool:
    cost = _cost(changes)
    if not cost or is_yes:
        return True
    if not sys.stdin.isatty():
        sys.stderr.write(f"{cost}. Nothing is changed: repeat the command with --yes if that is meant\n")
        return False
    sys.stderr.write(f"{cost}. Go on? Type yes: ")
    return sys.stdin.readline().strip() == "yes"


def _adopt(options: argparse.Namespace, settings: Settings) -> int:
    from service.adapters.kafka_offsets import require_nobody  # noqa: PLC0415

    kafka, topic = settings.kafka, options.topic
    groups = (options.from_group, kafka.group_id)
    if options.from_group == kafka.group_id:
        raise SettingsError([f"--from {options.from_group} is kafka.group_id: set that to the name of the new group"])
    old = settings.model_copy(update={"kafka": kafka.model_copy(update={"group_id": options.from_group})})
    with _Asking(settings, topic) as heir, _Asking(old, topic, accepted=kafka.accept_groups) as stopped:
        require_nobody(heir.options, groups, timeout_s=ANSWER_S)
        plan = adopting.plan(
            stopped.survey(), heir.survey(), from_group=options.from_group, group_id=kafka.group_id, topic=topic
        )
        for tp, one in plan.offsets.items():
            sys.stdout.write(f"{tp}: group {kafka.group_id} goes on at {one.offset}\n")
        if options.dry_run:
            return 0
        heir.commit_adoption(plan)
        require_nobody(heir.options, groups, timeout_s=ANSWER_S)
    sys.stdout.write(
        f"group {kafka.group_id} has adopted {options.from_group} on topic {topic}: start its workers, and never again "
        f"those of {options.from_group}\n"
    )
    return 0


class _Asking:
    """The clients of one group."""

    def __init__(self, settings: Settings, topic: str, *, accepted: Sequence[str] | None = None) -> None:
        """Make them; groups beside this one are looked for where `accepted` says which are not to be told."""
        from service.adapters.clock import SystemClock  # noqa: PLC0415
        from service.adapters.kafka_consumer import KafkaConsumer  # noqa: PLC0415
        from service.adapters.kafka_flush_records import KafkaFlushRecords  # noqa: PLC0415
        from service.adapters.kafka_options import consumer_options  # noqa: PLC0415

        self._settings, self._topic, kafka = settings, topic, settings.kafka
        self._clock = SystemClock()
        self.options = consumer_options(settings, worker=NAME)
        alone_on = () if accepted is None else (topic,)
        group = OurGroup(kafka.group_id, alone_on=alone_on, accepted=accepted or ())
        self._consumer: KafkaConsumer = KafkaConsumer(self.options, [topic])
        self._flush_records = KafkaFlushRecords(self.options, kafka.flushes_topic, group=group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def survey(self) -> Survey:
        """Ask of the topic."""
        return Survey(
            self._consumer,
            self._flush_records,
            self._topic,
            clock=self._clock,
            accept_unknown=self._settings.kafka.accept_unknown_history,
        )

    def commit_adoption(self, plan: adopting.AdoptionPlan) -> None:
        """Commit offsets and adoption in one transaction.

        Raises:
            SourceError: nothing is committed, or nobody knows whether.
        """
        from service.adapters.kafka_committer import KafkaCommitter  # noqa: PLC0415
        from service.adapters.kafka_options import producer_options  # noqa: PLC0415

        settings, kafka = self._settings, self._settings.kafka
        deadline = Deadline.after(ANSWER_S, self._clock.now_s)
        partitions = self._consumer.partitions_of(kafka.flushes_topic, deadline=deadline)
        sender = Sender(
            worker=NAME,
            boot="",
            group_id=kafka.group_id,
            bucket=settings.s3.bucket,
            references_topic=kafka.references_topic,
            flushes_topic=kafka.flushes_topic,
            dead_letters_topic=kafka.dead_letters_topic,
        )
        messages = adoption_messages(plan.adoption, sender, partitions=[tp.partition for tp in partitions])
        options = producer_options(settings, worker=NAME, transactional_id=settings.offsets_transactional_id)
        committer = KafkaCommitter(options, init_budget_s=ANSWER_S, clock=self._clock)
        committer.commit_without_member(messages, plan.offsets, self._consumer.membership(), deadline=deadline)
