"""Settings of the generator: amounts, and the rate of each trait that real logs have.

Values only; `tools.demo.generate` reads them.
"""

from dataclasses import dataclass, field, replace

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares between 0 and 1; those of the first group per entry, those of the second per record."""

    no_user: float = 0.02
    blank_user: float = 0.01  # "-", the empty string, null
    other_user: float = 0.005  # an entry of another user in the same record
    no_id: float = 0.002
    repeated_id: float = 0.001
    no_time: float = 0.005
    absurd_time: float = 0.003  # 1970, far future, not a time at all
    late_minutes: float = 0.05
    late_days: float = 0.01
    rare_type: float = 0.0005  # a string in a field of integers; 7 of 489,612 in a real set
    odd: float = 0.04  # one of the oddities

    awkward_user: float = 0.05  # at least; all of them together
    broken: float = 0.01  # one of the flaws
    compressed: float = 0.02
    empty: float = 0.004  # null value, [], {}
    keyed: float = 0.2
    headers: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSettings:
    """Everything that determines the records; equal settings make equal records."""

    seed: int = 1
    entries: int = 100_000
    users: int = 500
    zipf_exponent: float = 1.1
    start_ms: int = 1_767_225_600_000  # 2026-01-01T00:00:00Z; record timestamps begin here ...
    span_ms: int = 3 * HOUR_MS  # ... and advance evenly to the end of the span
    record_sizes: tuple[int, ...] = (1, 3, 100)  # entries of one record ...
    record_size_weights: tuple[float, ...] = (0.7, 0.28, 0.02)  # ... and how often
    null_until: float = 0.4  # share of the run after which the field `campaign` gets a type
    rates: Rates = field(default_factory=Rates)

    def ending_at(self, end_ms: int) -> "GeneratorSettings":
        """Return these settings with the span moved, so that the last record is of that time."""
        return replace(self, start_ms=end_ms - self.span_ms)
