"""Writes records to a topic: `python -m tools.demo.produce --bootstrap 127.0.0.1:9092 --topic logs`.

Generated ones, or the lines of files; `tools.demo.writer` does the writing.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.demo.generate import GeneratedRecord, generate
from tools.demo.replay import replay, take_entries
from tools.demo.settings import GeneratorSettings
from tools.demo.writer import ProduceError, ProduceSettings, TopicWriter


def main(arguments: list[str] | None = None) -> int:
    """Write the records that the command line asks for; return the exit code."""
    options = _parse(arguments)
    try:
        writer = TopicWriter(
            ProduceSettings(
                bootstrap=options.bootstrap,
                topic=options.topic,
                entries_per_s=options.rate,
                time_limit_s=options.time_limit,
                transactional_share=options.transactional_share,
                aborted_share=options.aborted_share,
                seed=options.seed,
            )
        )
        started = time.monotonic()
        produced = writer.write(_records(options))
    except (ProduceError, OSError) as error:
        print(f"produce: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(
        f"{produced.records} records with {produced.entries} entries in {time.monotonic() - started:.1f} s; "
        f"{produced.aborted_records} more records in aborted transactions"
    )
    return 0


def _records(options: argparse.Namespace) -> Iterator[GeneratedRecord]:
    if options.input:
        return take_entries(
            replay(options.input, entries_per_record=options.entries_per_record),
            options.entries or sys.maxsize,
        )
    settings = GeneratorSettings(seed=options.seed, entries=options.entries or 100_000, users=options.users)
    return generate(settings.ending_at(time.time_ns() // 1_000_000))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.demo.produce", description=__doc__)
    add = parser.add_argument
    add("--bootstrap", required=True, help="brokers, host:port")
    add("--topic", required=True)
    add("--input", type=Path, nargs="+", help="files to replay (.ndjson, .log; .gz, .zst); else generated")
    add("--entries", type=int, help="entries to write at most (generated: 100000)")
    add("--entries-per-record", type=int, default=1, help="lines of a file in one record (default 1)")
    add("--users", type=int, default=500, help="users to generate")
    add("--rate", type=float, help="entries per second at most")
    add("--time-limit", type=float, help="seconds at most")
    add("--transactional-share", type=float, default=0.0, help="share of records in transactions (0..1)")
    add("--aborted-share", type=float, default=0.3, help="share of these transactions that is aborted")
    add("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
