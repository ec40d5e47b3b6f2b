"""The replay mark: dead letters that were put back into their source topics (docs/FORMATS.md).

It stands in the partition of the dead letters, behind them, and is committed with the records that were made of them.
So a reader of a whole partition knows which of its letters were replayed, and retention never takes the mark first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from log_partitioner.formats.dead_letter import HEADER_REASON
from log_partitioner.formats.reference import FORMAT_VERSION, decode_known

REPLAY_TYPE = "log-partitioner.replay.v1"
_TYPE_HEADER = "ce_type"


class ReplayMark(msgspec.Struct, frozen=True, kw_only=True):
    """Says which dead letters of its partition were replayed, by their offsets there."""

    format_version: int = FORMAT_VERSION
    group_id: str
    replayed_at_ms: int
    offsets: tuple[int, ...]


decode_replay_mark = partial(decode_known, msgspec.json.Decoder(ReplayMark))
"""Read a replay mark; raises as `decode_known`."""
encode_replay_mark = msgspec.json.Encoder().encode


def is_replay_mark(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a message of the dead-letters topic is a mark; a dead letter has a reason."""
    found = dict(headers)
    return HEADER_REASON not in found and found.get(_TYPE_HEADER) == REPLAY_TYPE.encode()
