"""Formats of payloads as the second opinion reads them, one file each."""

from __future__ import annotations

from collections.abc import Callable

from log_partitioner.config.settings import InputSettings
from log_partitioner.proof.oracle.format import Format
from log_partitioner.proof.oracle.formats.access_log import access_log
from log_partitioner.proof.oracle.formats.avro import avro
from log_partitioner.proof.oracle.formats.cri import cri
from log_partitioner.proof.oracle.formats.json import json
from log_partitioner.proof.oracle.formats.ndjson import ndjson
from log_partitioner.proof.oracle.formats.otlp import otlp
from log_partitioner.proof.oracle.formats.protobuf import protobuf
from log_partitioner.proof.oracle.formats.syslog import syslog
from log_partitioner.proof.oracle.formats.text import text

FORMATS: dict[str, Callable[[InputSettings], Format]] = {
    "json": json,
    "ndjson": ndjson,
    "access-log": access_log,
    "syslog": syslog,
    "cri": cri,
    "text": text,
    "avro": avro,
    "protobuf": protobuf,
    "otlp": otlp,
}
