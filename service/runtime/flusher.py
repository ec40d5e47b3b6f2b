"""DATA PLANE 2: open batch -> sealed files -> objects -> references, flush record, dead letters and offsets, at once.

Reads top to bottom in `Flusher.flush`. On return everything of the batch is committed; on a DiscardError nothing is,
or (CommitUnknownError) the committed offsets tell. What that means is decided by the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from service.core.announcements import (
    SchemaPlace,
    Speaker,
    Uploaded,
    dead_letter_message,
    fitting_reference,
    flush_message,
    flush_record_of,
    is_oversized,
    object_metadata,
    reference_message,
    stored_letter,
)
from service.core.avro_schema import row_schema
from service.core.batch import Batch
from service.core.deadline import Deadline
from service.core.exchange import Clock, Membership, Message, SealedFile, StoredObject
from service.core.flush_policy import FlushCost, FlushReason
from service.core.lattice import Scalar
from service.core.model import TopicPartition
from service.core.object_key import data_key, schema_key
from service.core.partition_file import PartitionFile
from service.core.reference import Reference
from service.errors import CommitAbortedError, MembershipError, UploadError
from service.runtime.ports import Committer, Metrics, Spool
from service.runtime.recorder import Recorder
from service.runtime.uploader import Upload, Uploader, bytes_upload

KNOWN_SCHEMAS_MAX = 100_000
ILLEGAL_GENERATION = "ILLEGAL_GENERATION"


class FlushRules(NamedTuple):
    """What a flush is made of; sizes in bytes, budgets in seconds."""

    prefix: str
    upload_deadline_s: float
    commit_budget_s: float
    message_bytes_max: int
    inline: str
    inline_references_max: int
    inline_bytes_max: int


class FlushSummary(NamedTuple):
    """What a committed flush did; `seconds` per step."""

    batch_id: str
    seq: int
    references: int
    entries: int
    dead_letters: int
    records: int
    object_bytes: int
    json_fields: int
    seconds: Mapping[str, float]
    offsets: Mapping[TopicPartition, int]


class _Steps:
    """Measures the steps of one flush."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = clock.now_s()
        self.seconds: dict[str, float] = {}

    def done(self, step: str) -> None:
        now_s = self._clock.now_s()
        self.seconds[step] = self.seconds.get(step, 0.0) + now_s - self._last_s
        self._last_s = now_s


