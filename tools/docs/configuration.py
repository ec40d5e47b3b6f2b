"""docs/CONFIGURATION*.md: every setting with variable, type, default and meaning; one table per section."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from log_partitioner.config.kafka_properties import ALLOWED, SECRET
from log_partitioner.config.settings import PREFIX
from log_partitioner.config.sources import variable_of
from log_partitioner_pipeline.config import PREFIX as PIPELINE_PREFIX
from log_partitioner_pipeline.config import PipelineSettings
from tools.docs.settings_schema import Group, Schema, Setting, groups
from tools.docs.tables import code, table

_HEAD = """\
# Configuration

Made by `python -m tools.docs` from `service/log_partitioner/config/settings.py`; do not edit.

A setting comes from the first of these that has it:

1. a variable of the environment, as in the tables: a list as `a,b` or as JSON, an object as JSON,
2. a TOML file named by `LOGP_CONFIG_FILE` (`[flush]` and `interval_s = 30` is `LOGP_FLUSH__INTERVAL_S`),
3. a file in the directory named by `LOGP_SECRETS_DIR`, named like the variable in lower case,
4. the default.

A time is a number of seconds, or has a unit: `500ms`, `30s`, `5m`, `1h`, `1d`. A size is a number of bytes, or has a
unit: `64KiB`, `256MiB`, `2GiB` (kB, MB and GB count by 1,000).

A variable with the prefix `LOGP_` that names no setting is refused, with the nearest setting. `log-partitioner
check-config` reports all problems at once, without a broker: names, values, conflicts between settings, and what the
client library refuses (it needs the files of certificates). `--show` prints the effective settings without secrets;
`log-partitioner config-schema` prints this page as JSON schema. The chart has the same names under `config`:
`config.flush.interval_s`. Its defaults of group, prefix and topics that are written hold namespace and release.

## Those that one sets

Everybody sets the first five. The defaults of the others suit most, those of all further settings nearly everybody.

"""
_FIRST = (
    *("kafka.bootstrap_servers", "kafka.source_topics", "s3.bucket", "user.paths", "time.paths"),
    *("s3.region", "s3.endpoint_url", "s3.prefix", "id.paths", "layout", "flush.interval_s"),
    *("kafka.group_id", "kafka.references_topic", "kafka.flushes_topic", "kafka.dead_letters_topic"),
    *("kafka.client_properties", "kafka.secret_properties"),
)
_PROPERTIES = """\
## Properties of librdkafka

`kafka.client_properties` and `kafka.secret_properties` take these and no others, as texts, numbers, true or false;
librdkafka's CONFIGURATION.md explains them. A property of one kind of client is not passed to the other.
[ACCESS.md](ACCESS.md) shows ways to log in.
"""
_PIPELINE_HEAD = """\
# Configuration of the pipeline

Made by `python -m tools.docs` from `pipeline/log_partitioner_pipeline/config.py`; do not edit.

A job (`python -m log_partitioner_pipeline JOB`) reads the settings of a worker ([CONFIGURATION.md](CONFIGURATION.md)),
for topics, objects and the reading of entries, and these. They come from the environment, a TOML file named by
`PIPELINE_CONFIG_FILE`, secret files in the directory named by `PIPELINE_SECRETS_DIR`, or are defaults. A variable with
the prefix `PIPELINE_` that names no setting is refused.
"""
_UNITS: Mapping[str | None, str] = {"seconds": "time, ", "bytes": "size, "}
_DEFAULTS_MADE = {"worker": "host name"}
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false"}


def worker_page() -> str:
    """Write the page of the worker's settings."""
    return "\n".join([_HEAD + _first(), *(_section(group, prefix=PREFIX) for group in groups()), _properties()])


def _first() -> str:
    """Write what most set: each by its name, which leads to its section, with its default."""
    found = {".".join(setting.path): setting for group in groups() for setting in group.settings}
    sections = {name: name.partition(".")[0] if "." in name else "worker" for name in _FIRST}
    rows = [
        (
            f"[{code(name)}](#{sections[name]})",
            code(variable_of(found[name].path, prefix=PREFIX)),
            _default(found[name]),
        )
        for name in _FIRST
    ]
    return table(("setting", "variable", "default"), rows)


def _properties() -> str:
    """Write the librdkafka properties that may be passed through, by the client that they are of."""
    consumer, producer = ALLOWED["consumer"], ALLOWED["producer"]
    lists = {
        "secret": SECRET,
        "both clients": consumer & producer - SECRET,
        "the consumer": consumer - producer,
        "the producer": producer - consumer,
    }
    rows = [(who, ", ".join(map(code, sorted(names)))) for who, names in lists.items()]
    return f"{_PROPERTIES}\n{table(('of', 'properties'), rows)}"


def pipeline_page() -> str:
    """Write the page of the jobs' settings."""
    sections = [group for group in groups(PipelineSettings) if group.settings]
    return "\n".join([_PIPELINE_HEAD, *(_section(group, prefix=PIPELINE_PREFIX) for group in sections)])


def _section(group: Group, *, prefix: str) -> str:
    title = f"## {group.name}" if group.name else "## Worker"
    rows = [
        (
            code(variable_of(setting.path, prefix=prefix)),
            _UNITS.get(setting.unit, "") + _type(setting.schema) + (", secret" if setting.is_secret else ""),
            _default(setting),
            setting.schema["description"],
        )
        for setting in group.settings
    ]
    return f"{title}\n\n{group.meaning}\n\n{table(('variable', 'type', 'default', 'meaning'), rows)}"


def _type(schema: Schema) -> str:
    if "anyOf" in schema:
        return _type(next(option for option in schema["anyOf"] if option["type"] != "null"))
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    match schema["type"]:
        case "array":
            return "list"
        case "object":
            return "object"
        case simple:
            return _TYPES[simple] + _range(schema)


def _range(schema: Schema) -> str:
    bounds: Sequence[tuple[str, str]] = (("exclusiveMinimum", ">"), ("minimum", "≥"), ("maximum", "≤"))
    return "".join(f" {sign} {schema[name]}" for name, sign in bounds if name in schema)


def _default(setting: Setting) -> str:
    if setting.is_required:
        return "**required**"
    if setting.path[-1] in _DEFAULTS_MADE:
        return _DEFAULTS_MADE[setting.path[-1]]
    default = setting.schema["default"]
    if default is None:
        return "none"
    return code(default if isinstance(default, str) else json.dumps(default, ensure_ascii=False))
