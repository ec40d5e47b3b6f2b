"""Offsets beside states of user activity: written again where another change of the table came first."""

from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from log_partitioner_pipeline import branches
from log_partitioner_pipeline.activity.tables import StateTable


class Session:
    """A session whose first statements fail with these texts."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.statements: list[str] = []

    def sql(self, statement: str) -> None:
        """Take a statement."""
        self.statements.append(statement)
        if self.failures:
            raise PySparkException(self.failures.pop(0))


def table(session: Session) -> StateTable:
    """Return a table of that session."""
    return StateTable(cast("SparkSession", session), "a.b", columns=T.StructType([]), key=[], run="r")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "_PAUSE_S", 0.0)


def test_offsets_are_written_though_somebody_else_changed_the_table() -> None:
    """Its snapshots are expired meanwhile, say: Iceberg does not try again by itself."""
    session = Session("org.apache.iceberg.exceptions.CommitFailedException: changed", "CommitFailedException")
    table(session).write_offsets("references", {1: 5, 0: 7})
    assert len(session.statements) == 3
    assert '{"references": {"0": 7, "1": 5}}' in session.statements[-1]


def test_another_failure_is_one() -> None:
    """It is not tried again."""
    session = Session("no such table")
    with pytest.raises(PySparkException, match="no such table"):
        table(session).write_offsets("references", {0: 7})
    assert len(session.statements) == 1
