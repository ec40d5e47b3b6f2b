"""The JSON schema of settings as sections, from which the pages and the chart's schema are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from log_partitioner.config.settings import Settings

Schema = Mapping[str, Any]


class Setting(NamedTuple):
    """One setting; `path` as in `log_partitioner.config.sources.variable_of`."""

    path: tuple[str, ...]
    schema: Schema
    is_required: bool

    @property
    def unit(self) -> str | None:
        """The unit of a number that may be given as a text with a unit."""
        return next((option["unit"] for option in self.schema.get("anyOf", [self.schema]) if "unit" in option), None)

    @property
    def is_secret(self) -> bool:
        """Whether it, or a value in it, is never shown."""
        return _holds_secret(self.schema)


class Group(NamedTuple):
    """One table of settings; the worker's own settings stand in a group without a name."""

    name: str
    meaning: str
    settings: tuple[Setting, ...]


def groups(kind: type[BaseModel] = Settings) -> list[Group]:
    """List all settings, in the order in which they are declared."""
    root = kind.model_json_schema()
    sections: dict[str, Schema] = {}
    plain: list[Setting] = []
    for name, schema in root["properties"].items():
        if "$ref" in schema:
            sections[name] = root["$defs"][schema["$ref"].rpartition("/")[2]]
        else:
            plain.append(Setting((name,), schema, name in root.get("required", ())))
    return [
        Group("", root["description"], tuple(plain)),
        *(Group(name, schema["description"], tuple(_settings(name, schema))) for name, schema in sections.items()),
    ]


def _settings(section: str, schema: Schema) -> Iterator[Setting]:
    for name, setting in schema["properties"].items():
        yield Setting((section, name), setting, name in schema.get("required", ()))


def _holds_secret(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return schema.get("format") == "password" or any(_holds_secret(value) for value in schema.values())
    return isinstance(schema, list) and any(_holds_secret(value) for value in schema)
