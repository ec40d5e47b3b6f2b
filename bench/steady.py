"""`python -m bench.steady`: does one worker on one core keep up with a steady rate?

The worker has the last core for itself; Kafka, S3 and a producer of records of A (`bench.pace`) share the others. Each
second the lag is taken: records between the end of the topic and what is committed. It may be two flush intervals'
worth of records; the run ends, with exit code 1, once it is more. The worker has to be there before the first record.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.figures import Steady, read_book, write_book
from bench.lab import Lab, add_options, open_lab, variables_of
from bench.output import flush_seconds, log_lines, quantile
from bench.page import write_page
from bench.process import cpu_s, peak_bytes
from bench.worker import RSS, WORKER, Figures, require_alive, tell
from bench.workloads import PARTITIONS
from tools.demo.fleet import Fleet
from tools.demo.lag import GroupLag
from tools.local.errors import StackError
from tools.local.processes import ServerProcess

_TOPIC = "steady"
_RING = 200_000
_INTERVAL_S = 30.0
_INTERVALS = 2
_RATE_MIN = 0.98  # of the rate wanted; below it the machine is what is measured
_TURN_S = 1.0
_START_S = 120.0
_WATERMARK_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code: 0 the bound holds, 1 it is broken or the run was not possible."""
    options = _parse(arguments)
    try:
        variables = variables_of(options.settings, None)
        last = _leave_last_core()
        with open_lab(options.home) as lab:
            told = _Try(lab, options, variables, core=last).go()
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    for name, value in told.figures.items():
        print(f"{name:<28}{value:>16,.2f}")
    print(told.broken or "the bound holds")
    if options.page:
        file = options.page / "performance" / "figures.json"
        book = read_book(file)
        same = (told.rate, told.settings)
        book.steady = [*(one for one in book.steady if (one.rate, one.settings) != same), told]
        write_book(book, file)
        write_page(book, options.page)
    return int(told.broken is not None)


def _leave_last_core() -> int:
    """Return the last core, on which nothing runs from here on that this process starts."""
    *others, last = sorted(os.sched_getaffinity(0))
    if not others:
        raise StackError("One core is for the worker and another for everything else: there is one alone.")
    os.sched_setaffinity(0, others)
    return last


class _Try:
    """One run at a rate."""

    def __init__(self, lab: Lab, options: argparse.Namespace, variables: dict[str, str], *, core: int) -> None:
        self._run = lab.run("steady-worker", _TOPIC, variables)
        self._rate, self._minutes, self._variables = options.rate, options.minutes, variables
        self._core = core
        self._bound = int(_INTERVALS * float(variables.get("LOGP_FLUSH__INTERVAL_S", _INTERVAL_S)) * options.rate)
        self._lags: list[int] = []

    def go(self) -> Steady:
        """Start worker and producer, look each second, and return the observations."""
        fleet = self._run.fleet()
        producer = None
        try:
            worker = self._start(fleet)
            producer = self._produce()
            begun, before_s = time.monotonic(), cpu_s(worker.pid)
            broken = self._look(worker, producer)
            seconds, used_s = time.monotonic() - begun, cpu_s(worker.pid) - before_s
            peak = peak_bytes(worker.pid)
            if broken is None:
                broken = self._behind(producer)
            for sentence in fleet.stop():
                raise StackError(sentence)
        finally:
            fleet.kill()
            if producer is not None:
                producer.kill()
        figures = {**self._figures(worker.log), "share of a core": used_s / seconds, RSS: peak / 2**20}
        figures["CPU us per entry"] = used_s / (seconds * self._rate) * 1e6
        return Steady(rate=self._rate, minutes=self._minutes, settings=self._variables, figures=figures, broken=broken)

    def _start(self, fleet: Fleet) -> ServerProcess:
        fleet.start(WORKER)
        worker = fleet.workers[WORKER].process
        os.sched_setaffinity(worker.pid, {self._core})  # before it has a second thread
        worker.wait_for_line('"partitions_assigned"', timeout_s=_START_S)
        return worker

    def _produce(self) -> ServerProcess:
        seconds = str(60 * self._minutes)
        arguments = [self._run.lab.bootstrap, _TOPIC, str(self._rate), seconds, str(_RING)]
        return ServerProcess(
            "producer", [sys.executable, "-m", "bench.pace", *arguments], log=self._run.directory / "producer.log"
        )

    def _look(self, worker: ServerProcess, producer: ServerProcess) -> str | None:
        """Take the lag each second until the producer has ended; return how the bound was broken, if it was."""
        group = GroupLag(bootstrap=self._run.lab.bootstrap, group=self._run.name, topic=_TOPIC)
        watermarks = Consumer({"bootstrap.servers": self._run.lab.bootstrap, "group.id": "bench", "log_level": 2})
        tps = [TopicPartition(_TOPIC, partition) for partition in range(PARTITIONS)]
        begun = time.monotonic()
        try:
            while producer.is_alive():
                require_alive(worker)
                ends = {tp.partition: watermarks.get_watermark_offsets(tp, timeout=_WATERMARK_S)[1] for tp in tps}
                lag = group.measure(ends)
                if lag is not None:
                    self._lags.append(lag)
                    if lag > self._bound:
                        return f"broken after {time.monotonic() - begun:.0f} s: {lag:,} records behind"
                time.sleep(_TURN_S)
        finally:
            group.close()
            watermarks.close()
        return None

    def _behind(self, producer: ServerProcess) -> str | None:
        """Return the faults of the producer's rate."""
        last = producer.last_lines(1)
        if producer.exit_code != 0 or not last.startswith("{"):
            raise StackError(f"The producer ended with {producer.exit_code}: {last}")
        told = json.loads(last)
        wanted_s = 60 * self._minutes
        tell(f"producer: {told['cpu_s'] / wanted_s:.2f} of a core, at most {told['behind_s']:.2f} s behind")
        if told["written"] < _RATE_MIN * self._rate * wanted_s or told["behind_s"] > (1 - _RATE_MIN) * wanted_s + 1:
            return f"the producer did not keep the rate: {told['written']:,} written, {told['behind_s']:.1f} s behind"
        return None

    def _figures(self, log: Path) -> Figures:
        lags = sorted(self._lags)
        flushes = flush_seconds(log_lines([log]))
        return {
            **_quantiles("lag", lags),
            "lag bound": self._bound,
            "flushes": len(flushes),
            **{f"flush s, {name}": quantile(flushes, share) for name, share in (("p50", 0.5), ("p99", 0.99))},
        }


def _quantiles(of: str, ordered: Sequence[int]) -> Figures:
    if not ordered:
        raise StackError("Kafka never told the lag.")
    return {
        f"{of} p50": statistics.median(ordered),
        f"{of} p99": quantile([*map(float, ordered)], 0.99),
        f"{of} max": ordered[-1],
    }


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.steady", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rate", type=int, default=50_000, help="records a second; default: %(default)s")
    add("--minutes", type=float, default=10.0, help="default: %(default)s")
    add("--page", type=Path, metavar="DIRECTORY", help="add the figures to the page of `bench.page` there")
    add_options(parser, has_json=False)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
