"""One log entry: its user, its event time in one of many shapes, and the fields of its kind.

Deterministic: all chance comes from the generator's `Random`.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import accumulate
from random import Random

from tools.demo.settings import GeneratorSettings

MINUTE_US = 60_000_000
DAY_US = 86_400_000_000

# Users as real logs have them; numbers because some products log account numbers.
AWKWARD_USERS: tuple[str | int, ...] = (
    "../../x",
    "/etc/passwd",
    "..",
    ".",
    "a/b/c",
    "DOMAIN\\user",
    "C:\\Users\\Ann",
    "WORKSTATION5$",
    "ann@example.com",
    "Ann",
    "ann",
    "ANN",
    "Ann Smith",
    " ann ",
    "M\u00fcller",
    "\u738b\u5c0f\u660e",
    "\u0645\u062d\u0645\u062f",
    "Jos\u00e9",
    "Jose\u0301",  # the same to the eye, other code points
    "\U0001f680",
    "2001:db8::8a2e:370:7334",
    "::1",
    "arn:aws:iam::123456789012:user/ops/Ann",
    "arn:aws:sts::123456789012:assumed-role/Admin/i-0abc",
    "user=ann",
    "%2e%2e%2f",
    "CON",
    "-rf",
    "a\tb",
    "zero\u200bwidth",
    "null",
    "u" * 300,
    "\u00fc" * 150,
    42,
    9_007_199_254_740_993,
)

BLANK_USERS: tuple[str | None, ...] = ("-", "", None)
ABSURD_TIMES: tuple[object, ...] = (
    0,
    1,
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    4_102_444_800,
    "yesterday",
    -1,
    True,
    {},
)

_CITIES = ("Lisbon", "K\u00f8benhavn", "S\u00e3o Paulo", "\u6771\u4eac", "Nairobi", "Oslo", None)
_PATHS = (
    "/",
    "/cart",
    "/search?q=%C3%A9t%C3%A9",
    "/api/v2/items",
    "/login",
    "/static/app.js",
    "/\u00fcber-uns",
)
_LEVELS = ("info", "info", "info", "warning", "error", "debug")
_EAST = timezone(timedelta(hours=2))


class Users:
    """Picks users with a zipf skew; awkward ones stand at all ranks."""

    def __init__(self, settings: GeneratorSettings, rng: Random) -> None:
        plain: list[str | int] = [f"user-{number:05d}" for number in range(settings.users)]
        pool = plain + list(AWKWARD_USERS)
        rng.shuffle(pool)
        weights = [1 / rank**settings.zipf_exponent for rank in range(1, len(pool) + 1)]
        # Chance would leave some awkward ones at ranks that are never reached.
        least = settings.rates.awkward_user * sum(weights) / len(AWKWARD_USERS)
        awkward = set(AWKWARD_USERS)
        weights = [
            max(weight, least) if user in awkward else weight for user, weight in zip(pool, weights, strict=True)
        ]
        self._picks = _pick_forever(rng, pool, list(accumulate(weights)))

    def pick(self) -> str | int:
        """Return the next user."""
        return next(self._picks)


def _pick_forever(rng: Random, pool: list[str | int], weights: list[float]) -> Iterator[str | int]:
    while True:  # many at once: much cheaper than one by one
        yield from rng.choices(pool, cum_weights=weights, k=1000)


def make_fields(rng: Random, number: int) -> dict[str, object]:
    """Return the fields of an entry without user and time; `number` makes the id unique."""
    bits = rng.getrandbits(64)
    entry: dict[str, object] = {
        "id": f"{bits:016x}-{number:x}",
        "user": None,  # user and time stand second and third, as people write logs
        "time": None,
        "level": _LEVELS[bits % 6],
    }
    _KINDS[bits % 5](entry, bits >> 8)
    return entry


def _page_view(entry: dict[str, object], bits: int) -> None:
    entry["kind"] = "page_view"
    entry["path"] = _PATHS[bits % 7]
    entry["status"] = 200 + bits % 3 * 100
    entry["duration_ms"] = bits % 4000
    entry["geo"] = {
        "city": _CITIES[bits % 7],
        "lat": bits % 18000 / 100 - 90,
        "lon": bits % 36000 / 100 - 180,
    }


def _api_call(entry: dict[str, object], bits: int) -> None:
    entry["kind"] = "api_call"
    entry["status"] = 200 if bits % 9 else 503
    entry["duration_ms"] = bits % 1000 / 8
    entry["request"] = {
        "method": "GET" if bits % 2 else "POST",
        "bytes": bits % 100_000,
        "tags": [{"key": "team", "value": f"t{bits % 20}"}, {"key": "env", "value": "prod"}],
    }


def _login(entry: dict[str, object], bits: int) -> None:
    entry["kind"] = "login"
    entry["ok"] = bits % 10 != 0
    entry["address"] = f"10.{bits % 256}.{bits // 256 % 256}.7"
    entry["agent"] = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"


def _payment(entry: dict[str, object], bits: int) -> None:
    entry["kind"] = "payment"
    # As JSON writers do it: a float without a fraction comes out as an integer.
    entry["amount"] = bits % 10_000 if bits % 10 else bits % 1_000_000 / 100
    entry["account"] = bits % (1 << 53)
    entry["currency"] = "EUR"


def _job(entry: dict[str, object], bits: int) -> None:
    entry["kind"] = "job"
    entry["message"] = f"job {bits % 977} finished\n  read {bits % 5000} rows\n  wrote {bits % 300} rows"
    entry["steps"] = [bits % 7, bits % 11, bits % 13]


_KINDS = (_page_view, _api_call, _login, _payment, _job)


def shift_event_time(rng: Random, settings: GeneratorSettings, timestamp_ms: int) -> int:
    """Return the event time in microseconds: shortly before the record's, sometimes long before."""
    at_us = timestamp_ms * 1000 - rng.getrandbits(22)  # up to 4.2 s
    chance = rng.random()
    if chance < settings.rates.late_days:
        return at_us - (1 + rng.getrandbits(2)) * DAY_US
    if chance < settings.rates.late_days + settings.rates.late_minutes:
        return at_us - (1 + rng.getrandbits(6)) * MINUTE_US
    return at_us


def _iso(at_us: int, zone: timezone) -> str:
    return datetime.fromtimestamp(at_us // 1_000_000, tz=zone).replace(microsecond=at_us % 1_000_000).isoformat()


TIME_SHAPES: tuple[Callable[[int], object], ...] = (
    lambda at_us: _iso(at_us, UTC)[:19] + "Z",
    lambda at_us: f"{_iso(at_us, UTC)[:19]}.{at_us // 1000 % 1000:03d}Z",
    lambda at_us: f"{_iso(at_us, UTC)[:19]}.{at_us % 1_000_000:06d}000Z",
    lambda at_us: _iso(at_us, _EAST)[:19] + "+0200",
    lambda at_us: f"{_iso(at_us, _EAST)[:19]}.{at_us // 100_000 % 10}+02:00",
    lambda at_us: _iso(at_us, UTC)[:19].replace("T", " "),
    lambda at_us: f"{_iso(at_us, UTC)[:19].replace('T', ' ')}.{at_us // 1000 % 1000:03d}",
    lambda at_us: at_us // 1_000_000,
    lambda at_us: at_us // 1000,
    lambda at_us: at_us,
    lambda at_us: str(at_us // 1_000_000),
    lambda at_us: str(at_us // 1000),
    lambda at_us: at_us / 1_000_000,
)
