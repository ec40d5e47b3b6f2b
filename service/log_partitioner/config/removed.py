"""Removed settings, with their replacements: one that is still set is refused by its name (DESIGN 4.7)."""

from __future__ import annotations

_INSTEAD = {
    "it follows from flush.budget_s": (
        "flush.upload_deadline_s flush.commit_budget_s flush.revoke_budget_s flush.close_budget_s flush.backoff_max_s "
        "kafka.max_poll_interval_s kafka.transaction_timeout_s kafka.no_membership_max_s s3.read_timeout_s "
        "http.live_max_s"
    ),
    "write it in kafka.client_properties": "kafka.consumer_properties kafka.producer_properties",
    "set user.missing_name, or leave it": "user.missing",
    "it is verify.on_difference = unready": "verify.in_readyz",
    "it is held, until `log-partitioner offsets skip` names the offsets": "kafka.on_unreadable",
    "workers assign by cooperative-sticky": "kafka.assignment_strategy",
    "a record that ended the process twice, alone and in hand, becomes a dead letter": "input.fatal_ends_max",
    "it is fixed": (
        "s3.connect_timeout_s kafka.consume_records_max input.entries_per_record_max input.json_depth_max "
        "record_schema.fields_max record_schema.bytes_max record_schema.inline record_schema.inline_bytes_max "
        "spool.packed_bytes_max spool.pack_bytes_max spool.block_bytes verify.bytes_max"
    ),
}
REMOVED = {name: instead for instead, names in _INSTEAD.items() for name in names.split()}
