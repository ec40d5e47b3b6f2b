"""Framing: a registry's serializer puts it before a payload; each has a file, and a twin in the second opinion."""

from __future__ import annotations

from collections.abc import Callable

from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import SchemaRef
from log_partitioner.input.framing.apicurio8 import PLAIN as APICURIO8
from log_partitioner.input.framing.apicurio8 import apicurio8
from log_partitioner.input.framing.confluent import HEADER as SCHEMA_HEADER
from log_partitioner.input.framing.confluent import PLAIN as CONFLUENT
from log_partitioner.input.framing.confluent import confluent
from log_partitioner.input.framing.glue import PLAIN as GLUE
from log_partitioner.input.framing.glue import glue

__all__ = ["FRAMINGS", "PLAIN_PREFIXES", "SCHEMA_HEADER", "Unframe"]

Unframe = Callable[[bytes, Headers, int], tuple[SchemaRef | None, bytes]]
"""Takes a value, its headers and a bound of bytes; returns the schema's name, None if unreadable, and the payload.

It raises nothing but UndecodableError.
"""

FRAMINGS: dict[str, Unframe | None] = {"none": None, "confluent": confluent, "apicurio8": apicurio8, "glue": glue}

PLAIN_PREFIXES = {"none": (b"", 0), "confluent": CONFLUENT, "apicurio8": APICURIO8, "glue": GLUE}
"""The beginning of values with an uncompressed payload, and its place, for records without SCHEMA_HEADER."""
