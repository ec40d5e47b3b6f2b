"""DATA PLANE 2: closed batch -> objects -> in the store -> references, flush record, dead letters and offsets, at once.

Reads top to bottom in `Flusher.flush`. On return everything of the batch is committed. On a DiscardError nothing is, or
(CommitUnknownError) the committed offsets tell; the controller decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from log_partitioner.avro.schema import RowSchema
from log_partitioner.avro.schema_types import Scalar
from log_partitioner.batch.batch import ClosedBatch, cost_of
from log_partitioner.batch.messages import (
    Sender,
    StoredPart,
    UploadedObject,
    check_references,
    dead_letter_message,
    flush_messages,
    flush_record_of,
    inline_bytes,
    key_of,
    object_metadata,
    reference_messages,
    rows_in,
    split_letter,
    stored_apart,
    stored_object,
)
from log_partitioner.batch.pack_plan import FEW_PARTS, SealRules, seal_rules
from log_partitioner.batch.seal import SealedObject, seal
from log_partitioner.boundary import Membership, Message, SentFlush
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.control.flush_policy import FlushCost, FlushLoad, FlushReason, FlushSteps, FlushWork
from log_partitioner.errors import (
    CodedError,
    CommitAbortedError,
    CommitUnknownError,
    DiscardError,
    MembershipError,
    StopError,
    UploadError,
)
from log_partitioner.formats.flush_record import FlushRecord
from log_partitioner.formats.log_events import (
    BatchCommitted,
    BatchDiscarded,
    CommitRepeated,
    ObjectsUploaded,
    ReplaysDiscarded,
    tell,
)
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.formats.object_key import schema_key
from log_partitioner.formats.offset_metadata import SourceTopics
from log_partitioner.privacy import describe
from log_partitioner.runtime.ports import Ports
from log_partitioner.runtime.uploader import Upload, bytes_upload, file_upload

KNOWN_SCHEMAS_MAX = 100_000
KNOWN_SCHEMAS_S = 3600.0  # a lifecycle rule may delete schemas: after an hour the worker writes them again
WARNED_WAYS_MAX = 1000  # ways that one process warns of
ROUTINE = frozenset(
    {FlushReason.INTERVAL, FlushReason.REFETCH, FlushReason.ASSIGNED, FlushReason.REVOKED, FlushReason.STOPPING}
)
ILLEGAL_GENERATION = "ILLEGAL_GENERATION"


@dataclass(eq=False, repr=False)
class Flusher:
    """Makes a closed batch durable, then commits it; used by the loop thread only."""

    ports: Ports
    settings: Settings
    sender: Sender
    topics: SourceTopics
    require_fit: Callable[[ClosedBatch], None]

    def __post_init__(self) -> None:
        self.cost = FlushCost()
        self.seal_rules = seal_rules(self.settings)
        self._budget, self._kafka = self.settings.flush, self.settings.kafka
        self._prefix, self._membership = self.settings.s3.prefix, self.ports.consumer.membership
        self.recent: tuple[tuple[int, BatchCommitted], ...] = ()  # with the time of each in ms, for the run page
        self._seq = 0
        self._warned_ways, self._known_schemas = set[tuple[TopicPartition, str]](), set[str]()
        self._known_until = Deadline.after(KNOWN_SCHEMAS_S, self.ports.clock.now_s)
        self._log = structlog.get_logger("flusher")

    def flush(self, batch: ClosedBatch, reason: FlushReason, *, deadline: Deadline) -> SentFlush:
        """Flush a batch within the deadline, and report its outcome; blocks the loop thread.

        Raises:
            DiscardError: see its kinds; the batch is to be discarded.
            StopError: the store refuses us, or the settings do not fit the source.
        """
        try:
            return self._flush(batch, reason, deadline)
        except Exception as error:
            self._report_discarded(batch, error, reason)
            raise

    def _flush(self, batch: ClosedBatch, reason: FlushReason, deadline: Deadline) -> SentFlush:
        self.require_fit(batch)
        membership = self._membership()  # taken when the batch is closed, not when it is sent (DESIGN 4.4)
        opened = batch.opening.membership
        if membership.member_id != opened.member_id:
            # The race: (1) the batch is opened as member X; (2) while a revoke waits for this flush the broker expels
            # X, without on_lost (KAFKA_FACTS F6); (3) another member consumes these partitions; (4) we rejoin as Y.
            # The broker would accept Y's commit of what X read: only the member that opened a batch may commit it.
            raise MembershipError(f"opened as member {opened.member_id!r}, now {membership.member_id!r}")
        if opened.outlives_fencing:
            membership = opened  # see `Controller.open_batch`
        limit = self._kafka.message_bytes_max
        letters = (part for letter in batch.dead_letters for part in split_letter(letter, message_bytes_max=limit))
        batch = batch._replace(dead_letters=tuple(letters))
        uploads_end = Deadline(deadline.at_s - self._budget.commit_budget_s, deadline.now_s)
        steps = FlushSteps(len(batch.rows), uploads_end.at_most(self._budget.upload_deadline_s))
        try:
            sealed = self._seal(batch, self._rules_for(batch, reason), steps)
            uploaded, letter_keys = self._upload(batch, sealed, steps)
            announced, flush_record = self._announce(batch, uploaded, reason, steps)
            steps.deadline = deadline.at_most(self._budget.commit_budget_s)
            messages = partial(self._messages, batch, announced, flush_record, letter_keys)
            offsets = self._offsets(batch)
            membership = self._commit(messages, offsets, membership, batch, steps.deadline)
            steps.done("commit")
        finally:
            self._learn(batch, steps)
        self._report_committed(batch, sealed, membership, reason, steps)
        return SentFlush(batch.batch_id, batch.entries, {tp: one.offset for tp, one in offsets.items()}, messages)

    def estimate_s(self, load: FlushLoad) -> float:
        """Estimate the seconds of sealing and uploading the open batch now.

        The transaction has a budget of its own; if it needs a larger share of that than the uploads need of theirs,
        that share of the upload time is the estimate.
        """
        letters = load.dead_letters, load.dead_letter_bytes
        cost = self.cost.estimate(self._work(load.entries, load.row_bytes, load.partition_keys, *letters))
        announce = cost.announce * self._budget.upload_deadline_s / self._budget.commit_budget_s
        return max(cost.seal + cost.upload, announce)

    def _work(
        self, entries: int, row_bytes: int, partition_keys: int, dead_letters: int, letter_bytes: int
    ) -> FlushWork:
        rules = self.seal_rules
        objects = 2 + row_bytes // rules.pack_bytes_max
        if rules.layout == "file" or (rules.layout == "auto" and partition_keys <= FEW_PARTS):
            objects = partition_keys
        return FlushWork(entries, row_bytes, objects, partition_keys + dead_letters + letter_bytes // 1024)

    def _rules_for(self, batch: ClosedBatch, reason: FlushReason) -> SealRules:
        """Return the rules of sealing: a record that alone passes a limit can be flushed only if it is packed."""
        rows, rules = batch.rows, self.seal_rules
        is_one_record = len(rows) and (rows.tp_of[0], rows.offsets[0]) == (rows.tp_of[-1], rows.offsets[-1])
        must_pack = rules.layout == "file" and reason not in ROUTINE and is_one_record
        return rules._replace(layout="auto") if must_pack else rules

    def _seal(self, batch: ClosedBatch, rules: SealRules, steps: FlushSteps) -> list[SealedObject]:
        """Write all objects to the spool; uploads begin afterwards, or both would wait for each other's turns."""
        rows, sealed = batch.rows, []
        for done, finished in seal(rows, batch.spool, batch.spans, rules, batch_id=batch.batch_id):
            steps.rows_sealed = done
            if finished is not None:
                sealed.append(finished)
            if steps.deadline.has_passed() or self.ports.stop.abandoned:
                raise UploadError(f"{done} of {len(rows)} rows are sealed in time", object_key="")
        batch.check(rows_in(sealed))
        steps.done("seal")
        return sealed

    def _upload(
        self, batch: ClosedBatch, sealed: list[SealedObject], steps: FlushSteps
    ) -> tuple[list[UploadedObject], dict[int, str]]:
        """Upload objects, new schemas and oversized dead letters; wait for all."""
        new = self._new_schemas(sealed)
        uploads = [self._object_upload(batch, one) for one in sealed]
        uploads += [bytes_upload(one.text.encode(), self._schema_key(one), {}, shared=True) for one in new]
        letters, letter_uploads = self._letter_uploads(batch)
        uploads += letter_uploads
        steps.uploads = len(uploads)
        stored = self.ports.uploads.put_all(
            uploads, steps.deadline, abandoned=lambda: self.ports.stop.abandoned, note_stored=steps.note_stored
        )
        self._known_schemas.update(one.fingerprint for one in new)
        letter_objects = stored[len(sealed) + len(new) :]
        inline = self._inline(sealed)
        uploaded = [
            UploadedObject(one, place, self._schema_key(one.schema), one.schema.fingerprint in inline)
            for one, place in zip(sealed, stored, strict=False)
        ]
        assert len(uploaded) == len(sealed), f"W4: {len(uploaded)} of {len(sealed)} objects are acknowledged"
        steps.done("upload")
        tell(self._log.info, ObjectsUploaded(batch.batch_id, objects=len(uploaded)))
        return uploaded, {number: letter_objects[at].key for number, at in letters.items()}

    def _object_upload(self, batch: ClosedBatch, sealed: SealedObject) -> Upload:
        def name(attempt: int) -> str:
            return key_of(sealed, self._prefix, batch_id=batch.batch_id, attempt=attempt)

        return file_upload(batch.spool, sealed.file, name, object_metadata(sealed, batch_id=batch.batch_id))

    def _new_schemas(self, sealed: Iterable[SealedObject]) -> list[RowSchema]:
        if self._known_until.has_passed() or len(self._known_schemas) > KNOWN_SCHEMAS_MAX:
            self._known_schemas.clear()
            self._known_until = Deadline.after(KNOWN_SCHEMAS_S, self.ports.clock.now_s)
        schemas = {one.schema.fingerprint: one.schema for one in sealed}
        return [schema for fingerprint, schema in schemas.items() if fingerprint not in self._known_schemas]

    def _schema_key(self, schema: RowSchema) -> str:
        return schema_key(self._prefix, schema.fingerprint)

    def _inline(self, sealed: list[SealedObject]) -> set[str]:
        """Choose the schemas whose texts go into messages: small ones first, as long as all of them fit together."""
        texts = {one.schema.fingerprint: one.schema.text for one in sealed}
        sizes = {fingerprint: inline_bytes(text) for fingerprint, text in texts.items()}
        size = sum(sizes[one.schema.fingerprint] * len(one.groups) for one in sealed)
        if size > self._kafka.inline_bytes_max:
            return set()
        return {fingerprint for fingerprint, length in sizes.items() if length <= self._kafka.inline_text_max}

    def _letter_uploads(self, batch: ClosedBatch) -> tuple[dict[int, int], list[Upload]]:
        """Make uploads of the parts for which dead letters have no room; returns the number of each letter's upload.

        Dead letters of one record share it.
        """
        batch_id, limit = batch.batch_id, self._kafka.message_bytes_max
        numbers: dict[int, int] = {}
        known: dict[tuple[int, StoredPart], int] = {}
        uploads: list[Upload] = []
        for number, letter in enumerate(batch.dead_letters):
            apart = stored_apart(letter, message_bytes_max=limit)
            if apart is None:
                continue
            same = id(letter.record), apart
            if same not in known:
                known[same] = len(uploads)
                key, body = stored_object(letter.record, apart, prefix=self._prefix, batch_id=batch_id, number=number)
                uploads.append(bytes_upload(body, key, {"lp-batch-id": batch_id}, shared=False))
            numbers[number] = known[same]
        return numbers, uploads

    def _announce(
        self,
        batch: ClosedBatch,
        uploaded: list[UploadedObject],
        reason: FlushReason,
        steps: FlushSteps,
    ) -> tuple[list[Message], FlushRecord]:
        """Make the messages of the references topic, and the flush record."""
        sender, now_ms, batch_id = self.sender, self.ports.clock.wall_ms(), batch.batch_id
        announced = list(
            reference_messages(uploaded, sender, batch_id=batch_id, generation=batch.opening.generation, at_ms=now_ms)
        )
        check_references((one.sealed for one in uploaded), announced)
        self._seq += 1
        flush_record = flush_record_of(
            batch, sender, (one.sealed for one in uploaded), seq=self._seq, reason=reason, ended_at_ms=now_ms,
            step_seconds=steps.seconds, topic_ids=self.topics.ids,
        )  # fmt: skip
        steps.done("announce")
        return announced, flush_record

    def _messages(
        self, batch: ClosedBatch, announced: list[Message], flush_record: FlushRecord, letter_keys: Mapping[int, str]
    ) -> Iterator[Message]:
        """Yield all messages; dead letters one by one, or each of them would be in memory twice."""
        sender, limit, at_ms = self.sender, self._kafka.message_bytes_max, flush_record.ended_at_ms
        yield from announced
        yield from flush_messages(flush_record, sender, message_bytes_max=limit, at_ms=at_ms)
        for number, letter in enumerate(batch.dead_letters):
            key = letter_keys.get(number)
            yield dead_letter_message(letter, sender, batch_id=batch.batch_id, object_key=key)

    def _offsets(self, batch: ClosedBatch) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets to commit, each with metadata about its topic and its ways."""
        metadata_of, ledgers = self.topics.metadata_of, batch.ledgers
        return {
            tp: offset._replace(metadata=metadata_of(tp, ledgers[tp].next_ways))
            for tp, offset in batch.next_offsets().items()
        }

    def _commit(
        self,
        messages: Callable[[], Iterable[Message]],
        offsets: Mapping[TopicPartition, CommittedOffset],
        membership: Membership,
        batch: ClosedBatch,
        deadline: Deadline,
    ) -> Membership:
        """Commit; after ILLEGAL_GENERATION at most once more, over the same objects, if we are still the same member.

        Returns the membership that was used.

        Nothing of ours was revoked or lost in between, because callbacks run inside `consume` only, and the same member
        id proves that we were never put out. Under KIP-848 it proves nothing, and the commit is not repeated.
        """
        try:
            self.ports.committer.commit(messages(), offsets, membership, deadline=deadline)
        except CommitAbortedError as error:
            fresh, opened = self._membership(), batch.opening.membership
            is_same = fresh.member_id == opened.member_id and not opened.outlives_fencing
            if error.code != ILLEGAL_GENERATION or not is_same or deadline.has_passed():
                raise
            tell(
                self._log.warning, CommitRepeated(batch.batch_id, member_generation=fresh.generation, cause=str(error))
            )
        else:
            return membership
        # Not while the first error is handled: the library keeps that error, and its producer (KAFKA_FACTS L10).
        self.ports.metrics.add("commits_repeated")
        self.ports.committer.commit(messages(), offsets, fresh, deadline=deadline)
        return fresh

    def _report_committed(
        self,
        batch: ClosedBatch,
        sealed: list[SealedObject],
        membership: Membership,
        reason: FlushReason,
        steps: FlushSteps,
    ) -> None:
        """Log the line from which a reader proves resume and contiguity, and count (DESIGN 9)."""
        committed = BatchCommitted(
            batch_id=batch.batch_id,
            flush_seq=self._seq,
            reason=reason.value,
            generation=batch.opening.generation,
            objects=len(sealed),
            references=sum(one.references for one in sealed),
            records=batch.records,
            entries=batch.entries,
            dead_letters=batch.dead,
            record_timestamps=batch.record_timestamps,
            discarded_replays=batch.discarded_replays,
            object_bytes=sum(one.file.size for one in sealed),
            step_seconds={step: round(seconds, 4) for step, seconds in steps.seconds.items()},
            offsets=batch.covered(),
            member=membership.member_id,
            member_generation=membership.generation,
        )
        tell(self._log.info, committed)
        self.recent = (*self.recent[-7:], (self.ports.clock.wall_ms(), committed))
        self.ports.metrics.add("flushes", reason=reason.value, outcome="committed")
        self._report_replays(batch)
        for name in ("objects", "references", "object_bytes"):
            self.ports.metrics.add(name, getattr(committed, name))
        for cause, count in batch.dead_letters_by_reason.items():
            self.ports.metrics.add("dead_letters", count, reason=cause)
        # Top-level fields that are kept as JSON text: types in conflict, or nested too deep.
        fields = (child for one in sealed for child in one.entry_type.by_name.values())
        self.ports.metrics.add("schema_conflicts", sum(child is Scalar.JSON for child in fields))
        for step, seconds in steps.seconds.items():
            self.ports.metrics.observe("flush_step_duration_seconds", seconds, step=step)

    def _report_replays(self, batch: ClosedBatch) -> None:
        """Count discarded replays, and warn once of each way."""
        for name in ("discarded_replays", "ways_dropped"):
            self.ports.metrics.add(name, getattr(batch, name))
        for tp, ledger in batch.ledgers.items():
            for way, replay in ledger.replays.items():
                if len(self._warned_ways) < WARNED_WAYS_MAX and (tp, way) not in self._warned_ways:
                    self._warned_ways.add((tp, way))
                    told = ReplaysDiscarded(str(tp), replay.offset, way, list(replay.place), list(replay.highest))
                    tell(self._log.warning, told)

    def _report_discarded(self, batch: ClosedBatch, error: Exception, reason: FlushReason) -> None:
        """Report a batch that was not committed, or whose outcome is unknown, and the cost of giving it up."""
        is_ours = isinstance(error, DiscardError | StopError)
        is_unknown = not is_ours or isinstance(error, CommitUnknownError)
        discarded = BatchDiscarded(
            batch_id=batch.batch_id,
            reason=reason.value,
            generation=batch.opening.generation,
            cause=type(error).__name__,
            code=error.code if isinstance(error, CodedError) else None,
            message=str(error) if is_ours else describe(error),
            outcome="unknown" if is_unknown else "aborted",
            cost=cost_of(batch.spans) + (", unless they are committed" if is_unknown else ""),
        )
        tell(self._log.warning, discarded)
        self.ports.metrics.add("flushes", reason=reason.value, outcome="unknown" if is_unknown else "discarded")

    def _learn(self, batch: ClosedBatch, steps: FlushSteps) -> None:
        """Learn from a flush, also from a failed one: so much work was done in so many seconds."""
        rows, letters = batch.rows, batch.dead_letters
        letter_bytes = sum(letter.memory_bytes for letter in letters)
        work = self._work(len(rows), rows.text_bytes, len(rows.keys), len(letters), letter_bytes)
        self.cost = self.cost.after(work, *steps.so_far())
