"""A source of records in a thread; the demo's are generated or replayed, paced to last as long as the faults."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from tools.demo.generate import GeneratedRecord, generate
from tools.demo.options import SOURCE, DemoOptions
from tools.demo.replay import read_lines, replay, take_entries
from tools.demo.settings import GeneratorSettings
from tools.demo.writer import Produced, ProduceError, ProduceSettings, TopicWriter

_ENTRIES_PER_S_MAX = 4000.0  # two cores run the brokers, S3 and the workers at the same time
TRANSACTIONAL_SHARE = 0.05
ABORTED_SHARE = 0.3


class SourceThread:
    """Writes records; `produced` may be looked at while it does. `records` is called in the thread."""

    def __init__(self, settings: ProduceSettings, records: Callable[[], Iterable[GeneratedRecord]]) -> None:
        self._error: ProduceError | OSError | None = None
        self._records = records
        self._writer = TopicWriter(settings)
        self._thread = threading.Thread(target=self._write, name="source", daemon=True)

    @property
    def produced(self) -> Produced:
        """Counts of the records written so far."""
        return self._writer.produced

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def has_ended(self) -> bool:
        """Say whether all is written.

        Raises:
            ProduceError: it could not be written.
        """
        if self._error is not None:
            raise ProduceError(str(self._error)) from self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End soon, written or not."""
        self._writer.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2)

    def _write(self) -> None:
        try:
            self._writer.write(self._records())
        except (ProduceError, OSError) as error:
            self._error = error


class DemoSource(SourceThread):
    """Writes the records of the demo.

    Raises ProduceError if there is nothing to write.
    """

    def __init__(self, options: DemoOptions, *, bootstrap: str, span_s: float) -> None:
        self.entries = _count_entries(options)
        if not self.entries:
            raise ProduceError(f"There are no log lines in {', '.join(map(str, options.input))}.")
        self.entries_per_s = options.rate or min(_ENTRIES_PER_S_MAX, self.entries / span_s)
        settings = ProduceSettings(
            bootstrap=bootstrap,
            topic=SOURCE,
            entries_per_s=self.entries_per_s,
            transactional_share=TRANSACTIONAL_SHARE,
            # An operator who replays logs wants to find all of them again.
            aborted_share=0.0 if options.input else ABORTED_SHARE,
            seed=options.seed,
        )
        super().__init__(settings, lambda: _records(options))


def _records(options: DemoOptions) -> Iterator[GeneratedRecord]:
    if options.input:
        records = replay(options.input, entries_per_record=options.entries_per_record)
        return take_entries(records, options.entries or sys.maxsize)
    settings = GeneratorSettings(seed=options.seed, entries=options.entries_generated)
    return generate(settings.ending_at(time.time_ns() // 1_000_000))


def _count_entries(options: DemoOptions) -> int:
    """Return how many entries there will be; reads the files once."""
    if not options.input:
        return options.entries_generated
    lines = (line for path in options.input for line in read_lines(path))
    return sum(1 for _ in islice(lines, options.entries))
