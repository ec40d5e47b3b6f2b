"""Framing: what a registry's serializer puts around a payload; one file each, with a twin in the second opinion."""

from __future__ import annotations

from collections.abc import Callable

from log_partitioner.formats.model import Headers
from log_partitioner.input.framing.confluent import confluent

Unframe = Callable[[bytes, Headers], bytes]
"""Returns the payload of a decompressed value; raises nothing but UndecodableError."""

FRAMINGS: dict[str, Unframe | None] = {"none": None, "confluent": confluent}
