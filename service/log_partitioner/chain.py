"""For services that republish records: the header that tells of which message an output was made (docs/FORMATS.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from log_partitioner.formats.model import CHAIN_HEADER, last_header


def link(message: Any, by: str, index: int) -> tuple[str, bytes]:
    """Return the header of an output: the chain of the message that it is made of, and a link for that message.

    `message` is confluent_kafka's; this header replaces the one that it has. `by` names the republisher and its run of
    history, such as normaliser/1; `index` counts the outputs of one message, from 0.

    Raises:
        ValueError: the message's own chain is no JSON.
    """
    at = message.topic(), message.partition(), message.offset()
    return extended(message.headers() or (), (*at, index, by))


def extended(headers: Sequence[tuple[str, bytes | None]], last: tuple[str, int, int, int, str]) -> tuple[str, bytes]:
    """Return the header with one more link; raises as `link`."""
    known = last_header(tuple(headers), CHAIN_HEADER)
    return CHAIN_HEADER, json.dumps([*json.loads(known or b"[]"), last], separators=(",", ":")).encode()
