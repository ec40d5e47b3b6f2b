"""Original key -> Avro name, by Iceberg's rule, deterministic and free of collisions (DESIGN 3.3).

A leading digit gets `_`, any other character that Avro forbids becomes `_x<HEX>` of its code point. Collisions, also
those by case alone (Spark matches without case), get `_2`, `_3`, ... in code-point order of the originals. Names are
per file: readers match by original-name path and mark, never by these names alone.

If fields of one original name stand beside each other (`log_partitioner.avro.pack_schema`), each further one has a key
of its own, and counts as one more of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]")
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
BESIDE = "\ud800"  # no original has half a surrogate: no UTF-8 holds it (DESIGN 3.1)


def beside(original: str, number: int) -> str:
    """Return the key of a name's field, 0 for the first; keys of one name ascend."""
    return f"{original}{BESIDE}{number:06}" if number else original


def original_of(key: str) -> str:
    """Return the original name of a field's key."""
    return key.partition(BESIDE)[0]


def sanitise(original: str) -> str:
    """Make one Avro-legal name; not injective by itself."""
    if _LEGAL.match(original):
        return original
    name = _FORBIDDEN.sub(lambda found: f"_x{ord(found[0]):X}", original)
    return name if name and not name[0].isdigit() else f"_{name}"


def avro_names(originals: Iterable[str], *, reserved: Iterable[str] = ()) -> dict[str, str]:
    """Name the fields of one record: original (or key) -> Avro name, distinct even without case.

    `reserved` are lower-case names that no field may get. The result depends on the set of originals alone.
    """
    ordered = sorted(originals, key=_in_order)
    wanted = {original: sanitise(original_of(original)) for original in ordered}
    taken = set(reserved)
    asked_for = {name.lower() for name in wanted.values()}
    names: dict[str, str] = {}
    next_numbers: dict[str, int] = {}
    for original in ordered:
        name = wanted[original]
        lower = name.lower()
        if lower in taken:
            number = next_numbers.get(lower, 2)
            while f"{lower}_{number}" in taken or f"{lower}_{number}" in asked_for:
                number += 1
            next_numbers[lower] = number + 1
            name, lower = f"{name}_{number}", f"{lower}_{number}"
        taken.add(lower)
        names[original] = name
    return names


def _in_order(key: str) -> tuple[str, str]:
    """Order by original name; fields of one name as they stand in their record, whose keys ascend."""
    return original_of(key), key
