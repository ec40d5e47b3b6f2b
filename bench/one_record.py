"""`python -m bench.one_record`: what one legal record of 16 MiB takes of memory and CPU, sixteen of them.

Each is recorded and sealed by a process of its own, with the worker's default settings and the disk as spool; its peak
of resident memory is told above what the process had before, beside what was counted. `python` as the last argument
does without compiled code.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from bench.stages import LANES, settings_of
from bench.workloads import WORKLOADS
from log_partitioner.adapters.spool import DiskSpool
from log_partitioner.batch.batch import Opening
from log_partitioner.batch.pack_plan import seal_rules
from log_partitioner.batch.seal import seal
from log_partitioner.boundary import Membership
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.runtime.recorder import Recorder

MIB = 2**20
RECORD_BYTES = 16 * MIB - 100
_HEAD = '"user":"u","time":1767225600'
ENTRIES = 99_999
_TP = TopicPartition("app", 0)


def _in_array(*elements: str) -> str:
    return f'{{{_HEAD},"a":[{",".join(elements)}]}}'


def _many(element: str) -> str:
    """Make an entry with an array of many of these."""
    return _in_array(*[element] * (RECORD_BYTES // (len(element) + 1) - 30))


def _keys(number: int) -> str:
    return ",".join(f'"k{number}y{key}":1' for key in range(9))


_SIXTEENTH = RECORD_BYTES // 16
RECORDS: dict[str, Callable[[], str]] = {
    "plain text": lambda: f'{{{_HEAD},"a":"{"x" * (RECORD_BYTES - 60)}"}}',
    "wide object": lambda: f"{{{_HEAD},{','.join(map(_key, range(_SIXTEENTH)))}}}",
    "wide nested object": lambda: f'{{{_HEAD},"o":{{{",".join(_key(n) for n in range(_SIXTEENTH))}}}}}',
    "objects in an array": lambda: _many("{}"),
    "objects with a key each": lambda: _in_array(*(f"{{{_key(n)}}}" for n in range(_SIXTEENTH))),
    "objects with one key": lambda: _many('{"k":1}'),
    "arrays in an array": lambda: _many("[]"),
    "arrays of ones": lambda: _many("[1]"),
    "floats": lambda: _many("1.5"),
    "long integers": lambda: _many("9" * 18),
    "raw numbers": lambda: _many("1e400"),
    "short strings": lambda: _in_array(*(f'"{n:x}"' for n in range(RECORD_BYTES // 9))),
    "mixed": lambda: _many('{"b":[{}]},1,"x",[[1.5]]'),
    "entries of nothing": lambda: _list("1" for _ in range(ENTRIES)),
    "entries of users": lambda: _list(_entry(n, f'"p":"{"x" * 120}"') for n in range(ENTRIES)),
    "entries of keys": lambda: _list(_entry(n % 7, _keys(n)) for n in range(ENTRIES)),
}


def _key(number: int) -> str:
    return f'"k{number}":1'


def _entry(user: int, fields: str) -> str:
    return f'{{"user":"u{user}","time":1767225600,{fields}}}'


def _list(entries: Iterable[str]) -> str:
    return f"[{','.join(entries)}]"


class Taken(NamedTuple):
    """The cost of a record: MiB above the process's memory before, MiB counted, seconds of CPU, objects."""

    record_mib: float
    counted_mib: float
    peak_mib: float
    taken_mib: float
    record_s: float
    seal_s: float
    objects: int
    rows: int


def measure(name: str, lane: str) -> Taken:
    """Record and seal one; peaks are those of this process, so that it measures one only."""
    text = RECORDS[name]()
    size = len(text)
    wire = gzip.compress(text.encode(), 6)
    del text
    settings = settings_of(LANES[lane], WORKLOADS["A"])
    with tempfile.TemporaryDirectory() as directory:
        spool = DiskSpool(Path(directory, "spool"), bytes_max=2**40)
        spool.prepare()
        recorder = Recorder(settings, spool)
        recorder.start(_TP, CommittedOffset(0))
        recorder.open(Opening("b", 1, Membership(1, "m", None), 0.0, 0))
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # peaks begin here
        before, begun_s = _peak_mib(), time.process_time()
        recorder.record(SourceRecord(_TP, 0, 1_767_225_600_000, None, wire, (), 0))
        recorder.spill_if_large()
        recorded_s, peak = time.process_time(), _peak_mib()
        load, batch = recorder.load(), recorder.close()
        steps = seal(batch.rows, batch.spool, batch.spans, seal_rules(settings), batch_id="b")
        objects = sum(1 for step in steps if step.finished is not None)
        spool.close()
    sealed_s = time.process_time()
    counted = load.memory_bytes / MIB
    return Taken(
        size / MIB, counted, peak - before, _peak_mib() - before, recorded_s - begun_s, sealed_s - recorded_s, objects,
        len(batch.rows),
    )  # fmt: skip


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    """Measure one, or all in processes of their own."""
    lane = sys.argv[-1] if sys.argv[-1] in LANES else next(iter(LANES))
    names = [name for name in sys.argv[1:] if name in RECORDS]
    if len(names) == 1:
        one = measure(names[0], lane)
        print(f"| {names[0]} | {one.record_mib:.1f} | {one.counted_mib:.0f} | {one.peak_mib:.0f} | {one.taken_mib:.0f}"
              f" | {one.record_s:.1f} | {one.seal_s:.1f} | {one.objects} |", flush=True)  # fmt: skip
        return
    for name in names or RECORDS:
        subprocess.run([sys.executable, "-m", "bench.one_record", name, lane], check=True)


if __name__ == "__main__":
    main()
