"""Reads the plain YAML of our values.yaml: maps by indentation, scalars; enough where there is no YAML library."""

import json
from pathlib import Path


def read(path: Path) -> dict[str, str | int]:
    """Read a file as `a.b.c` -> scalar; lists, and maps in braces, stay text."""
    values: dict[str, str | int] = {}
    parents: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, colon, value = text.partition(":")
        assert colon, f"{path.name}: not plain: {line!r}"
        indent = len(line) - len(line.lstrip())
        while parents and parents[-1][0] >= indent:
            parents.pop()
        if value:
            values[".".join([*(parent for _, parent in parents), name])] = _scalar(value.strip())
        else:
            parents.append((indent, name))
    return values


def _scalar(text: str) -> str | int:
    if text.startswith('"'):
        return str(json.loads(text))
    return int(text) if text.isdigit() else text
