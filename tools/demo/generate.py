"""Source records as real products write them: pure, seeded, with every trait that has hurt a product.

generate
├── settings   amounts and rates
├── entries    users, event times, ordinary fields
├── oddities   legal but odd entries
└── flaws      broken records
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from random import Random

import msgspec

from log_partitioner import zstd
from tools.demo.entries import ABSURD_TIMES, BLANK_USERS, TIME_SHAPES, Users, make_fields, shift_event_time
from tools.demo.flaws import FLAWS, join
from tools.demo.oddities import ODDITIES, RARE_TYPE, RAW_ODDITIES
from tools.demo.settings import GeneratorSettings

Headers = tuple[tuple[str, bytes | None], ...]

_EMPTY_VALUES = (None, b"[]", b"[ ]")


@dataclass(frozen=True, slots=True)
class GeneratedRecord:
    """A record to produce; `entries` is how many a product meant to write, broken ones included."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    entries: int
    flaw: str | None = None


def generate(settings: GeneratorSettings) -> Iterator[GeneratedRecord]:
    """Yield records until `settings.entries` entries are made; equal settings yield equal records."""
    rng = Random(settings.seed)
    make = _EntryMaker(settings, rng)
    sizes = _pick_sizes(settings, rng)
    flaws = cycle(FLAWS)
    rates = settings.rates
    step_ms = settings.span_ms / max(1, settings.entries)
    made = 0
    while made < settings.entries:
        timestamp_ms = settings.start_ms + int(made * step_ms)
        key, headers = _envelope(settings, rng)
        if rng.random() < rates.empty:
            yield GeneratedRecord(key, rng.choice(_EMPTY_VALUES), headers, timestamp_ms, entries=0)
        size = min(next(sizes), settings.entries - made)
        elements = make.entries(size, number=made, timestamp_ms=timestamp_ms)
        made += size
        flaw = next(flaws) if rng.random() < rates.broken else None
        if flaw is not None:
            value = FLAWS[flaw](elements)
        else:
            # Some products write an array even for one entry.
            value = elements[0] if size == 1 and rng.getrandbits(2) else join(elements)
            if rng.random() < rates.compressed:
                value = _compress(rng, value)
        yield GeneratedRecord(key, value, headers, timestamp_ms, size, flaw)


class _EntryMaker:
    """Makes the encoded entries of one record after the other."""

    def __init__(self, settings: GeneratorSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._users = Users(settings, rng)
        self._oddities = cycle(ODDITIES)
        self._raw_oddities = cycle(RAW_ODDITIES)
        self._absurd_times = cycle(ABSURD_TIMES)
        self._encode = msgspec.json.Encoder().encode
        self._null_until = int(settings.entries * settings.null_until)
        self._last_id: object = "first"

    def entries(self, size: int, *, number: int, timestamp_ms: int) -> list[bytes]:
        """Return `size` entries, nearly all of one user and with one shape of event time."""
        user = self._users.pick()
        shape = TIME_SHAPES[self._rng.randrange(len(TIME_SHAPES))]
        encoded = []
        for index in range(size):
            entry = make_fields(self._rng, number + index)
            entry["user"] = user
            entry["time"] = shape(shift_event_time(self._rng, self._settings, timestamp_ms))
            entry["campaign"] = None if number < self._null_until else {"name": "autumn", "step": index % 3}
            encoded.append(self._distort(entry))
            self._last_id = entry.get("id")
        return encoded

    def _distort(self, entry: dict[str, object]) -> bytes:
        """Give the entry the rarer traits, each by its rate, and encode it."""
        rates, chance = self._settings.rates, self._rng.random
        self._distort_identity(entry)
        if chance() < rates.no_time:
            del entry["time"]
        elif chance() < rates.absurd_time:
            entry["time"] = next(self._absurd_times)
        if chance() < rates.rare_type:
            RARE_TYPE(self._rng, entry)
        if chance() >= rates.odd:
            return self._encode(entry)
        if chance() < len(RAW_ODDITIES) / (len(RAW_ODDITIES) + len(ODDITIES)):
            return self._encode(entry)[:-1] + next(self._raw_oddities)
        next(self._oddities)(self._rng, entry)
        return self._encode(entry)

    def _distort_identity(self, entry: dict[str, object]) -> None:
        rates, rng = self._settings.rates, self._rng
        chance = rng.random()
        if chance < rates.no_user:
            del entry["user"]
        elif chance < rates.no_user + rates.blank_user:
            entry["user"] = rng.choice(BLANK_USERS)
        elif chance < rates.no_user + rates.blank_user + rates.other_user:
            entry["user"] = self._users.pick()
        chance = rng.random()
        if chance < rates.no_id:
            del entry["id"]
        elif chance < rates.no_id + rates.repeated_id:
            entry["id"] = self._last_id


def _pick_sizes(settings: GeneratorSettings, rng: Random) -> Iterator[int]:
    while True:
        yield from rng.choices(settings.record_sizes, settings.record_size_weights, k=1000)


def _envelope(settings: GeneratorSettings, rng: Random) -> tuple[bytes | None, Headers]:
    key = b"session-%x" % rng.getrandbits(24) if rng.random() < settings.rates.keyed else None
    if rng.random() >= settings.rates.headers:
        return key, ()
    return key, (("trace", b"%016x" % rng.getrandbits(64)), ("trace", b"again"), ("empty", None))


def _compress(rng: Random, value: bytes) -> bytes:
    if rng.getrandbits(1):
        return gzip.compress(value, compresslevel=1, mtime=0)
    return zstd.compress(value)
