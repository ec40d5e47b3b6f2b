"""For services that republish records: the header that tells of which message an output was made (docs/FORMATS.md)."""

from __future__ import annotations

import json
from typing import Any

HEADER = "source-topic-chain"


def link(message: Any, by: str, index: int) -> tuple[str, bytes]:
    """Return the header of an output: the chain of the message that it is made of, and a link for that message.

    `message` is confluent_kafka's; this header replaces the one that it has. `by` names the republisher and its run of
    history, such as normaliser/1; `index` counts the outputs of one message, from 0.

    Raises:
        ValueError: the message's own chain is no JSON.
    """
    known = next((value for name, value in reversed(message.headers() or []) if name == HEADER), None)
    links = json.loads(known) if known else []
    links.append([message.topic(), message.partition(), message.offset(), index, by])
    return HEADER, json.dumps(links, separators=(",", ":")).encode()
