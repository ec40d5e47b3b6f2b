"""Log events that no program reads, with their meanings and own fields; `log_events.FIELDS` has the shared fields."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN: Mapping[str, str] = {
    "abort_failed": "A transaction could not be aborted; the next producer ends it. `code`, `fatal`, `retriable`.",
    "broker_unreachable": "A broker does not answer as it should. `address`; `reason`: in our words; `cause`.",
    "client_error": "The client library reports an error beside its calls. `client`; `code`, `fatal`.",
    "client_log": "A line of the client library. `client`; `line`.",
    "commit_transaction_repeated": "A commit is asked for again, of the same producer. `code`, `fatal`, `retriable`.",
    "committed_topic_id_unknown": "Committed offsets do not say of which topic they are.",
    "consumer_error": "The client library reports an error in place of a record. `where`: its place; `code`; `times`.",
    "entries_not_verified": "Verification mode leaves entries out. `entries`; `cause`: memory, time, outcome.",
    "flush_record_unknown": "This version cannot read a flush record; committed offsets are held against others.",
    "history_cut": "The topic of flush records has lost its beginning, and none that is left names these.",
    "history_open": "A transaction stays open in the topic of flush records; only what is before it is read.",
    "history_unknown": "Flush records cannot be read, which `kafka.accept_unknown_history` accepts.",
    "init_transactions_repeated": "A producer is not ready yet. `code`, `fatal`, `retriable`.",
    "journal_refused": "Which records are in hand cannot be written down.",
    "key_taken": "An object key is taken by something that is not ours; another is used. `key`: its user is hashed.",
    "not_discarded": "What was open could not be discarded when the group was left.",
    "not_positioned": "It is not known yet where to go on: no answer, or one of long ago; it is asked again.",
    "not_prepared": "No producer for transactions is ready yet.",
    "object_not_compared": "Whether an object is ours cannot be told; another key is used. `key`.",
    "object_not_read_back": "Verification mode cannot read an object now. `key`: its user is hashed.",
    "outside_doubted": "The worker works without it, but somebody should mend what the message says.",
    "outside_unmet": "What the worker needs of the store or of Kafka is missing; it does not join before it is there.",
    "paths_doubted": "Most of the first entries of a topic are dead letters or go by Kafka's time, or none is in an "
    "envelope. `entries`: looked at; `dead_letters`, `record_timestamps`: of them; `envelopes`: of a sample; "
    "`settings`: where was looked; `fields`: names of top-level fields that were seen; `advice`.",
    "recording_refused": "The disk refuses a batch; records are read again after a pause.",
    "source_transaction_open": "Records wait until a producer of the source ends its transaction. `held_up`: where it "
    "begins in each TopicPartition (twenty at most); `seconds`: for how long by now.",
    "spill_refused": "The disk refuses rows; the batch is flushed.",
    "spool_not_cleared": "Files of an earlier batch cannot be deleted; they still count.",
    "topic_id_unknown": "The id of a topic cannot be asked for. `topic`, `cause`.",
    "upload_confirmed": "An object that seemed to be refused is there, and ours. `key`.",
    "upload_repeated": "Uploads are tried again. `problem`: why.",
}
"""Events that are written by their names, for a person, with their meanings and fields beside those of `FIELDS`."""
