"""Logs through real workers: what the pipeline is measured on."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tools.demo.environment import Environment, mark_disposable, start_environment
from tools.demo.fleet import Fleet
from tools.demo.generate import generate
from tools.demo.lag import GroupLag
from tools.demo.options import GROUP, SOURCE, parse_options
from tools.demo.settings import GeneratorSettings, Rates
from tools.demo.writer import ProduceSettings, TopicWriter
from tools.local.errors import StackError

_WORKERS = 2
_TURN_S = 1.0
_LIMIT_S = 1800.0
_OF_THE_DEMO = ("PIPELINE_SPARK__PROPERTIES", "PIPELINE_TABLE__USER_BUCKETS", "PIPELINE_TABLE__COLUMNS_MAX")
# Well-behaved logs: what breaks entries and schemas is the tests' concern, and costs the dead-letter path instead.
_RATES = Rates(odd=0.0, broken=0.0, compressed=0.0, empty=0.0, absurd_time=0.0, no_time=0.0, no_user=0.0)


@contextmanager
def delivered(*, entries: int, users: int, home: Path) -> Iterator[Environment]:
    """Give an environment whose topics and bucket hold this many entries, delivered; gone when the block ends.

    Blocks while workers deliver: about a minute per 500,000 entries.

    Raises:
        StackError: it cannot be started, or the workers are not done within half an hour.
    """
    options = parse_options(["--home", str(home)])
    with start_environment(options, _tell) as started:
        # As in production: the timer and the bounds on size decide, not the demo's three seconds; Spark as it comes.
        kept = {name: value for name, value in started.variables.items() if name not in _OF_THE_DEMO}
        environment = replace(started, variables={**kept, "LOGP_FLUSH__INTERVAL_S": "30"})
        try:
            _deliver(environment, entries=entries, users=users)
            yield environment
        finally:
            mark_disposable(environment.directory)


def _deliver(environment: Environment, *, entries: int, users: int) -> None:
    settings = GeneratorSettings(entries=entries, users=users, rates=_RATES)
    writer = TopicWriter(ProduceSettings(bootstrap=environment.bootstrap, topic=SOURCE))
    produced = writer.write(generate(settings.ending_at(time.time_ns() // 1_000_000)))
    _tell(f"{produced.entries:,} entries in {produced.records:,} records")
    fleet = Fleet(root=environment.directory / "workers", settings=environment.variables)
    lag = GroupLag(bootstrap=environment.bootstrap, group=GROUP, topic=SOURCE)
    try:
        for number in range(_WORKERS):
            fleet.start(f"worker-{number + 1}")
        deadline = time.monotonic() + _LIMIT_S
        while (behind := lag.measure(produced.next_offsets)) != 0:
            if time.monotonic() > deadline:
                raise StackError(f"The workers are still {behind} records behind after {_LIMIT_S:.0f} s.")
            fleet.mend()
            time.sleep(_TURN_S)
        for sentence in fleet.stop():
            raise StackError(sentence)
    finally:
        fleet.kill()
        lag.close()


def _tell(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")
