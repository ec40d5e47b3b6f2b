"""The command: files and standard input, exit codes, what is shown - and what is not."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from log_partitioner.cli import main
from tests.unit.proof.verify.pods import P0, Pod, lines_of, owner
from tests.unit.proof.verify.test_rules import gap_at_a_reset, line_lost, rotation_without_an_assignment


def stored(path: Path, lines: list[bytes]) -> str:
    """Write a log file."""
    path.write_bytes(b"".join(lines))
    return str(path)


def fine() -> list[bytes]:
    """One worker, one commit."""
    return owner().commits({P0: (0, 10)}).stops().lines


@pytest.mark.parametrize(
    ("lines", "code", "says"),
    [
        (fine(), 0, "pass (0)"),
        (gap_at_a_reset(), 1, "violation (1)"),
        (line_lost(), 2, "could not tell (2)"),
        ([], 2, "there is no line of a worker"),
    ],
)
def test_exit_code_says_what_the_last_line_says(
    lines: list[bytes], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 pass, 1 violation, 2 could not tell, as those of the audit."""
    assert main(["verify-logs", stored(tmp_path / "w.log", lines)]) == code
    assert says in capsys.readouterr().out


def test_file_that_is_not_there_could_not_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2, and one sentence."""
    assert main(["verify-logs", str(tmp_path / "none.log")]) == 2
    assert "none.log" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--since", "yesterday"], ["--nothing"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    """2, as for every command."""
    with pytest.raises(SystemExit) as refused:
        main(["verify-logs", *arguments])
    assert refused.value.code == 2


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input_is_read_twice(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once to judge, once for what led to the first violation."""
    given = io.BytesIO(b"".join(gap_at_a_reset()))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=given))

    assert main(["verify-logs", *arguments]) == 1
    assert "positioned source-0 at 15" in capsys.readouterr().out


def test_first_violation_is_told_with_the_lines_that_led_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other workers' lines about the same offsets come first, then the worker's; each has a number and a place."""
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    lines = gap_at_a_reset()
    stored(one, lines[:-3])
    stored(two, lines[-3:])

    main(["verify-logs", str(two), str(one)])
    shown = capsys.readouterr().out.splitlines()

    begin = shown.index("  what led to it:") + 1
    told = [line.strip() for line in shown[begin : shown.index("", begin)]]
    assert [line.split()[0] for line in told] == [f"{number}" for number in range(1, len(told) + 1)]
    assert f"({one}:6)" in told[2]
    assert "flush_committed source-0 [0, 10)" in told[2]
    assert ">>" in told[-1]
    assert "positioned source-0 at 15" in told[-1]
    assert f"({two}:3)" in told[-1]
    assert any("source-0" in line and "0 to 10 in 1 commits  w1" in line for line in shown), "the timeline"


def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs."""
    code = main(["verify-logs", "--json", stored(tmp_path / "w.log", rotation_without_an_assignment())])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)

    assert (document["verdict"], document["exit_code"], code) == ("violation", 1, 1)
    assert document["violations_by_rule"]["2"] == 1
    assert document["violations"][0]["topic_partition"] == "source-1"
    assert document["led_to_the_first"][-1]["is_it"] is True
    assert {one["topic_partition"] for one in document["tenures"]["g"]} == {"source-0", "source-1"}


def test_what_moves_a_cursor_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A worker's name is a text from outside."""
    lines = lines_of(Pod("\x1b[2J").owns(1, source="policy", p0=0), Pod("w2").commits({P0: (0, 10)}))

    assert main(["verify-logs", stored(tmp_path / "w.log", lines)]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_no_message_and_no_user_of_the_logs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts of errors stand in the logs, and may hold input."""
    pod = owner()
    pod.say("batch_discarded", batch_id="b", reason="interval", generation=1, cause="UploadError", code=None,
            message="of user=jane.doe", outcome="aborted", cost="")  # fmt: skip
    pod.say("worker_failed", cause="StopError", message="of user=jane.doe", story=["jane.doe"])

    assert main(["verify-logs", stored(tmp_path / "w.log", pod.lines)]) == 1
    assert "jane" not in capsys.readouterr().out


def test_window_is_of_iso_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A time without a zone is UTC; lines outside are counted."""
    path = stored(tmp_path / "w.log", fine())

    assert main(["verify-logs", "--since", "1970-01-01T00:00:05", "--until", "1970-01-01T01:00:00+01:00", path]) == 2
    assert "lines outside the time asked for" in capsys.readouterr().out
    assert main(["verify-logs", "--since", "1970-01-01T00:00:03", "--until", "1970-01-01T00:00:05Z", path]) == 0
