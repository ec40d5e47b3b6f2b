"""The part `config` of the chart's values.schema.json: a wrong name or type fails in `helm lint`, not in the pod."""

from __future__ import annotations

import json
from typing import Any

from log_partitioner.config.kafka_properties import ALLOWED, SECRET
from log_partitioner.config.settings import TopicSettings
from tools.docs.settings_schema import Group, Setting, groups

_UNPRIVILEGED_PORT_MIN = 1024
# Set by the chart from the pod's name.
_OF_THE_CHART = {("worker",)}
# Texts that `log_partitioner.config.section` reads.
_QUANTITIES = {
    "seconds": r"^[0-9]+(\.[0-9]+)?(ms|s|m|min|h|d)$",
    "bytes": r"^[0-9]+(\.[0-9]+)?([KMGT]i?B|kB|[KMGT]i|B)$",
}
# What the templates compute with: values.yaml repeats these defaults, and they may not be unset.
_NEEDED = {
    "flush": ["budget_s"],
    "spool": ["directory", "bytes_max"],
    "http": ["port"],
}


def chart_schema(current: str) -> str:
    """Replace `properties.config` in the text of values.schema.json; the rest is written by hand."""
    schema = json.loads(current)
    schema["properties"]["config"] = _config()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _config() -> dict[str, Any]:
    by_name = {group.name: _properties(group) for group in groups()}
    plain = by_name.pop("")
    properties = by_name["kafka"]["client_properties"]
    properties["propertyNames"] = {"enum": sorted((ALLOWED["consumer"] | ALLOWED["producer"]) - SECRET)}
    properties["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    # Probes and scrapes need a port that is known, and that a process without privileges may open.
    by_name["http"]["port"]["minimum"] = _UNPRIVILEGED_PORT_MIN
    # A topic has the same sections as the worker, some of them.
    of_topic = {name: {"$ref": f"#/properties/config/properties/{name}"} for name in TopicSettings.model_fields}
    plain["topics"]["additionalProperties"] = _object(of_topic, [])
    sections = {name: _object(properties, _NEEDED.get(name, [])) for name, properties in by_name.items()}
    return _object(plain | sections, list(_NEEDED))


def _properties(group: Group) -> dict[str, Any]:
    """Leave out secrets, which may not stand in values; a template checks required values (lint has no values)."""
    return {
        setting.path[-1]: _property(setting, computed=setting.path[-1] in _NEEDED.get(group.name, ()))
        for setting in group.settings
        if not setting.is_secret and setting.path not in _OF_THE_CHART
    }


def _property(setting: Setting, *, computed: bool) -> dict[str, Any]:
    """Give a setting's schema; a number that no template computes with may have a unit, as the worker takes it."""
    schema = {name: value for name, value in setting.schema.items() if name not in ("title", "default", "examples")}
    unit = schema.pop("unit", None)
    if unit is None or computed:
        return schema
    text = {"type": "string", "pattern": _QUANTITIES[unit]}
    return {"description": schema.pop("description"), "anyOf": [schema, text]}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
