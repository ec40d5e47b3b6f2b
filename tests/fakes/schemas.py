"""Settings of a format with schemas, without a file."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from log_partitioner.config.settings import InputSettings

R = TypeVar("R", bound=InputSettings)


def with_schema(rules: R, schema: Any) -> R:
    """Give settings the content that their file would have."""
    rules.__dict__["schema_content"] = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return rules
