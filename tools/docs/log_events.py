"""docs/LOG_EVENTS.md: every event of the worker's log with fields and meaning."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import msgspec

from log_partitioner.formats.log_events import EVENTS, FIELDS, Head
from log_partitioner.formats.plain_events import PLAIN
from tools.docs.tables import code, table

_HEAD = """\
# Log events

Made by `python -m tools.docs` from `service/log_partitioner/formats/log_events.py`; do not edit.

With `LOGP_LOG__FORMAT=json` each line is one JSON object. {head}
Lines of other programs may stand between; a reader ignores events and fields that it does not know.

## Fields of several events

"""
_EVENTS = """
## Events for programs

Names and fields stay. Older lines may lack a field that was added since; a field with `?` is left out if it has its
default value.

"""
_PLAIN = """
## Events for a person

"""


def log_events_page() -> str:
    """Write the page."""
    fields = table(("field", "meaning"), ((code(name), text) for name, text in FIELDS.items()))
    events = table(("event", "meaning, own fields", "other fields"), _events())
    plain = table(("event", "meaning"), ((code(name), text) for name, text in PLAIN.items()))
    return _HEAD.format(head=_meaning(Head)) + fields + _EVENTS + events + _PLAIN + plain


def _events() -> Iterator[tuple[str, str, str]]:
    for name, kind in EVENTS.items():
        fields = {field.name: "" if field.required else "?" for field in msgspec.structs.fields(kind)}
        meaning = _meaning(kind)
        shared = (code(field) + mark for field, mark in fields.items() if code(field) not in meaning)
        for field, mark in fields.items():
            meaning = meaning.replace(code(field), code(field) + mark)
        yield code(name), meaning, ", ".join(shared)


def _meaning(kind: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())
