"""Hostile entries, as no real set has them: nested, 1-3 KB, hundreds of optional fields, types that disagree.

Forty kinds of events have ten fields each out of 300, some of which an entry leaves out; a field in twenty is a number
to one program and a string or an object to another. Floats have up to 17 digits.
"""

import json
import random
from datetime import UTC, datetime
from typing import Any

_KINDS = 40
_FIELDS = 300
_FIELDS_OF_A_KIND = 10
_PRESENT = 0.9
_DISAGREEING = 20  # each such field is
_OTHERWISE = 0.05
_METHODS = ("GET", "POST", "PUT", "DELETE")
_WORDS = [
    "timeout",
    "reset",
    "while",
    "reading",
    "response",
    "header",
    "from",
    "upstream",
    "worker",
    "queue",
    "shard",
    "replica",
    "tenant",
    "cache",
]


def entry(seeded: random.Random, *, number: int, user: str, time_ms: int) -> bytes:
    """Return the next entry as JSON."""
    kind = seeded.randrange(_KINDS)
    body = {
        "id": f"{number:016x}",
        "time": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "user": user,
        "kind": f"kind-{kind}",
        "host": {"name": f"host-{kind % 7}", "zone": "eu-1b", "load": [seeded.random() for _ in range(3)]},
        "http": {
            "request": {
                "method": seeded.choice(_METHODS),
                "path": f"/api/v2/{_text(seeded, 3).replace(' ', '/')}",
                "headers": {"accept": "application/json", "trace": f"{seeded.getrandbits(128):032x}"},
            },
            "response": {"status": seeded.choice((200, 204, 404, 500)), "seconds": seeded.expovariate(10)},
        },
        "place": {"latitude": seeded.uniform(-90, 90), "longitude": seeded.uniform(-180, 180)},
        "items": [
            {"sku": f"sku-{seeded.randrange(10_000)}", "price": seeded.uniform(1, 500), "count": seeded.randrange(1, 9)}
            for _ in range(seeded.randrange(5))
        ],
        "attributes": _attributes(seeded, kind),
        "message": _text(seeded, seeded.randrange(20, 300)),
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _attributes(seeded: random.Random, kind: int) -> dict[str, Any]:
    fields = ((kind * 7 + step * 29) % _FIELDS for step in range(_FIELDS_OF_A_KIND))
    return {f"attribute_{field}": _value(seeded, field) for field in fields if seeded.random() < _PRESENT}


def _value(seeded: random.Random, field: int) -> Any:
    if field % _DISAGREEING == 0 and seeded.random() < _OTHERWISE:
        return seeded.choice(("unknown", {"code": seeded.randrange(100), "text": "n/a"}))
    match field % 4:
        case 0:
            return seeded.randrange(1_000_000)
        case 1:
            return seeded.random()
        case 2:
            return _text(seeded, 4)
        case _:
            return seeded.random() < 0.5  # noqa: PLR2004  # a coin


def _text(seeded: random.Random, words: int) -> str:
    return " ".join(seeded.choices(_WORDS, k=words))
