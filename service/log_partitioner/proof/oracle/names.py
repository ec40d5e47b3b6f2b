"""The Avro names that the fields of one record must have (DESIGN 3.3), computed from their original names.

A leading digit gets `_`, a character that Avro forbids becomes `_x<HEX>`. If names are alike but for case, the first
original in code-point order keeps its own name; each other gets the first of `_2`, `_3`, ... that no field has or
wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS = frozenset("0123456789")
_ALLOWED = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")


def avro_names(originals: Iterable[str], *, reserved: Iterable[str] = ()) -> dict[str, str]:
    """Return the Avro name of each original; no field gets one that is reserved, in any case."""
    return {original: name for original, (name,) in names_by_original(set(originals), reserved=reserved).items()}


def names_by_original(originals: Iterable[str], *, reserved: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the Avro names of the fields of each original, in the order in which they stand in their record."""
    wanted = [(original, _legal(original)) for original in sorted(originals)]
    wishes = {name.lower() for _, name in wanted}
    taken = set(reserved)
    names: dict[str, list[str]] = {}
    for original, wish in wanted:
        name, number = wish, 1
        while name.lower() in taken or (number > 1 and name.lower() in wishes):
            number += 1
            name = f"{wish}_{number}"
        taken.add(name.lower())
        names.setdefault(original, []).append(name)
    return names


def _legal(original: str) -> str:
    name = "".join(char if char in _ALLOWED else f"_x{ord(char):X}" for char in original)
    return f"_{name}" if not name or name[0] in _DIGITS else name
