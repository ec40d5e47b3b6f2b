"""The chart's values.schema.json: a wrong name or type fails in `helm lint`, not in the pod.

Types and meanings are those of values.yaml; `config`, of workers and of jobs, has those of the settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from log_partitioner.config.kafka_properties import ALLOWED, SECRET
from log_partitioner.config.settings import TopicSettings
from log_partitioner_pipeline.config import PipelineSettings
from tools.docs.chart_values import Value, values_of
from tools.docs.settings_schema import Group, Setting, groups

_UNPRIVILEGED_PORT_MIN = 1024
# Set by the chart from the pod's name.
_OF_THE_CHART = {("worker",)}
# Texts that `log_partitioner.config.section` reads.
_QUANTITIES = {
    "seconds": r"^[0-9]+(\.[0-9]+)?(ms|s|m|min|h|d)$",
    "bytes": r"^[0-9]+(\.[0-9]+)?([KMGT]i?B|kB|[KMGT]i|B)$",
}
# The templates compute with these settings: values.yaml repeats their defaults, and they may not be unset.
_NEEDED = {
    "flush": ["interval_s", "budget_s"],
    "spool": ["directory", "bytes_max"],
    "http": ["port"],
}
_PIPELINE_CONFIG = {"$ref": "#/properties/pipeline/properties/config"}
_FORMS = {"enum": ["Deployment", "CronJob"]}
_SIZE = r"^[0-9]+(\.[0-9]+)?([kMGT]|[kMGT]i)?$"
_COUNT_OR_SHARE = {"type": ["integer", "string"], "pattern": "^([0-9]+%)?$"}
# Maps that Kubernetes gets as they are.
_PASSED_ON = {
    "resources", "updateStrategy", "podSecurityContext", "securityContext", "livenessProbe", "readinessProbe",
    "autoscaling.behavior", "pipeline.resources", "pipeline.livenessProbe",
}  # fmt: skip
# Rules that a default does not tell.
_REFINED: Mapping[str, Mapping[str, Any]] = {
    "replicaCount": {"minimum": 0},
    "topicPartitions": {"minimum": 0},
    "minReadySeconds": {"minimum": 0},
    "image.repository": {"minLength": 1},
    "image.digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "secret.as": {"enum": ["env", "files"]},
    "secret.version": {"type": ["string", "integer"]},
    "files": {"additionalProperties": {"type": "string"}},
    "certificates": {"items": {"type": "string"}},
    "extraEnv": {"items": {"type": "object", "required": ["name"]}},
    "persistence.size": {"pattern": r"^([0-9]+(\.[0-9]+)?([kMGT]|[KMGT]i)?)?$"},
    "emptyDir.medium": {"enum": ["", "Memory"]},
    "podDisruptionBudget.maxUnavailable": _COUNT_OR_SHARE,
    "podDisruptionBudget.minAvailable": _COUNT_OR_SHARE,
    "podDisruptionBudget.unhealthyPodEvictionPolicy": {"enum": ["AlwaysAllow", "IfHealthyBudget"]},
    "autoscaling.by": {"enum": ["hpa", "keda"]},
    "autoscaling.minReplicas": {"minimum": 1},
    "autoscaling.maxReplicas": {"minimum": 0},
    "autoscaling.keda.recordsPerSecond": {"minimum": 1},
    "autoscaling.keda.catchUpSeconds": {"minimum": 1},
    "autoscaling.keda.window": {"pattern": "^([0-9]+[smh])?$"},
    "pipeline.image.repository": {"minLength": 1},
    "pipeline.image.digest": {"pattern": "^(sha256:[0-9a-f]{64})?$"},
    "pipeline.image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "pipeline.scratchSize": {"pattern": _SIZE},
    "pipeline.executors.instances": {"minimum": 1},
    "pipeline.executors.cores": {"minimum": 1},
    "pipeline.table.as": _FORMS,
    "pipeline.audit.as": _FORMS,
    "pipeline.audit.every": {"pattern": _QUANTITIES["seconds"]},
    "pipeline.userActivity.as": _FORMS,
    "pipeline.cron.activeDeadlineSeconds": {"minimum": 1},
    **{f"pipeline.{job}.config": _PIPELINE_CONFIG for job in ("table", "audit", "compact", "userActivity")},
}


def chart_schema() -> str:
    """Write the whole schema."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_closed(list(values_of()), depth=0)}
    schema["properties"]["config"] = _config()
    schema["properties"]["pipeline"]["properties"]["config"] = _pipeline_config()
    # A chart that depends on this one may have values shared with all its charts, and YAML anchors.
    schema["properties"]["global"] = {"type": "object"}
    schema["patternProperties"] = {"^x-": {}}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _closed(values: Iterable[Value], *, depth: int) -> dict[str, Any]:
    below: dict[str, list[Value]] = {}
    for value in values:
        below.setdefault(value.path[depth], []).append(value)
    return _object({name: _value(first, rest) for name, (first, *rest) in below.items()}, [])


def _value(value: Value, below: list[Value]) -> dict[str, Any]:
    path = ".".join(value.path)
    if below and path not in _PASSED_ON:
        return _closed(below, depth=len(value.path))
    meaning = {"description": value.comment} if value.comment else {}
    return {**meaning, "type": _type_of(value), **_REFINED.get(path, {})}


def _type_of(value: Value) -> str:
    if isinstance(value.scalar, bool):
        return "boolean"
    if isinstance(value.scalar, int):
        return "integer"
    return "array" if value.text.startswith("[") else "object" if value.text in ("", "{}") else "string"


def _config() -> dict[str, Any]:
    by_name = {group.name: _properties(group) for group in groups()}
    plain = by_name.pop("")
    allowed = sorted((ALLOWED["consumer"] | ALLOWED["producer"]) - SECRET)
    scalars = {"additionalProperties": {"type": ["string", "number", "boolean"]}}
    by_name["kafka"]["client_properties"].update(_object(dict.fromkeys(allowed, True), []), allOf=[scalars])
    # Probes and scrapes need a port that is known, and that a process without privileges may open.
    by_name["http"]["port"]["minimum"] = _UNPRIVILEGED_PORT_MIN
    # A topic has the same sections as the worker, some of them.
    of_topic = {name: {"$ref": f"#/properties/config/properties/{name}"} for name in TopicSettings.model_fields}
    plain["topics"]["additionalProperties"] = _object(of_topic, [])
    sections = {name: _object(properties, _NEEDED.get(name, [])) for name, properties in by_name.items()}
    return _object(plain | sections, list(_NEEDED))


def _pipeline_config() -> dict[str, Any]:
    return _object(
        {group.name: _object(_properties(group), []) for group in groups(PipelineSettings) if group.name}, []
    )


def _properties(group: Group) -> dict[str, Any]:
    """Leave out secrets, which may not stand in values; a template checks required values (lint has no values)."""
    return {
        setting.path[-1]: _property(setting)
        for setting in group.settings
        if not setting.is_secret and setting.path not in _OF_THE_CHART
    }


def _property(setting: Setting) -> dict[str, Any]:
    """Give a setting's schema; a number may have a unit, as the worker takes it."""
    schema = {name: value for name, value in setting.schema.items() if name not in ("title", "default", "examples")}
    unit = schema.pop("unit", None)
    if unit is None:
        return schema
    return {**schema, "type": [schema["type"], "string"], "pattern": _QUANTITIES[unit]}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
