"""`python -m bench.stages`: parts of a worker's path in one process, without Kafka and S3, in either lane.

record: from the columns of a poll to rows of the open batch. plan: which rows go into which object. seal: from there to
finished objects on disk. Two flushes of one recorder, in polls of ten thousand, with the worker's default settings:
cold has each entry once, warm has as many as the workload, all of them known by then.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.worker import Figures, number
from bench.workloads import PARTITIONS, WORKLOADS, Workload, add_options, chosen, generate
from log_partitioner import native
from log_partitioner.adapters.spool import DiskSpool
from log_partitioner.batch.batch import Opening
from log_partitioner.batch.pack_plan import plan_objects, seal_rules
from log_partitioner.batch.seal import Sealing
from log_partitioner.boundary import Membership, Poll
from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from log_partitioner.formats.model import CommittedOffset, SourceRecord, TopicPartition
from log_partitioner.runtime.recorder import Recorder

LANES = {"fast": "auto", "python": "off"} if native.IS_INSTALLED else {"python": "off"}
STAGE_RECORDS = 100_000
_POLL = 10_000
_EVERYTHING = 2**40
_AT_MS = 1_767_225_600_000  # of all records: 2026, no entry is of the future


def measure_stages(values: Sequence[bytes], lane: str, workload: Workload) -> dict[str, Figures]:
    """Return the figures of the cold flush and of the warm one, in a lane of LANES; `values` are the workload's."""
    settings = settings_of(LANES[lane], workload)
    with tempfile.TemporaryDirectory() as directory:
        spool = DiskSpool(Path(directory, "spool"), bytes_max=_EVERYTHING)
        spool.prepare()
        recorder = Recorder(settings, spool)
        for tp in _TPS:
            recorder.start(tp, CommittedOffset(0))
        known: set[str] = set()
        once = values[: len({id(value) for value in values})]  # a repeated one is the same object
        found = {
            "cold": _flush(recorder, settings, _polls(once, 0), known),
            "warm": _flush(recorder, settings, _polls(values, len(once)), known),
        }
        spool.close()
    return found


def _flush(recorder: Recorder, settings: Settings, polls: list[Poll], known: set[str]) -> Figures:
    """Record and seal one batch; `known` are the schemas of earlier ones."""
    recorder.open(Opening("batch", 1, Membership(1, "member", None), 0.0, 0))
    begun_s = time.process_time()
    slowly = sum(_record(recorder, poll) for poll in polls)
    recorded_s = time.process_time()
    batch = recorder.close()
    rules = seal_rules(settings)
    plan = plan_objects(batch.rows, rules)
    planned_s = time.process_time()
    steps = Sealing(batch.rows, batch.spool, batch.spans, rules, plan, batch.batch_id).run()
    objects = [step.finished for step in steps if step.finished is not None]
    sealed_s = time.process_time()
    recorder.committed(batch, now_ms=_AT_MS)
    new = {one.schema.fingerprint for one in objects} - known
    known |= new
    entries = batch.size.entries
    return {
        "entries": entries,
        "bytes": batch.size.source_bytes / entries,
        "record": (recorded_s - begun_s) / entries * 1e6,
        "plan": (planned_s - recorded_s) / entries * 1e6,
        "seal": (sealed_s - planned_s) / entries * 1e6,
        "given back": slowly / sum(map(len, polls)),
        "objects": len(objects),
        "PUTs": len(objects) + len(new),
        "headers": sum(one.header_bytes for one in objects) / sum(one.file.size for one in objects),
    }


def settings_of(fast_lane: str, workload: Workload) -> Settings:
    """Return the settings of a worker in a lane: the defaults, and the workload's paths."""
    kafka = KafkaSettings(bootstrap_servers="nowhere:1", group_id="bench", source_topics=("bench",))
    paths = {"user": {"paths": workload.user_paths}, "time": {"paths": workload.time_paths}}
    return Settings.model_validate(
        {"worker": "bench", "kafka": kafka, "s3": S3Settings(bucket="bench"), "fast_lane": fast_lane, **paths}
    )


_TPS = [TopicPartition("bench", partition) for partition in range(PARTITIONS)]


def _polls(values: Sequence[bytes], before: int) -> list[Poll]:
    """Return the polls of these records, with offsets behind those of as many as were `before`."""
    return [_poll(values[first : first + _POLL], before + first) for first in range(0, len(values), _POLL)]


def _poll(some: Sequence[bytes], first: int) -> Poll:
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


def _record(recorder: Recorder, poll: Poll) -> int:
    """Record a poll; return how many records went one by one."""
    at = slowly = 0
    while at < len(poll):
        taken = 0
        if recorder.has_lane("bench"):
            taken = recorder.take(poll, at, len(poll), weight_max=_EVERYTHING, bytes_max=_EVERYTHING).records
        at += taken
        if not taken:
            recorder.record(poll[at])
            at += 1
            slowly += 1
        recorder.spill_if_large()
    return slowly


def stage_figures(workload: Workload, lanes: Iterable[str]) -> dict[str, dict[str, Figures]]:
    """Return the figures of a workload by lane, cold and warm; it is cut to STAGE_RECORDS records.

    Raises:
        StackError: the workload is of real logs, which are absent.
    """
    part = replace(workload, records=min(workload.records, STAGE_RECORDS))
    values = list(generate(part))
    return {lane: measure_stages(values, lane, part) for lane in lanes}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.stages", description=__doc__)
    parser.add_argument("--workloads", default="A", help=f"of {', '.join(WORKLOADS)}; default: %(default)s")
    add_options(parser)
    options = parser.parse_args(arguments)
    for name in options.workloads.split(","):
        for lane, flushes in stage_figures(chosen(name, options), LANES).items():
            for flush, figures in flushes.items():
                print(f"{name} {lane} {flush}: " + ", ".join(f"{of} {number(us)}" for of, us in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
