"""`python -m bench.stages`: parts of a worker's path in one process, without Kafka and S3: CPU us per entry of each.

record: from the columns of a poll to rows of the open batch. seal: from there to finished objects on disk. In either
lane, over the records of a workload in polls of ten thousand, with the worker's default settings.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bench.workloads import PARTITIONS, add_options, chosen, generate
from log_partitioner import native
from log_partitioner.adapters.spool import DiskSpool
from log_partitioner.batch.batch import ClosedBatch, Opening
from log_partitioner.batch.pack_plan import seal_rules
from log_partitioner.batch.seal import seal
from log_partitioner.boundary import Membership, Poll
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.runtime.recorder import Recorder

LANES = {"fast": "auto", "python": "off"} if native.IS_INSTALLED else {"python": "off"}
_POLL = 10_000
_EVERYTHING = 2**40
_AT_MS = 1_714_608_000_000  # of all records; their entries are of the day before


def measure_stages(values: Sequence[bytes], lane: str, *, entries: int) -> dict[str, float]:
    """Return the CPU microseconds per entry of each stage, in a lane of LANES."""
    settings = settings_of(LANES[lane])
    with tempfile.TemporaryDirectory() as directory:
        spool = DiskSpool(Path(directory, "spool"), bytes_max=_EVERYTHING)
        spool.prepare()
        recorder = _recorder(settings, spool)
        polls = list(_polls(values))
        begun_s = time.process_time()
        for poll in polls:
            _record(recorder, poll)
        recorded_s = time.process_time()
        batch = recorder.close()
        objects = _seal(settings, batch)
        sealed_s = time.process_time()
        assert len(batch.rows) == entries, f"{len(batch.rows)} of {entries}"  # noqa: S101  # else it measures other work
        batch.spool.delete()
        spool.close()
    assert objects  # noqa: S101
    return {
        "record": (recorded_s - begun_s) / entries * 1e6,
        "seal": (sealed_s - recorded_s) / entries * 1e6,
    }


def settings_of(fast_lane: str) -> Settings:
    """Return the settings of a worker by default, in a lane."""
    kafka = KafkaSettings(bootstrap_servers="nowhere:1", group_id="bench", source_topics=("bench",))
    return Settings.model_validate(
        {"worker": "bench", "kafka": kafka, "s3": S3Settings(bucket="bench"), "fast_lane": fast_lane}
    )


def _recorder(settings: Settings, spool: DiskSpool) -> Recorder:
    """Return a recorder as the worker's, with a batch open."""
    recorder = Recorder(settings, spool)
    for tp in _TPS:
        recorder.place(tp, CommittedOffset(0))
    recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))
    return recorder


_TPS = [TopicPartition("bench", partition) for partition in range(PARTITIONS)]


def _polls(values: Sequence[bytes]) -> list[Poll]:
    return [_poll(values, first) for first in range(0, len(values), _POLL)]


def _poll(values: Sequence[bytes], first: int) -> Poll:
    some = list(values[first : first + _POLL])
    numbers = range(first, first + len(some))
    return Poll(
        _TPS,
        [number % PARTITIONS for number in numbers],
        [number // PARTITIONS for number in numbers],
        [_AT_MS] * len(some),
        list(some),
        {},
        lambda: [None] * len(some),
        lambda place: SourceRecord(
            _TPS[numbers[place] % PARTITIONS], numbers[place] // PARTITIONS, _AT_MS, None, some[place], (), 0
        ),
    )


def _record(recorder: Recorder, poll: Poll) -> None:
    at = 0
    while at < len(poll):
        taken = 0
        if recorder.has_lane:
            taken = recorder.take(poll, at, len(poll), weight_max=_EVERYTHING, bytes_max=_EVERYTHING).records
        at += taken
        if not taken:
            recorder.record(poll[at])
            at += 1
        recorder.make_room()


def _seal(settings: Settings, batch: ClosedBatch) -> int:
    steps = seal(
        batch.rows, batch.spool, batch.spans, seal_rules(settings), batch_id=batch.batch_id, is_one_record=False
    )
    return sum(step.finished is not None for step in steps)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.stages", description=__doc__)
    parser.add_argument("--workload", default="A", help="default: %(default)s")
    add_options(parser)
    options = parser.parse_args(arguments)
    workload = chosen(options.workload, options)
    values = list(islice(generate(workload), workload.records))
    for lane in LANES:
        stages = measure_stages(values, lane, entries=workload.entries)
        print(f"{lane:<12}" + "  ".join(f"{stage} {us:.2f} us" for stage, us in stages.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
