"""`log-partitioner pipeline`: a job of the pipeline by the console command of the worker."""

from __future__ import annotations

import sys

import pytest

from log_partitioner import cli


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["compare", "--help"], 0, "usage: python -m log_partitioner_pipeline compare"),
        (["report", "none.json"], 2, "--html"),
        ([], 0, "JOB"),
    ],
)
def test_job_runs_with_its_own_options_and_ends_with_its_exit_code(
    arguments: list[str],
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a job its help lists them all."""
    monkeypatch.setattr(sys, "argv", ["log-partitioner"])

    with pytest.raises(SystemExit) as ended:
        cli.main(["pipeline", *arguments])

    assert ended.value.code == code
    assert told in "".join(capsys.readouterr())


def test_job_where_the_pipeline_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker's image is without it."""
    monkeypatch.setattr(cli, "find_spec", lambda _name: None)

    assert cli.main(["pipeline", "materialize"]) == 2
    assert capsys.readouterr().err.endswith("pip install 'log-partitioner[pipeline]'\n")
