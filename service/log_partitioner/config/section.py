"""The types of which sections of settings are made, and how a text of a source becomes a value of each.

Times and sizes have units, lists have commas, objects are JSON. Each function takes a value from a source: a text of
the environment, or a value of TOML or of an argument. A value that is no text goes on to pydantic unchanged. A refusal
names the expected form; it repeats no value but a zone's or a path's, since others may be secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, WithJsonSchema
from pydantic.config import JsonDict

_SECONDS: Mapping[str, float] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_BYTES: Mapping[str, int] = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}i{b}": 1024**power for power, letter in enumerate("kmgt", start=1) for b in ("", "b")},
}
_QUANTITY = re.compile(r"\s*([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
TIME = "must be a time such as 500ms, 30s, 5m, 1h or 1d, or a number of seconds"
SIZE = "must be a size such as 64KiB, 256MiB or 2GiB, or a whole number of bytes"
LIST = 'must be a list: a,b or, as JSON, ["a", "b"]'
MOMENT = "must be an ISO-8601 time, such as 2000-01-01T00:00:00Z"
START = "must be beginning, fail, or a time with its zone such as 2026-11-27T09:00:00Z, from which on records are read"
TIME_PARTS = re.compile(r"%.?| +|[^% ]+", re.DOTALL)
_DIRECTIVES = ("%Y", "%y", "%m", "%b", "%d", "%a", "%H", "%M", "%S", "%z")
TIME_FORMAT = (
    f"must be a day, a month and more, such as %d/%m/%Y %H:%M:%S, each once, of {' '.join(_DIRECTIVES)} and %%"
)
_DOT = re.compile(r"(?<!\\)\.")
_INSIDE = re.compile(r"(?<!\\)::")
INSIDE = ""  # among the keys of a path: the value there is JSON text, in which the path goes on
OBJECT = 'must be a JSON object such as {"name": "value"}'


def seconds_of(given: object) -> object:
    """Return the seconds of a time with its unit."""
    return _quantity(given, _SECONDS, TIME) if isinstance(given, str) else given


def bytes_of(given: object) -> object:
    """Return the bytes of a size with its unit."""
    return _quantity(given, _BYTES, SIZE) if isinstance(given, str) else given


def _quantity(text: str, units: Mapping[str, float], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(expected)
    return float(match[1]) * units[match[2].lower()]


def start_of(given: object) -> object:
    """Return the start of a new group: `beginning`, `fail`, or a time in milliseconds since the epoch."""
    if given in ("beginning", "fail") or (type(given) is int and given >= 0):
        return given
    moment = _moment(given, START)
    if moment.tzinfo is None:
        raise ValueError(START)
    return max(0, round(moment.timestamp() * 1000))


def moment_of(given: object) -> object:
    """Return a time; one without a zone is UTC's."""
    moment = _moment(given, MOMENT)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _moment(given: object, expected: str) -> datetime:
    try:
        return datetime.fromisoformat(str(given))
    except ValueError:
        raise ValueError(expected) from None


def time_format_of(given: object) -> object:
    """Return a form of times; `%S` takes a fraction, too, and a space stands for several."""
    found = [part for part in TIME_PARTS.findall(str(given)) if part[0] == "%" and part != "%%"]
    has_date = "%d" in found and ("%m" in found) != ("%b" in found) and not {"%Y", "%y"} <= {*found}
    if not has_date or len({*found, *_DIRECTIVES}) > len(_DIRECTIVES) or len({*found}) < len(found):
        raise ValueError(TIME_FORMAT)
    return given


def zone_of(given: object) -> ZoneInfo:
    """Return the time zone of a name."""
    try:
        return ZoneInfo(str(given))
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{str(given)!r} is not a time zone of this machine or of the package tzdata, such as UTC or Europe/Berlin"
        ) from error


