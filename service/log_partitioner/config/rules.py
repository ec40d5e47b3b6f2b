"""Settings -> the rules of core: one translation for the worker and for all programs that repeat its work.

Owns nothing but the mapping; `log_partitioner.config.settings` says what each setting means.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from log_partitioner import native
from log_partitioner.avro.entry_types import SchemaBounds
from log_partitioner.avro.schema_types import Limits
from log_partitioner.batch.fast_lane import LARGE_BYTES, PATHS_MAX, LaneRules
from log_partitioner.batch.messages import Sender
from log_partitioner.batch.pack_plan import LayoutRules
from log_partitioner.batch.seal import SealRules
from log_partitioner.config.settings import Settings
from log_partitioner.input.decode import InputRules, RecordDecoder
from log_partitioner.input.json_text import JsonDecoder
from log_partitioner.partitioning.event_time import EARLIEST_US, LATEST_US, TimeRules
from log_partitioner.partitioning.locate import plain_path
from log_partitioner.partitioning.partitioner import KeyRules

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGE_HEAD_BYTES = 16_000  # of a message of references, with the longest names, beside lines, lists and schema text


def sender(settings: Settings, *, worker: str, boot: str) -> Sender:
    """Return the sender of messages, and their topics."""
    kafka = settings.kafka
    return Sender(
        worker, boot, kafka.group_id, settings.s3.bucket, kafka.references_topic, kafka.flushes_topic,
        kafka.dead_letters_topic,
    )  # fmt: skip


def json_decoder(settings: Settings) -> JsonDecoder:
    """Make the decoder of JSON text."""
    return JsonDecoder(keep_inexact_text=settings.input.inexact_numbers == "text")


def record_decoder(settings: Settings, decoder: JsonDecoder) -> RecordDecoder:
    """Make the decoder of records around one of JSON text."""
    source = settings.input
    rules = InputRules(source.format, source.entries_field, source.record_bytes_max, source.entries_per_record_max)
    return RecordDecoder(rules, decoder)


def schema_bounds(settings: Settings) -> SchemaBounds:
    """Turn settings into the bounds of one schema."""
    schema = settings.record_schema
    return SchemaBounds(
        limits=Limits(schema.depth_max, schema.object_keys_max, settings.input.json_depth_max),
        fields_max=schema.fields_max,
        bytes_max=schema.bytes_max,
    )


def seal_rules(settings: Settings) -> SealRules:
    """Turn settings into the rules of sealing; entries are decoded again exactly as they were recorded."""
    spool = settings.spool
    lines_max = settings.kafka.message_bytes_max - settings.kafka.inline_text_max - MESSAGE_HEAD_BYTES
    return SealRules(
        bounds=schema_bounds(settings),
        layout=LayoutRules(
            settings.layout, spool.packed_bytes_max, spool.object_bytes_max, spool.pack_bytes_max, lines_max
        ),
        codec=spool.codec,
        block_bytes=spool.block_bytes,
        group_bytes_max=lines_max,
        decode=json_decoder(settings).decode_again,
    )


def is_fast(settings: Settings) -> bool:
    """Tell whether compiled code writes objects: also if there is no fast lane to take records into rows."""
    return native.IS_INSTALLED and settings.fast_lane == "auto"


def key_rules(settings: Settings) -> KeyRules:
    """Turn settings into the rules of placing entries."""
    user, times = settings.user, settings.time
    earliest = datetime.fromisoformat(times.earliest)
    if earliest.tzinfo is None:
        earliest = earliest.replace(tzinfo=ZoneInfo(times.zone))
    return KeyRules(
        user_paths=user.paths,
        no_users=frozenset(user.no_values),
        missing_user=user.missing_name,
        time_paths=times.paths,
        time=TimeRules(
            epoch_unit=times.epoch_unit,
            zone=ZoneInfo(times.zone),
            earliest_us=(earliest - _EPOCH) // timedelta(microseconds=1),
            future_max_us=round(times.future_max_s * 1_000_000),
        ),
        missing_time=times.missing,
        id_paths=settings.id.paths,
        zone=ZoneInfo(settings.partition.zone),
    )


def lane_rules(settings: Settings) -> LaneRules | str:
    """Turn settings into the rules of the fast lane; or say why there is none."""
    if settings.fast_lane == "off":
        return "fast_lane is off"
    if not native.IS_INSTALLED:
        return "not installed"
    keys, source = key_rules(settings), settings.input
    paths = {
        name: [plain_path(path) for path in given]
        for name, given in (("user", keys.user_paths), ("time", keys.time_paths), ("id", keys.id_paths))
    }
    for name, found in paths.items():
        if None in found:
            return f"{name}.paths lead to a header, or into the key"
    if str(keys.zone) != "UTC":
        return "partition.zone is not UTC"
    if source.record_bytes_max < LARGE_BYTES:
        return f"input.record_bytes_max is below {LARGE_BYTES}"
    if sum(map(len, paths.values())) >= PATHS_MAX:
        return "too many paths"
    return LaneRules(
        user_paths=tuple(filter(None, paths["user"])),
        time_paths=tuple(filter(None, paths["time"])),
        id_paths=tuple(filter(None, paths["id"])),
        entries_field=source.entries_field if source.format == "json" else None,
        entries_max=source.entries_per_record_max,
        is_ndjson=source.format == "ndjson",
        has_fallback=keys.missing_time == "record-timestamp",
        no_users=tuple(keys.no_users),
        missing_user=keys.missing_user,
        epoch_unit=keys.time.epoch_unit,
        is_naive_utc=str(keys.time.zone) == "UTC",
        earliest_us=max(keys.time.earliest_us, EARLIEST_US),
        latest_us=LATEST_US,
        future_max_us=keys.time.future_max_us,
        chain_header=source.chain_header,
    )
