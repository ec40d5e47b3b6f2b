"""Framing as the second opinion takes it away: each returns the payload of a value that is not empty."""

from __future__ import annotations

from collections.abc import Callable

from log_partitioner.formats.model import Headers
from log_partitioner.proof.oracle.framing.confluent import confluent

FRAMINGS: dict[str, Callable[[bytes, Headers], bytes]] = {
    "none": lambda value, _headers: value,
    "confluent": confluent,
}
