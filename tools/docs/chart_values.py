"""The chart's values.yaml, read as plain text: each value with its comment, without a YAML library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHART = Path(__file__).resolve().parents[2] / "helm" / "log-partitioner"


class Value(NamedTuple):
    """A line `name: text` of the file; `text` is empty if values stand below it."""

    path: tuple[str, ...]
    text: str
    comment: str

    @property
    def scalar(self) -> str | int | bool:
        """The text as YAML has it; lists and maps in brackets stay text."""
        if self.text in ("true", "false"):
            return self.text == "true"
        if self.text.startswith('"'):
            return str(json.loads(self.text))
        return int(self.text) if self.text.isdigit() else self.text


def values_of(file: Path = CHART / "values.yaml") -> Iterator[Value]:
    """Yield the values of a file in their order; a comment is the lines right above it."""
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.removeprefix("#").strip())
            continue
        if not text:
            comment = []
            continue
        name, colon, rest = text.partition(":")
        if not colon:
            raise ValueError(f"{file.name}: not plain: {line!r}")
        indent = len(line) - len(line.lstrip())
        while parents and parents[-1][0] >= indent:
            parents.pop()
        parents.append((indent, name))
        yield Value(tuple(parent for _, parent in parents), rest.strip(), " ".join(comment))
        comment = []
