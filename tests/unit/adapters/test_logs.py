"""The log: JSON lines with an identity and a number; a hole in the numbers means a lost line."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from typing import Any

import structlog

from log_partitioner import privacy
from log_partitioner.adapters import logs
from log_partitioner.adapters.kafka.log import client_logger
from log_partitioner.errors import StopError


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Read the lines."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def configured(level: str = "info", style: str = "auto") -> io.StringIO:
    """Configure into a buffer, which is no terminal."""
    stream = io.StringIO()
    logs.configure(level=level, style=style, worker="w-1", boot="b00t", stream=stream)
    return stream


def test_every_line_says_who_speaks_when_and_how_many() -> None:
    """A reader merges all pods' lines by them (DESIGN 9); no field of a line hides one."""
    stream = configured()
    structlog.get_logger().info("flush_committed", records=3, worker="another", seq=99)
    (line,) = lines(stream)
    assert line["event"] == "flush_committed"
    assert line["records"] == 3
    assert (line["worker"], line["boot"], line["seq"], line["level"]) == ("w-1", "b00t", 1, "info")
    assert line.keys() >= {"ts", "mono", "pid"}
    assert line["ts"].endswith("Z")


def test_numbers_have_no_holes_where_a_level_is_left_out() -> None:
    """Lines that are not written take no number."""
    stream = configured(level="info")
    log = structlog.get_logger()
    for number in range(5):
        log.debug("quiet")
        log.info("loud", number=number)
    assert [line["seq"] for line in lines(stream)] == [1, 2, 3, 4, 5]


class SlowValue:
    """A value that takes long to write: meanwhile another thread logs, and overtakes if it can."""

    def __init__(self, other: threading.Thread) -> None:
        self.other = other

    def __repr__(self) -> str:
        self.other.start()
        self.other.join(0.2)
        return "slow"


def test_line_that_is_slow_to_write_is_not_overtaken() -> None:
    """The number is drawn and the line written as one step.

    Or a process that is killed between the two, with another thread's line already written, has lost no line and
    looks as if it had.
    """
    stream = configured()
    other = threading.Thread(target=lambda: structlog.get_logger().info("second"))
    structlog.get_logger().info("first", value=SlowValue(other))
    other.join()
    assert [(line["seq"], line["event"]) for line in lines(stream)] == [(1, "first"), (2, "second")]


def test_value_that_json_does_not_know_costs_no_line() -> None:
    """Logging raises nothing, whatever is logged: an exception in a callback is worse than an odd value."""
    stream = configured()
    log = structlog.get_logger()
    log.info("odd", value=object(), raw=b"\xff", many={1, 2})
    log.info("keys", value={b"bytes": 1})
    circle: list[Any] = []
    circle.append(circle)
    log.info("circle", value=circle)
    log.info("last")
    assert [(line["seq"], line["event"]) for line in lines(stream)] == [
        (1, "odd"),
        (2, "keys"),
        (3, "circle"),
        (4, "last"),
    ]


def test_long_message_is_cut() -> None:
    """Input may stand in an error's text."""
    stream = configured()
    structlog.get_logger().warning("consumer_error", message="x" * 10_000)
    assert len(lines(stream)[0]["message"]) <= 600


def test_exception_is_written_into_its_line() -> None:
    """One line, with the frames in it, and the text only if the service wrote it: another text may hold input."""
    stream = configured()
    ours = StopError("logs/user=canary-user-2/b-1.avro")
    try:
        raise ValueError("canary-user-1 is no number") from ours  # noqa: TRY301 - here is where it is caught
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = lines(stream)
    assert "test_logs.py" in line["exception"]
    assert re.search(r"StopError: logs/user=~[0-9a-f]{8}/b-1.avro", line["exception"])
    assert "ValueError (its text" in line["exception"]


def test_no_secret_and_no_user_of_a_key_is_written() -> None:
    """I11: in whatever field, however deep; the line stays JSON, and the rest of the key stays."""
    stream = configured()
    secret = 'canary-secret "\\é'  # noqa: S105 - a canary
    privacy.hide([secret, "abc"])
    structlog.get_logger().warning(
        "x", of={"keys": ["a/user=canary-user-1/date=1/b-1.avro"]}, text=f"abc {secret} user%3DAnn"
    )
    (line,) = lines(stream)
    assert re.fullmatch(r"a/user=~[0-9a-f]{8}/date=1/b-1.avro", line["of"]["keys"][0])
    assert re.fullmatch(r"abc \*+ user%3D~[0-9a-f]{8}", line["text"])


def test_one_user_has_one_hash_and_nobody_can_compute_it() -> None:
    """Lines about one user belong together within a process; another process has another key."""
    one, again, other = (privacy.veiled(f"user={user}/") for user in ("ann", "ann", "bob"))
    script = "from log_partitioner import privacy; print(privacy.veiled('user=ann/'))"
    elsewhere = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert one == again != other
    assert elsewhere.strip() != one


def test_console_style_is_for_people() -> None:
    """The time of day, the level, the event and its own fields; nothing that only programs read."""
    stream = configured(style="console")
    structlog.get_logger().info("worker_started", group="g", bucket="b")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[info +\] worker_started +group=g bucket=b\n", plain)


def test_lines_of_the_client_library_go_the_same_way() -> None:
    """Their lines have a number, too, and say which client."""
    stream = configured()
    logger, _ = client_logger("consumer")
    logger.warning("FAIL: broker is down")
    (line,) = lines(stream)
    assert (line["event"], line["client"], line["level"]) == ("client_log", "consumer", "warning")
    assert "broker is down" in line["line"]
