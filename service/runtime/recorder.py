"""DATA PLANE 1: source record -> entries -> PartitionKey -> row -> file of that PartitionKey -> offset covered.

Reads top to bottom in `Recorder.record`. Nothing here knows of flushes or rebalances: the controller asks
`accepts`, hands records over one by one and takes what is open when it flushes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from service.core.announcements import dead_letters_of
from service.core.batch import Batch, Ledger, Ledgers
from service.core.container import SYNC_BYTES, Codec
from service.core.dead_letter import Reason
from service.core.decode import Bad, Decoded, RecordDecoder
from service.core.flush_policy import FlushLoad
from service.core.model import PartitionKey, RootLink, SourceRecord
from service.core.partition_file import DECODED_WEIGHT, FileBounds, PartitionFile, SchemaFullError
from service.core.partition_key import Placed, Placer, Unplaceable
from service.core.row_meta import encode_id, encode_meta, encode_origin, encode_rest, encode_user
from service.core.schema_infer import TooDeepError, TooManyFieldsError
from service.runtime.ports import Spool


class RecorderRules(NamedTuple):
    """What the recorder is made of."""

    decoder: RecordDecoder
    placer: Placer
    bounds: FileBounds
    codec: Codec
    memory_bytes_max: int
    root_of: Callable[[SourceRecord], RootLink | None]


class _OpenFile(NamedTuple):
    file: PartitionFile
    user: bytes


class Recorder:
    """Owns the ledgers, the open batch and its files; used by the loop thread only."""

    def __init__(self, rules: RecorderRules, spool: Spool) -> None:
        self.ledgers = Ledgers()
        self.batch: Batch | None = None
        self.outcomes: Counter[str] = Counter()
        self._rules = rules
        self._spool = spool
        self._open: dict[PartitionKey, _OpenFile] = {}
        self._full: list[PartitionFile] = []
        self._next_number = 0  # never starts again: a file that could not be deleted is never appended to
        self._memory_bytes = 0
        self._row_bytes = 0
        self._sync = os.urandom(SYNC_BYTES)

    @property
    def covers(self) -> bool:
        """Whether the open batch covers any offset."""
        return not self.ledgers.is_empty

    @property
    def files(self) -> list[PartitionFile]:
        """All files of the open batch that have rows; those of one PartitionKey in the order of their rows."""
        return [*self._full, *(opened.file for opened in self._open.values() if opened.file.rows)]

    def load(self, estimate: Callable[[int, int], float]) -> FlushLoad:
        """Tell what the open batch holds; `estimate(files, row bytes)` gives seconds."""
        batch = self.batch
        files = len(self._open) + len(self._full)
        return FlushLoad(
            source_bytes=batch.source_bytes if batch else 0,
            spool_bytes=self._spool.bytes_on_disk,
            entries=batch.entries if batch else 0,
            files=files,
            estimate_s=estimate(files, self._row_bytes),
        )

    def accepts(self, record: SourceRecord) -> bool:
        """Whether the record is the ledger's next: owned, and not covered already."""
        ledger = self.ledgers.by_tp.get(record.tp)
        return ledger is not None and record.offset >= ledger.next_offset

    def record(self, record: SourceRecord) -> None:
        """Put every entry of a record into a file or a dead letter, then cover its offset.

        Raises:
            SpoolError: the disk refused; the batch has to be discarded, the record is half written.
        """
        batch, ledger = self.batch, self.ledgers.by_tp[record.tp]
        assert batch is not None, "a batch is opened before its first record"
        decoded = self._rules.decoder.decode(record.value)
        bad = decoded.bad + self._write_entries(record, decoded)
        self._bury(record, bad, batch, ledger)
        ledger.entries += len(decoded.entries) + len(decoded.bad)
        ledger.entries_in_files += len(decoded.entries) + len(decoded.bad) - len(bad)
        ledger.cover(record.offset, timestamp_ms=record.timestamp_ms)
        batch.entries += len(decoded.entries) + len(decoded.bad)
        batch.source_bytes += max(decoded.size, len(record.value or b""))
        self.outcomes["written"] += len(decoded.entries) + len(decoded.bad) - len(bad)
        if self._memory_bytes > self._rules.memory_bytes_max:
            self._relieve_memory()

    def forget_batch(self) -> None:
        """Forget all files: their batch is committed or discarded, the spool is cleared by the caller."""
        self._open.clear()
        self._full.clear()
        self._memory_bytes = 0
        self._row_bytes = 0
        self._sync = os.urandom(SYNC_BYTES)
        self.batch = None

    def _write_entries(self, record: SourceRecord, decoded: Decoded) -> list[Bad]:
        """Write the entries of one record; returns what could not be written."""
        bad: list[Bad] = []
        if not decoded.entries:
            return bad
        rules = self._rules
        origin = encode_origin(record)
        root = rules.root_of(record)
        rest = encode_rest(record.timestamp_ms, root)
        wire_bytes = decoded.size // len(decoded.entries)
        for index, entry in decoded.entries:
            placed = rules.placer.place(entry, decoded.envelope, record)
            if isinstance(placed, Unplaceable):
                bad.append(Bad(index, placed.reason, placed.message))
                continue
            opened = self._open.get(placed.key) or self._open_file(placed.key)
            meta = encode_meta(
                user=opened.user,
                event_time_us=placed.event_time_us,
                unique_id=encode_id(placed.unique_id),
                origin=origin,
                index=index,
                rest=rest,
            )
            try:
                self._append(opened.file, meta, entry, placed, record, root=root, wire_bytes=wire_bytes)
            except TooDeepError as error:
                bad.append(Bad(index, Reason.TOO_DEEP, str(error)))
            except TooManyFieldsError as error:
                bad.append(Bad(index, Reason.TOO_MANY_FIELDS, str(error)))
            else:
                self._memory_bytes += DECODED_WEIGHT * (wire_bytes + len(meta))
                if placed.fallback_time:
                    self.outcomes["record_timestamp"] += 1
        return bad

    def _append(
        self,
        file: PartitionFile,
        meta: bytes,
        entry: dict[str, object],
        placed: Placed,
        record: SourceRecord,
        *,
        root: RootLink | None,
        wire_bytes: int,
    ) -> None:
        """Append to the file of the PartitionKey, or to its next one where the schema has no more room."""
        before = file.row_bytes
        try:
            file.append(
                meta,
                entry,
                tp=record.tp,
                offset=record.offset,
                event_time_us=placed.event_time_us,
                root=root,
                wire_bytes=wire_bytes,
            )
        except SchemaFullError:
            self._close_file(file)
            again = self._open_file(placed.key).file
            self._append(again, meta, entry, placed, record, root=root, wire_bytes=wire_bytes)
            return
        self._row_bytes += file.row_bytes - before
        if file.is_full:
            self._close_file(file)
        elif file.block_is_full:
            self._spill(file)

    def _open_file(self, key: PartitionKey) -> _OpenFile:
        file = PartitionFile(
            key, number=self._next_number, bounds=self._rules.bounds, codec=self._rules.codec, sync=self._sync
        )
        self._next_number += 1
        opened = self._open[key] = _OpenFile(file, encode_user(key.user))
        return opened

    def _close_file(self, file: PartitionFile) -> None:
        """Take no more rows into this file; the PartitionKey goes on in a new one."""
        assert file.rows, "a file without rows has room for any entry that fits at all"
        self._spill(file)
        self._full.append(file)
        del self._open[file.key]

    def _spill(self, file: PartitionFile) -> None:
        block = file.take_block()
        if block:
            self._spool.append(file.number, block)

    def _relieve_memory(self) -> None:
        """Bring rows to disk, largest files first, until half of the memory is free.

        What was counted is the most it can be; nothing is done where it is well under the limit, counted anew.
        """
        in_memory = sorted(self.files, key=lambda file: file.memory_bytes, reverse=True)
        total = sum(file.memory_bytes for file in in_memory)
        if total <= self._rules.memory_bytes_max * 3 // 4:
            in_memory = []
        for file in in_memory:
            if total <= self._rules.memory_bytes_max // 2:
                break
            total -= file.memory_bytes
            self._spill(file)
        self._memory_bytes = total

    def _bury(self, record: SourceRecord, bad: Iterable[Bad], batch: Batch, ledger: Ledger) -> None:
        for letter in dead_letters_of(record, bad):
            batch.dead_letters.append(letter)
            ledger.dead_letters += letter.entries
            self.outcomes[letter.reason.value] += letter.entries
