"""Tables, JSON and notes of the commands for the person on call."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from log_partitioner.operations.output import table, write_rows

ROWS = [{"topic": "app", "lag": 1234567, "note": None}, {"topic": "nginx-access", "lag": None, "note": "a\x1b[2Jb"}]


def test_table_has_names_above_columns_and_numbers_at_the_right() -> None:
    """A missing value is a dash, and no line ends with blanks."""
    assert list(table(ROWS)) == [
        "topic               lag  note",
        "app           1,234,567  -",
        "nginx-access          -  a\x1b[2Jb",
    ]
    assert list(table([])) == []


@pytest.mark.parametrize(
    ("is_json", "expected"),
    [
        (
            True,
            '{"topic":"app","lag":1234567,"note":null}\n{"topic":"nginx-access","lag":null,"note":"a\\u001b[2Jb"}\n',
        ),
        (False, "topic               lag  note\napp           1,234,567  -\nnginx-access          -  a\\x1b[2Jb\n"),
    ],
)
def test_rows_are_lines_of_json_or_a_table_without_control_characters(
    expected: str, capsys: pytest.CaptureFixture[str], *, is_json: bool
) -> None:
    """Input may stand in them, and must not steer a terminal."""
    write_rows(ROWS, is_json=is_json)

    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("command", ["config-schema", "check-config"])
def test_output_that_nobody_reads_any_more_ends_the_command_without_a_word(command: str) -> None:
    """As behind `| head`: long output breaks the pipe at a write, short output at the end."""
    settings = {"KAFKA__BOOTSTRAP_SERVERS": "b:1", "KAFKA__SOURCE_TOPICS": "t", "S3__BUCKET": "b", "S3__REGION": "r"}
    env = {**os.environ, "PYTHONUNBUFFERED": "", **{f"LOGP_{name}": value for name, value in settings.items()}}
    program = [sys.executable, "-m", "log_partitioner", command]
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        assert process.stderr.read() == b""
