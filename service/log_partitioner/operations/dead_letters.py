"""`log-partitioner dead-letters list | show | replay`: arguments, text, exit codes."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from log_partitioner.adapters.clock import SystemClock
from log_partitioner.adapters.kafka.admin import topic_config
from log_partitioner.adapters.kafka.committer import KafkaCommitter
from log_partitioner.adapters.kafka.options import consumer_options, producer_options
from log_partitioner.adapters.kafka.topics import KafkaTopics, source_topics_of
from log_partitioner.batch.messages import Sender
from log_partitioner.config.section import seconds_of
from log_partitioner.config.settings import Settings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.offsets.command import is_confirmed
from log_partitioner.operations.letters import (
    Fetch,
    Letter,
    LetterChoice,
    LetterLog,
    Place,
    StaysError,
    record_of,
)
from log_partitioner.operations.output import Row, add_json, moment, write_json, write_lines, write_note, write_rows
from log_partitioner.operations.replay import NAME, Maker, ReplayRun, keeps_ms
from log_partitioner.proof.audit.store import Address, S3Reader
from log_partitioner.proof.audit.whose import Groups, of_group
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner.trial import Trial
from log_partitioner.usage import argument_of

SHOWN_MAX = 10
_ANSWER_S = 30.0
_RECORD_BYTES_MAX = 1_000_000_000  # a record of the source may be larger than any message that a worker writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    texts = {
        "list": "count them by day, topic and reason",
        "show": "print some of them whole, with their values",
        "replay": "put them back into their source topics, once",
    }
    for action, text in texts.items():
        command = actions.add_parser(action, help=text, description=text)
        command.add_argument("--reason", action="append", default=[], choices=[*map(str, Reason)], metavar="REASON",
                             help="only these (repeatable)")  # fmt: skip
        command.add_argument("--topic", action="append", default=[], help="only of this source topic (repeatable)")
        command.add_argument("--since", type=argument_of(seconds_of), metavar="DURATION",
                             help="only those written in the last 90s, 15m, 2h or 1d")  # fmt: skip
        add_json(command)
        if action == "show":
            command.add_argument("places", nargs="*", metavar="PARTITION/OFFSET",
                                 help="their places in the topic of dead letters; `list` names the newest")  # fmt: skip
            command.add_argument(
                "--limit", type=int, default=SHOWN_MAX, help="show at most so many (default: %(default)s)"
            )
        if action == "replay":
            command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
            command.add_argument("--yes", action="store_true", help="do not ask")


def main(options: argparse.Namespace, settings: Settings) -> int:
    """List dead letters, show some whole, or put them back into their source topics.

    `show` alone prints keys, headers and values of records, which hold what users have logged. `replay` takes what was
    not replayed yet: the record goes to its partition again, with key, headers and timestamp; if other entries of it
    were delivered, the dead ones alone go. Each transaction holds the mark that it was done, so that another run goes
    on where one was killed. Mend first what made them dead, and restart the workers.

    Example:
      log-partitioner dead-letters replay --reason no_user --since 2d --dry-run

    Exit codes:
      0   done: of `replay`, all that were chosen are back
      1   some stay, or it was not confirmed, or another replay has begun
      2   nobody could tell, or settings or arguments are wrong

    More: docs/RUNBOOK.md
    """
    kafka, groups = settings.kafka, Groups()
    with ExitStack() as opened:
        topics, ahead = (opened.enter_context(KafkaTopics.of(kafka)) for _ in range(2))
        groups.read_on(topics, kafka.flushes_topic)
        lineage = groups.lineage(kafka)
        settings = of_group(settings, lineage.group_id)
        chosen = LetterChoice(lineage, options.reason, options.topic)
        since_ms = None if options.since is None else round((time.time() - options.since) * 1000)
        log = LetterLog(topics, ahead, kafka.dead_letters_topic, FlushWindow(since_ms))
        log.read_on()
        if options.action == "list":
            write_rows(summaries(log.letters(chosen), log.replayed), is_json=options.is_json)
            return 0
        fetch = partial(_fetch, S3Reader(settings.s3, threads=1), settings.s3.bucket)
        if options.action == "show":
            return _show(options, log, chosen, fetch)
        return _replay(options, settings, log, chosen, fetch)


def _fetch(store: S3Reader, bucket: str, key: str) -> bytes | None:
    found = store.get(Address(bucket, key))
    return None if found is None else found.data


def summaries(letters: Iterable[Letter], replayed: set[Place]) -> list[Row]:
    """Count dead letters by the day on which they were written, topic and reason; the newest one of each is named."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for letter in letters:
        day = _moment(letter.message.timestamp_ms)[:10]
        key = day, letter.says.topic, letter.says.reason
        row = rows.setdefault(
            key, dict(zip(("day", "topic", "reason"), key, strict=True)) | {"letters": 0, "entries": 0, "replayed": 0}
        )
        row["letters"] += 1
        row["entries"] += letter.says.entries
        row["replayed"] += letter.place in replayed
        row["newest"] = letter.name
    return [row for _, row in sorted(rows.items())]


