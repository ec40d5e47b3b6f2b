"""The interface to a peer: its environment variables, and one JSON line for each mark on its standard output.

Only the standard library: Flink's Python has nothing else of ours.
"""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Self

from bench.process import cpu_s, peak_bytes

_VARIABLE = "BENCH_TASK"

# Flat entries have these fields or some of them.
FIELDS = {
    **dict.fromkeys(("id", "time", "user", "level", "service", "host", "trace_id", "message"), "string"),
    "status": "long",
    "latency_ms": "double",
    "bytes": "long",
    **dict.fromkeys(("path", "error", "referer"), "string"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run of a peer. `name` is its group and its prefix in the bucket; `directory` is its own.

    Flat entries have FIELDS; a peer finds out the schema of others by itself. Paths are keys joined by dots.
    """

    name: str
    bootstrap: str
    topic: str
    references: str
    endpoint: str
    region: str
    bucket: str
    access_key: str
    secret_key: str = field(repr=False)
    directory: str
    jars: list[str]
    user_paths: list[str]
    time_paths: list[str]
    is_flat: bool

    @classmethod
    def given(cls) -> Self:
        """Read the task of this process."""
        return cls(**json.loads(os.environ[_VARIABLE]))

    def environment(self) -> dict[str, str]:
        """Return the variables that `given` reads in the peer's process."""
        return {_VARIABLE: json.dumps(asdict(self))}


def mark(name: str, **figures: float) -> None:
    """Mark that this place is reached, with the CPU and the peak memory of this process up to here."""
    pid = os.getpid()
    told = {"mark": name, "mono": time.monotonic(), "cpu_s": cpu_s(pid), "peak_bytes": peak_bytes(pid), **figures}
    print(json.dumps(told), flush=True)
