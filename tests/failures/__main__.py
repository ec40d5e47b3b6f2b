"""`python -m tests.failures [NAME ...]`: makes failures, and looks whether alert and runbook help; minutes each.

Each begins with half a minute in which nothing may fire. Then every alert that the runbook's first table has for the
failure has to fire, the runbook's command has to name the cause, and once the failure is gone no alert fires any more
and the audit is clean. A line of JSON for each goes to docs/evidence/failures.jsonl. It needs `make chart-tools`.
"""

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.deployment.tools import ROOT
from tests.failures.bed import FACTOR, running_bed
from tests.failures.catalogue import FAILURES, alerts_by_row
from tools.local.errors import StackError

RECORD = ROOT / "docs" / "evidence" / "failures.jsonl"
_QUIET_S = 30
_STEADY_S = 300
_FIRE_S = 1200  # the longest: 16 minutes of a transaction, which are a number of the rules
_RESOLVED_S = 1200


def main() -> int:
    """Play what is asked for; exit code 1 if something did not go as the runbook has it."""
    parser = argparse.ArgumentParser(prog="python -m tests.failures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of {', '.join(FAILURES)}")
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="leave logs and Prometheus' data there")
    options = parser.parse_args()
    went_wrong = False
    for name in options.names or FAILURES:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                line = play(name, (options.keep or Path(scratch)) / name)
            except (AssertionError, KafkaException, StackError) as error:
                _say(name, str(error))
                went_wrong = True
                continue
        with options.record.open("a", encoding="utf-8") as record:
            record.write(json.dumps(line) + "\n")
        went_wrong |= not line["cause_named"] or line["audit"]["verdict"] != "clean"
    return int(went_wrong)


def play(name: str, root: Path) -> dict[str, Any]:
    """Play one failure; give what there is to record of it.

    Raises:
        AssertionError: an alert fires without it, does not fire, or stays.
    """
    row, story, brokers, prepare = FAILURES[name]
    wanted = alerts_by_row()[row]
    with running_bed(root, name, prepare, brokers=brokers) as bed:
        steps = story(bed)
        next(steps)
        bed.wait("all is well", bed.is_steady, timeout_s=_STEADY_S)
        bed.rest(_QUIET_S)
        assert not bed.firing(), f"{name}: {bed.firing()} fire though nothing has failed"
        _say(name, "begins")
        fired = bed.watch()
        shown = next(steps)
        assert shown is not None
        bed.wait(f"{wanted}", lambda: set(wanted) <= fired.keys(), timeout_s=_FIRE_S)
        said = shown.say()
        words = shown.words(said)
        _say(name, f"alerts after so many seconds: {fired}; {shown.command}\n{said}\nnames the cause: {words}")
        mended_at = time.monotonic()
        next(steps, None)
        bed.wait("no alert", lambda: not bed.firing(), timeout_s=_RESOLVED_S)
        resolved_s = time.monotonic() - mended_at
        audit = bed.audit()
        _say(name, f"no alert after {resolved_s:.0f} s; {audit}")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "failure": name,
        "row": row,
        "fired_s": {alert: seconds for alert, seconds in fired.items() if alert in wanted},
        "also_fired_s": {alert: seconds for alert, seconds in fired.items() if alert not in wanted},
        "command": shown.command,
        "cause_named": words,
        "resolved_s": round(resolved_s),
        "divided_by": FACTOR,
        "audit": audit,
    }


def _say(name: str, text: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {name}: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
