"""`log-partitioner find`: the places of an entry, by its place in the source or by its unique id."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from log_partitioner.config.section import moment_of
from log_partitioner.config.settings import Settings
from log_partitioner.errors import DamagedError, NotFoundError, SettingsError
from log_partitioner.formats.dead_letter import parse_headers
from log_partitioner.formats.flush_record import FlushRecord
from log_partitioner.formats.model import SourceRecord, TopicPartition
from log_partitioner.formats.reference import Reference, decode_message
from log_partitioner.operations.output import Row, add_json, write_json, write_lines, write_note
from log_partitioner.operations.status import flushes_of
from log_partitioner.proof.accounting import tp_of
from log_partitioner.proof.audit.store import Address, FetchedObject
from log_partitioner.proof.audit.window import FlushWindow
from log_partitioner.reader import Entry, Meta, Near, ReferencesTopic, Store, read, readable_meta, store_of, times_of
from log_partitioner.usage import argument_of


class SourcePlace(NamedTuple):
    """A record of the source, or one entry of it."""

    tp: TopicPartition
    offset: int
    entry: int | None = None

    def is_in(self, topic: str, partition: int, first: int, end: int) -> bool:
        """Return whether a range of offsets holds it."""
        return self.tp == (topic, partition) and first <= self.offset < end

    def is_of(self, meta: Meta) -> bool:
        """Return whether a row is its entry, or one of its entries."""
        place = ((meta["topic"], meta["partition"]), meta["offset"])
        return place == self[:2] and self.entry in (None, meta["index"])

    def is_near(self, message: SourceRecord) -> bool:
        """Return whether the batch of a message of references covers it."""
        covered = decode_message(message.value or b"").sources
        return any(self.is_in(one.topic, one.partition, one.first_offset, one.next_offset) for one in covered)

    def may_be_of(self, reference: Reference) -> bool:
        """Return whether a reference has entries from before it and from behind it, or it itself."""
        sources = reference.sources
        return any(self.is_in(one.topic, one.partition, one.min_offset, one.max_offset + 1) for one in sources)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "words", nargs="+", metavar="WORD",
        help="TOPIC PARTITION OFFSET [INDEX], the place of a record of the source, or of one of its entries; or a "
        "unique ID, with --user and --from",
    )  # fmt: skip
    parser.add_argument("--user", help="user of the entry with this ID")
    for name, dest, text in (("--from", "begin", "at this time or later"), ("--until", "end", "before this time")):
        told = f"its event time is {text}: ISO 8601, UTC"
        parser.add_argument(name, type=argument_of(moment_of), dest=dest, metavar="TIME", help=told)
    add_json(parser)


def main(options: argparse.Namespace, settings: Settings) -> int:
    """Find an entry: its reference, object and byte ranges, and the batch that committed it; or its dead letter.

    By its place: flush records from its Kafka timestamp on name the batch, whose dead letters, references and objects
    are read; if these do not have it, later ones are, since backfills publish later. By its unique id: all references
    of the user from that time on are read, and the objects that may hold it. The last line says how much was read.

    Example:
      log-partitioner find app-logs 3 118204
      log-partitioner find 7f3c21 --user ann --from 2026-03-04T05:00Z --until 2026-03-04T06:00Z

    Exit codes:
      0   found
      1   not found
      2   Kafka or the store do not tell, or settings or arguments are wrong

    More: docs/RUNBOOK.md
    """
    is_id = len(options.words) == 1
    if is_id and None in (options.user, options.begin):
        raise SettingsError([f"{options.words[0]}: to find a unique id, say of which --user, and --from which time on"])
    place = None if is_id else _place_of(options.words)
    count = 0
    with ReferencesTopic.connect(settings, write_note) as references:
        finder = Finder(references, store_of(settings))
        times = times_of(options.begin, options.end)
        rows = finder.at(place) if place else finder.with_id(options.words[0], options.user, times)
        for row in rows:
            count += 1
            if options.is_json:
                write_json(row)
            else:
                write_lines([*(f"{name:<14}{_text(value)}" for name, value in row.items() if name != "location"), ""])
        if is_id and not count:
            write_note("rows have an id only if id.paths was set when they were written: find others by their place")
        write_note(f"{count} found; {finder.told()}")
    return 0 if count else 1


def _place_of(words: list[str]) -> SourcePlace:
    try:
        topic, partition, offset, *index = words
        (entry,) = map(int, index) if index else (None,)
        return SourcePlace(TopicPartition(topic, int(partition)), int(offset), entry)
    except ValueError:
        raise SettingsError([f"{' '.join(words)}: a place is TOPIC PARTITION OFFSET [INDEX]"]) from None


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class Finder:
    """Finds entries; holds one object at a time."""

    def __init__(self, references: ReferencesTopic, store: Store) -> None:
        self.references = references
        self._store = store

    def get(self, address: Address, ranges: Iterable[tuple[int, int]] | None = None) -> FetchedObject | None:
        """Read as the store does, and count it."""
        found = self._store.get(address, ranges)
        if found is not None:
            self.references.count.update({"objects": 1, "bytes": len(found.data)})
        return found

    def told(self) -> str:
        """Say what was read."""
        return "read: " + ", ".join(f"{count:,} {what}" for what, count in sorted(self.references.count.items()))

    def at(self, place: SourcePlace) -> Iterator[Row]:
        """Yield the dead letters and the rows of a record, or of one of its entries."""
        timestamp_ms = self._timestamp_ms(place)
        if timestamp_ms is None:
            write_note(f"the source has no committed record at {place.tp} {place.offset}, or no more")
        window = FlushWindow(timestamp_ms).padded()
        if flush := self._flush(place, window):
            window = FlushWindow(flush.ended_at_ms, flush.ended_at_ms + 1).padded()
        else:
            goes_on = self.references.topics.committed([place.tp])[place.tp]
            write_note(f"no flush record has {place.tp} {place.offset}; the group goes on at {goes_on}")
        for published in (window, FlushWindow(window.until_ms)):
            is_found = False
            for letter in self._letters(place, published):
                is_found = is_found or place.entry is not None or letter["indexes"] is None
                yield letter
            near = Near(published, place.is_near, place.may_be_of)
            for row in () if is_found else self._rows(near, place.is_of):
                is_found = True
                yield row
            if is_found or window.until_ms is None:
                return

    def with_id(self, unique_id: str, user: str, event_times: FlushWindow) -> Iterator[Row]:
        """Yield the rows of a user with a unique id and such event times."""
        near = self.references.near(user, event_times)
        return self._rows(near, lambda meta: bool(meta["id"] == unique_id))

    def _timestamp_ms(self, place: SourcePlace) -> int | None:
        """Return Kafka's timestamp of the record, if the source still has it."""
        first, end = self.references.topics.ends(place.tp)
        asked = {place.tp: (place.offset, place.offset + 1)} if first <= place.offset < end else {}
        return next((record.timestamp_ms for record in self.references.topics.read(asked)), None)

    def _flush(self, place: SourcePlace, since: FlushWindow) -> FlushRecord | None:
        """Look for the flush record that covers it: from its time on, then, since clocks of producers err, before."""
        for window in (since, FlushWindow(None, since.from_ms)) if since.from_ms else (since,):
            messages = self.references.messages(self.references.settings.kafka.flushes_topic, window)
            for record in flushes_of(self.references.settings.kafka.group_id, messages):
                for line in record.topic_partitions:
                    if place.is_in(line.topic, line.partition, line.first_offset, line.next_offset):
                        return record
        return None

    def _letters(self, place: SourcePlace, window: FlushWindow) -> Iterator[Row]:
        for message in self.references.messages(self.references.settings.kafka.dead_letters_topic, window):
            try:
                says = parse_headers(message.headers)
            except ValueError:
                continue  # no dead letter
            is_there = place.is_in(*says.tp, says.offset, says.next_offset)
            if is_there and (says.indexes is None or place.entry is None or place.entry in says.indexes):
                yield {
                    "found": "dead letter", "dead_letter": f"{message.tp} {message.offset}", "reason": says.reason,
                    "message": says.message, "topic": says.topic, "partition": says.partition, "offset": says.offset,
                    "indexes": says.indexes, "batch_id": says.batch_id, "group_id": says.group_id,
                }  # fmt: skip

    def _rows(self, near: Near, is_it: Callable[[Meta], bool]) -> Iterator[Row]:
        """Yield the rows that are searched for of the references that may hold them."""
        for some in self.references.by_message(near):
            try:
                yield from (_row(entry) for entry in read(some, self) if is_it(entry.meta))
            except (NotFoundError, DamagedError) as error:
                write_note(f"an object may have held it: {error}")


def _row(entry: Entry) -> Row:
    reference, meta = entry.reference, entry.meta
    assert reference is not None, "entries of references are read"
    _, date, hour = reference.partition_key
    tp = TopicPartition(meta["topic"], meta["partition"])
    return {
        "found": "row",
        **readable_meta(meta),
        "date": date, "hour": hour,
        "reference_id": reference.reference_id, "row": entry.number, "rows": reference.entries,
        "object": f"s3://{reference.location.bucket}/{reference.location.object}", "ranges": reference.location.ranges,
        "batch_id": reference.batch_id, "group_id": reference.group_id, "worker": reference.worker,
        "committed": next([one.first_offset, one.next_offset] for one in reference.sources if tp_of(one) == tp),
        "location": reference.location,
    }  # fmt: skip