def parse_path(path: str) -> tuple[Literal["entry", "envelope", "key", "header"], tuple[str, ...]]:
    """Return the begin of a path to a value, and the keys from there; `partitioning.locate` shows the forms.

    Raises:
        ValueError: a key is empty.
    """
    begin, colon, rest = path.partition(":")
    if begin == "key" and not colon:
        return "key", ()
    if begin == "header" and colon:
        if not rest:
            raise ValueError("header: needs the name of a header")
        return "header", (rest,)
    if colon and begin in ("key", "envelope"):
        return ("key" if begin == "key" else "envelope"), _keys(rest)
    return "entry", _keys(path)


def _keys(path: str) -> tuple[str, ...]:
    r"""Split a dotted path into its keys, `INSIDE` for `::`; `\.` is a dot inside a key, `\:` a colon."""
    parts = [_DOT.split(part) for part in _INSIDE.split(path)]
    if not all(map(all, parts)):
        raise ValueError(f"{path!r} has an empty key; write `\\.` for a dot inside a key")
    keys = [key for part in parts for key in (INSIDE, *part)][1:]
    return tuple(key.replace("\\.", ".").replace("\\:", ":") for key in keys)


class PathStep(NamedTuple):
    """A key that leads on in an envelope; to each element of a list, or to an object."""

    key: str
    is_list: bool


def parse_entries_path(path: str) -> tuple[PathStep, ...]:
    r"""Return the steps of `a.b[].c[]`; `\.` is a dot inside a key.

    Raises:
        ValueError: a key is empty.
    """
    steps = tuple(PathStep(key.removesuffix("[]"), key.endswith("[]")) for key in _keys(path))
    if not all(step.key for step in steps):
        raise ValueError(f"{path!r} has an empty key before [], or leads into a text")
    return steps


def list_of(given: object) -> object:
    """Return the names in a text: a JSON list, or names with commas between them."""
    if not isinstance(given, str):
        return given
    text = given.strip()
    if text.startswith('"'):  # the quotes of a shell or of an env file that arrived with the value
        text = f"[{text}]"
    if not text.startswith("["):
        return [name.strip() for name in text.split(",") if name.strip()]
    return _json(text, list, LIST)


def object_of(given: object) -> object:
    """Return the object that a text is."""
    return _json(given, dict, OBJECT) if isinstance(given, str) else given


def property_of(given: object) -> object:
    """Return the value of a property as the text that its library reads; numbers and booleans become texts."""
    if isinstance(given, bool):
        return str(given).lower()
    return str(given) if isinstance(given, int | float) else given


def _json(text: str, kind: type, expected: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(expected) from None
    if not isinstance(value, kind):
        raise ValueError(expected)  # noqa: TRY004 - pydantic takes a ValueError for a refusal
    return value


PositiveInt = Annotated[int, Field(gt=0)]
# What stands in the JSON schema, for the pages and the chart: a text with a unit is taken, too.
SECONDS: JsonDict = {"unit": "seconds"}
BYTES: JsonDict = {"unit": "bytes"}
TAKES_TIME, TAKES_SIZE = BeforeValidator(seconds_of), BeforeValidator(bytes_of)
NotNegativeSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False, json_schema_extra=SECONDS), TAKES_TIME]
PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False, json_schema_extra=SECONDS), TAKES_TIME]
PositiveBytes = Annotated[int, Field(gt=0, json_schema_extra=BYTES), TAKES_SIZE]
StartAt = Annotated[Literal["beginning", "fail"] | int, BeforeValidator(start_of), WithJsonSchema({"type": "string"})]
Moment = Annotated[datetime, BeforeValidator(moment_of), WithJsonSchema({"type": "string"})]
Zone = Annotated[ZoneInfo, BeforeValidator(zone_of), WithJsonSchema({"type": "string"})]
TimeFormat = Annotated[str, BeforeValidator(time_format_of)]
Names = Annotated[tuple[str, ...], BeforeValidator(list_of)]
_PropertyText = BeforeValidator(property_of)
Properties = Annotated[dict[str, Annotated[str, _PropertyText]], BeforeValidator(object_of)]
SecretProperties = Annotated[dict[str, Annotated[SecretStr, _PropertyText]], BeforeValidator(object_of)]


class Section(BaseModel):
    """A frozen group of settings; the docstring below a setting is its meaning in pages, schema and messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