class Flusher:
    """Makes the open batch durable, then commits it; used by the loop thread only."""

    def __init__(
        self,
        *,
        rules: FlushRules,
        speaker: Speaker,
        recorder: Recorder,
        spool: Spool,
        uploader: Uploader,
        committer: Committer,
        membership: Callable[[], Membership],
        clock: Clock,
        metrics: Metrics,
        abandoned: Callable[[], bool],
    ) -> None:
        self.cost = FlushCost()
        self._rules = rules
        self._speaker = speaker
        self._recorder = recorder
        self._spool = spool
        self._uploader = uploader
        self._committer = committer
        self._membership = membership
        self._clock = clock
        self._metrics = metrics
        self._abandoned = abandoned
        self._seq = 0
        self._known_schemas: dict[str, None] = {}
        self._log = structlog.get_logger("flusher")

    def flush(self, reason: FlushReason, *, deadline: Deadline) -> FlushSummary:
        """Flush the open batch, within the deadline; blocks the loop thread.

        Raises:
            DiscardError: see its kinds; the batch is still here, to be discarded.
            StopError: the store refuses us.
        """
        batch = self._recorder.batch
        assert batch is not None, "a flush needs an open batch"
        membership = self._membership()  # taken when the batch is closed, not when it is sent (DESIGN 4.2)
        if membership.member_id != batch.member_id:
            # Opened as X; X is put out while a revoke waits for us, so nobody calls on_lost (TESTING 0.6); others read
            # on; we are in again as Y, and the broker would take Y's word for what X read.
            raise MembershipError(f"opened as member {batch.member_id!r}, now {membership.member_id!r}")
        self._recorder.ledgers.check()
        steps = _Steps(self._clock)
        files = self._recorder.files
        uploads_end = Deadline(deadline.at_s - self._rules.commit_budget_s, deadline.now_s)
        uploads_end = uploads_end.at_most(self._rules.upload_deadline_s)
        sealed, pending = self._seal_and_submit(files, batch, uploads_end)
        steps.done("seal")
        uploaded, letter_keys = self._await_uploads(files, sealed, pending, batch, uploads_end)
        steps.done("upload")
        messages, references = self._announce(uploaded, letter_keys, batch, reason, steps.seconds)
        steps.done("announce")
        offsets = self._recorder.ledgers.next_offsets()
        self._commit(messages, offsets, membership, batch, deadline)
        steps.done("commit")
        summary = self._summarise(batch, references, offsets, steps.seconds)
        self._learn(files, steps.seconds)
        return summary

    def estimate_s(self, files: int, row_bytes: int) -> float:
        """Estimate the seconds that sealing and uploading would take now."""
        return self.cost.estimate_s(files=files, row_bytes=row_bytes)

    def _seal_and_submit(
        self, files: list[PartitionFile], batch: Batch, deadline: Deadline
    ) -> tuple[list[SealedFile], list[Future[StoredObject]]]:
        """Seal file by file; each is uploaded while the next is sealed."""
        sealed_files, futures = [], []
        for number, file in enumerate(files):
            metadata = object_metadata(file, batch_id=batch.batch_id)
            sealed = self._spool.seal(file.number, file.seal(self._spool.reader(file.number), metadata=metadata))
            key_of = _keys_of(self._rules.prefix, file, batch_id=batch.batch_id, number=number)
            upload = self._uploader.file_upload(sealed, key_of, metadata)
            sealed_files.append(sealed)
            futures.append(self._uploader.submit(upload, deadline))
            if deadline.has_passed() and len(futures) < len(files):
                raise UploadError(f"{len(files) - len(futures)} files are not sealed in time", object_key="")
        return sealed_files, futures

    def _await_uploads(
        self,
        files: list[PartitionFile],
        sealed: list[SealedFile],
        pending: list[Future[StoredObject]],
        batch: Batch,
        deadline: Deadline,
    ) -> tuple[list[Uploaded], dict[int, str]]:
        """Upload what is not a file, too, and wait for everything."""
        schemas = {schema.fingerprint: schema for schema in (row_schema(file.entry_type) for file in files)}
        new = [schema for schema in schemas.values() if schema.fingerprint not in self._known_schemas]
        others: list[Upload] = []
        for schema in new:
            key = schema_key(self._rules.prefix, schema.fingerprint)
            others.append(bytes_upload(schema.text.encode(), key, {}, shared=True))
        letters = self._oversized_letters(batch)
        others += [self._letter_upload(batch, number) for number in letters]
        futures = [*pending, *(self._uploader.submit(upload, deadline) for upload in others)]
        stored = self._uploader.await_all(futures, deadline, self._abandoned)
        self._remember(schema.fingerprint for schema in new)
        letter_objects = stored[len(pending) + len(new) :]
        uploaded = [Uploaded(*parts) for parts in zip(files, sealed, stored, strict=False)]
        assert len(uploaded) == len(files), f"W4: {len(uploaded)} of {len(files)} files are acknowledged"
        return uploaded, {number: thing.key for number, thing in zip(letters, letter_objects, strict=True)}

    def _oversized_letters(self, batch: Batch) -> list[int]:
        limit = self._rules.message_bytes_max
        return [n for n, letter in enumerate(batch.dead_letters) if is_oversized(letter, message_bytes_max=limit)]

    def _letter_upload(self, batch: Batch, number: int) -> Upload:
        rules, record = self._rules, batch.dead_letters[number].record
        key, body = stored_letter(
            record,
            prefix=rules.prefix,
            batch_id=batch.batch_id,
            number=number,
            message_bytes_max=rules.message_bytes_max,
        )
        return bytes_upload(body, key, {"lp-batch-id": batch.batch_id}, shared=False)

    def _remember(self, fingerprints: object) -> None:
        self._known_schemas.update(dict.fromkeys(fingerprints))  # type: ignore[call-overload]
        while len(self._known_schemas) > KNOWN_SCHEMAS_MAX:
            del self._known_schemas[next(iter(self._known_schemas))]

    def _announce(
        self,
        uploaded: list[Uploaded],
        letter_keys: Mapping[int, str],
        batch: Batch,
        reason: FlushReason,
        step_seconds: dict[str, float],
    ) -> tuple[list[Message], list[Reference]]:
        ledgers, speaker, now_ms = self._recorder.ledgers.by_tp, self._speaker, self._clock.wall_ms()
        references = [self._reference(one, batch, len(uploaded)) for one in uploaded]
        self._seq += 1
        flush_record = flush_record_of(
            batch, ledgers, speaker, references,
            seq=self._seq, reason=reason, ended_at_ms=now_ms, step_seconds=step_seconds,
        )  # fmt: skip
        messages = [reference_message(reference, speaker, at_ms=now_ms) for reference in references]
        messages.append(flush_message(flush_record, speaker, at_ms=now_ms))
        for number, letter in enumerate(batch.dead_letters):
            object_key = letter_keys.get(number)
            messages.append(dead_letter_message(letter, speaker, batch_id=batch.batch_id, object_key=object_key))
        return messages, references

    def _reference(self, uploaded: Uploaded, batch: Batch, references: int) -> Reference:
        rules = self._rules
        schema = row_schema(uploaded.file.entry_type)
        inline = rules.inline == "inline" or (rules.inline == "auto" and references <= rules.inline_references_max)
        inline = inline and len(schema.text) <= rules.inline_bytes_max
        place = SchemaPlace(schema, schema_key(rules.prefix, schema.fingerprint), inline)
        ledgers, limit = self._recorder.ledgers.by_tp, rules.message_bytes_max
        return fitting_reference(uploaded, batch, ledgers, self._speaker, place, message_bytes_max=limit)

    def _commit(
        self,
        messages: list[Message],
        offsets: Mapping[TopicPartition, int],
        membership: Membership,
        batch: Batch,
        deadline: Deadline,
    ) -> None:
        """Commit; after ILLEGAL_GENERATION at most once more, over the same objects, if we are still the same member.

        Under KIP-848 the member epoch may move without a callback; nothing of ours was revoked or lost in between,
        because callbacks run inside `consume` only, and the same member id proves that we were never put out.
        """
        deadline = deadline.at_most(self._rules.commit_budget_s)
        try:
            self._committer.commit(messages, offsets, membership, deadline=deadline)
        except CommitAbortedError as error:
            again = self._membership()
            if error.code != ILLEGAL_GENERATION or again.member_id != batch.member_id or deadline.has_passed():
                raise
            self._log.warning("commit_repeated", batch_id=batch.batch_id, generation=again.generation, cause=str(error))
            self._metrics.add("commits_repeated")
            self._committer.commit(messages, offsets, again, deadline=deadline)

    def _summarise(
        self,
        batch: Batch,
        references: list[Reference],
        offsets: Mapping[TopicPartition, int],
        seconds: dict[str, float],
    ) -> FlushSummary:
        ledgers = self._recorder.ledgers.by_tp.values()
        return FlushSummary(
            batch_id=batch.batch_id,
            seq=self._seq,
            references=len(references),
            entries=sum(ledger.entries for ledger in ledgers),
            dead_letters=sum(ledger.dead_letters for ledger in ledgers),
            records=sum(ledger.records for ledger in ledgers),
            object_bytes=sum(reference.location.size for reference in references),
            json_fields=sum(_json_fields(file) for file in self._recorder.files),
            seconds=seconds,
            offsets=offsets,
        )

    def _learn(self, files: list[PartitionFile], seconds: Mapping[str, float]) -> None:
        self.cost = self.cost.after(
            files=len(files),
            row_bytes=sum(file.row_bytes for file in files),
            seconds=seconds["seal"] + seconds["upload"],
        )


def _json_fields(file: PartitionFile) -> int:
    """Count the top-level fields that are kept as JSON text: types in conflict, or nested too deep."""
    return sum(1 for child in file.entry_type.by_name.values() if child is Scalar.JSON)


def _keys_of(prefix: str, file: PartitionFile, *, batch_id: str, number: int) -> Callable[[int], str]:
    return lambda attempt: data_key(prefix, file.key, batch_id=batch_id, number=number, attempt=attempt)
