"""Log events that no program reads, with their meanings and own fields; `log_events.FIELDS` has the shared fields."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN: Mapping[str, str] = {
    "abort_failed": "The worker cannot abort a transaction; the next producer ends it. `code`, `fatal`, `retriable`.",
    "broker_unreachable": "A broker does not answer as it should. `address`; `reason`: in our words; `cause`.",
    "client_error": "The client library reports an error outside of a call. `client`; `code`, `fatal`.",
    "client_log": "A line of the client library. `client`; `line`.",
    "commit_transaction_repeated": "The worker asks the same producer again to commit. `code`, `fatal`, `retriable`.",
    "committed_topic_id_unknown": "Committed offsets do not name the id of their topic.",
    "consumer_error": "The client library reports an error in place of a record. `where`: its place; `code`; `times`.",
    "entries_not_verified": "Verification mode cannot judge a flush to its end. `entries`: its own; `message`.",
    "flush_record_unknown": "This version cannot read a flush record; committed offsets are compared with others.",
    "history_cut": "The topic of flush records has lost its beginning, and no record left names these TopicPartitions.",
    "history_open": "A transaction stays open in the topic of flush records; only records before it are read.",
    "history_unknown": "The worker cannot read flush records; `kafka.accept_unknown_history` accepts that.",
    "init_transactions_repeated": "A producer is not ready yet. `code`, `fatal`, `retriable`.",
    "journal_refused": "The worker cannot write down which records are in hand.",
    "key_taken": "An object of another writer has the key; the worker uses another key. `key`: its user is hashed.",
    "not_discarded": "The worker could not discard the open batch when it left the group.",
    "not_positioned": "The broker has given no next offset yet, or a stale one; the worker asks again.",
    "not_prepared": "No producer for transactions is ready yet.",
    "object_not_compared": "The worker cannot tell whether an object is ours; it uses another key. `key`.",
    "outside_doubted": "The worker can go on, but an operator should mend what the message says.",
    "outside_unmet": "The store or Kafka lacks what the worker needs; the worker joins the group once it is there.",
    "paths_doubted": "Most of the first entries of a topic are dead letters or go by Kafka's time, or none is in an "
    "envelope. `entries`: looked at; `dead_letters`, `record_timestamps`: of them; `envelopes`: of a sample; "
    "`settings`: the paths tried; `fields`: names of top-level fields that were seen; `advice`.",
    "recording_refused": "The disk refuses a batch; records are read again after a pause.",
    "source_transaction_open": "Records wait until a producer of the source ends its transaction. `held_up`: its first "
    "offset in each TopicPartition (twenty at most); `seconds`: for how long by now.",
    "spill_refused": "The disk refuses rows; the batch is flushed.",
    "spool_not_cleared": "The worker cannot delete files of an earlier batch; they still fill the spool.",
    "token_refused": "AWS gives no token for Kafka; the last token is used until it expires, and clients ask again.",
    "topic_id_unknown": "The worker cannot ask for the id of a topic. `topic`, `cause`.",
    "upload_confirmed": "The store has an object that it seemed to refuse, and the object is ours. `key`.",
    "upload_repeated": "The worker retries uploads. `problem`: why.",
}
"""Events that are written by their names, for a person, with their meanings and fields beside those of `FIELDS`."""