def _show(options: argparse.Namespace, log: LetterLog, chosen: LetterChoice, fetch: Fetch) -> int:
    places, found = set(options.places), 0
    for letter in log.letters(chosen):
        if places and letter.name not in places:
            continue
        if found == options.limit and not places:
            write_note(f"there are more than {found}: --limit shows more, --reason, --topic and --since choose")
            break
        found += 1
        shown = _shown(letter, fetch, is_replayed=letter.place in log.replayed)
        if options.is_json:
            write_json(shown)
        else:
            write_lines([*(f"{name}: {value}" for name, value in shown.items() if value is not None), ""])
    return 0 if found >= len(places) else 1


def _shown(letter: Letter, fetch: Fetch, *, is_replayed: bool) -> Row:
    says, message = letter
    head = {
        "place": letter.name,
        "written": _moment(message.timestamp_ms),
        "is_replayed": is_replayed,
        **msgspec.structs.asdict(says),
    }
    try:
        record = record_of(letter, fetch)
    except StaysError as error:
        return {**head, "missing": str(error)}
    headers = [(name, _text(value)) for name, value in record.headers]
    return {**head, "key": _text(record.key), "headers": headers, "value": _text(record.value)}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _replay(options: argparse.Namespace, settings: Settings, log: LetterLog, chosen: LetterChoice, fetch: Fetch) -> int:
    kafka, clock = settings.kafka, SystemClock()
    asked = consumer_options(settings, worker=NAME)
    kept = {topic: keeps_ms(topic_config(asked, topic, timeout_s=_ANSWER_S)) for topic in source_topics_of(kafka)}
    maker = Maker(settings, fetch, keeps_ms=kept, now_ms=clock.wall_ms())
    sender, within_s = Sender(NAME, "", kafka, settings.s3.bucket), settings.flush.transaction_timeout_s
    # Would they die again?
    trials = {topic: Trial(settings.of_topic(topic)) for topic in kept}
    plan = ReplayRun(log, maker, None, sender, clock, look=lambda record: trials[record.tp.topic].take(record))
    plan.run(chosen, within_s=within_s)
    if again := sum((trial.dead for trial in trials.values()), Counter[Reason]()):
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in again.most_common())
        entries = sum(trial.entries for trial in trials.values())
        write_note(f"by these settings {again.total():,} of {entries:,} entries would be dead letters again: {reasons}")
    if options.dry_run or not plan.back:
        _tell(plan, "would go back", is_json=options.is_json)
        return 1 if plan.refused else 0
    if not is_confirmed(f"{plan.back:,} dead letters would go back into their source topics", is_yes=options.yes):
        return 1
    producer = producer_options(settings, worker=NAME, transactional_id=settings.replay_transactional_id)
    committer = KafkaCommitter(
        {**producer, "message.max.bytes": _RECORD_BYTES_MAX}, init_budget_s=2 * within_s, clock=clock
    )
    replay = ReplayRun(log, maker, committer, sender, clock)
    try:
        replay.run(chosen, within_s=within_s)
    finally:
        _tell(replay, "are back", is_json=options.is_json)
    return 1 if replay.refused else 0


def _tell(run: ReplayRun, what: str, *, is_json: bool) -> None:
    for why, count in run.refused.most_common():
        write_note(f"{count:,} stay: {why}")
    if run.retimed:
        write_note(f"{run.retimed:,} are as old as what their topic deletes: they get the time of now")
    if is_json:
        write_json({"back": run.back, "again": run.again, "retimed": run.retimed, "stay": run.refused})
    else:
        write_lines([f"{run.back:,} dead letters {what}, {run.again:,} were replayed before"])


def _moment(at_ms: int | None) -> str:
    return "unknown" if at_ms is None else moment(at_ms)
