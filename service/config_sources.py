"""What is wrong with the sources of settings before any setting is read: files that are absent, variables misspelt.

Knows no setting by name; `service.config` hands over the environment and its class.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_NOT_SETTINGS = ("CONFIG_FILE", "SECRETS_DIR")
_JSON_EXAMPLES: dict[object, str] = {tuple: '["a", "b"]', dict: '{"name": "value"}'}


def find_absent_sources(environ: Mapping[str, str], prefix: str) -> list[str]:
    """Find sources that are named but not there: they must not be silent defaults."""
    file, directory = environ.get(f"{prefix}CONFIG_FILE"), environ.get(f"{prefix}SECRETS_DIR")
    problems = []
    if file and not Path(file).is_file():
        problems.append(f"{prefix}CONFIG_FILE names no file: {file}")
    if directory and not Path(directory).is_dir():
        problems.append(f"{prefix}SECRETS_DIR names no directory: {directory}")
    return problems


def find_wrong_variables(environ: Mapping[str, str], prefix: str, settings: type[BaseModel]) -> list[str]:
    """Find variables that name no setting, and those of lists and objects that are not JSON.

    Pydantic itself finds unknown names inside a section; it does not say which variable is not JSON.
    """
    problems = []
    for variable, path, value in _variables(environ, prefix):
        field = settings.model_fields.get(path[0])
        section = _section_of(field)
        if field is None or (len(path) > 1 and section is None):
            problems.append(f"{variable} names no setting")
        elif section is not None and path[1:]:
            kind = _kind_of(section.model_fields.get("__".join(path[1:])))
            if kind in _JSON_EXAMPLES and not _is_json(value):
                problems.append(f"{variable} is not JSON, such as {_JSON_EXAMPLES[kind]}")
    return problems


def _variables(environ: Mapping[str, str], prefix: str) -> Iterator[tuple[str, list[str], str]]:
    """Give name, path and value of every variable with our prefix, in any case, as pydantic reads them."""
    for variable, value in sorted(environ.items()):
        name = variable.upper().removeprefix(prefix)
        if name != variable.upper() and name not in _NOT_SETTINGS and not name.startswith("TEST_"):
            yield variable, name.lower().split("__"), value


def _section_of(field: FieldInfo | None) -> type[BaseModel] | None:
    kind = field.annotation if field is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _kind_of(field: FieldInfo | None) -> object:
    return get_origin(field.annotation) if field is not None else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
