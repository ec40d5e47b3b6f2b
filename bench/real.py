"""Real logs as workloads, if they are present: LOGP_TEST_DATA, else a directory beside the repository.

`mix` has entries of all sets as one topic, interleaved by position; a long set gives some, from all of its file.
"""

import os
from pathlib import Path
from typing import NamedTuple

from log_partitioner import zstd
from tools.local.errors import StackError

DATA = Path(os.environ.get("LOGP_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
MIX = "mix"
_OF_A_SET = 4_000  # entries in the mix, at most


class RealSet(NamedTuple):
    """The files of a set, one entry a line, and the paths to user and time."""

    files: str
    users: tuple[str, ...]
    times: tuple[str, ...]


SETS = {
    "nxlog": RealSet("windows-events/nxlog-*.zst", ("Hostname",), ("@timestamp",)),
    "timecreated": RealSet("windows-events/timecreated-*.zst", ("Hostname",), ("@timestamp", "TimeCreated")),
    "winlogbeat": RealSet("windows-events/winlogbeat-*.zst", ("computer_name",), ("@timestamp",)),
    "sentinel": RealSet("windows-events/sentinel-*.zst", ("Computer", "DeviceName"), ("TimeGenerated",)),
    "cloudtrail": RealSet(
        "cloud-audit/*.zst", ("userIdentity.arn", "userIdentity.invokedBy"), ("eventTime", "@timestamp")
    ),
    "eve": RealSet("suricata-eve/*.zst", ("src_ip",), ("timestamp",)),
    "wiki": RealSet("wiki-edits/*.zst", ("user",), ("time",)),
    "nginx": RealSet("nginx-status/*.zst", ("address",), ("timestamp",)),
}


def paths_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths to users, and those to times, of a set or of the mix."""
    sets = SETS.values() if name == MIX else [SETS[name]]
    users = dict.fromkeys(path for one in sets for path in one.users)
    times = dict.fromkeys(path for one in sets for path in one.times)
    return tuple(users), tuple(times)


def entries_of(name: str) -> list[bytes]:
    """Return the entries of a set or of the mix.

    Raises:
        StackError: the data are absent.
    """
    if name == MIX:
        parts = [_part(entries_of(one)) for one in SETS]
        placed = [(place / len(part), entry) for part in parts for place, entry in enumerate(part)]
        return [entry for _, entry in sorted(placed, key=lambda one: one[0])]
    files = sorted(DATA.glob(SETS[name].files))
    if not files:
        raise StackError(f"There are no {SETS[name].files} in {DATA}: set LOGP_TEST_DATA.")
    return [line for file in files for line in _lines(file)]


def _part(entries: list[bytes]) -> list[bytes]:
    return entries[:: -(-len(entries) // _OF_A_SET)]


def _lines(file: Path) -> list[bytes]:
    with zstd.open_file(file, "rb", options=zstd.WINDOW_LOG_MAX) as opened:
        return opened.read().splitlines()
