"""The name of a schema in a registry, and the schema; no meaning of either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

Kind = Literal["id", "guid", "global_id"]


class SchemaRef(NamedTuple):
    """The name by which a registry knows a schema: an id, a GUID, or the global id of Apicurio."""

    kind: Kind
    value: int | str

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} {self.value}"


class Schema(NamedTuple):
    """The text of a schema, and the names and texts that it refers to, each behind those that it refers to itself.

    Bytes come from a file: a text, or a compiler's output for one.
    """

    text: str | bytes
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Characters of all texts."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)


FindSchema = Callable[[SchemaRef], Schema | None]
"""Gives a schema, None if the registry does not know it; raises RegistryError if that cannot be told now."""
