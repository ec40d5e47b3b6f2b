"""Framing as the second opinion takes it away: each returns the schema's name, and the payload of a value."""

from __future__ import annotations

from collections.abc import Callable

from log_partitioner.formats.model import Headers
from log_partitioner.formats.schema import SchemaRef
from log_partitioner.proof.oracle.framing.apicurio8 import apicurio8
from log_partitioner.proof.oracle.framing.confluent import confluent
from log_partitioner.proof.oracle.framing.glue import glue

FRAMINGS: dict[str, Callable[[bytes, Headers, int], tuple[SchemaRef | None, bytes]]] = {
    "none": lambda value, _headers, _bytes_max: (None, value),
    "confluent": confluent,
    "apicurio8": apicurio8,
    "glue": glue,
}
