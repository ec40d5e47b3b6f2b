"""Changes of a table's metadata are made again if another change of the table came first."""

import pytest
from pyspark.errors import PySparkException

from log_partitioner_pipeline import table
from log_partitioner_pipeline.table import commit


class Change:
    """A change whose first attempts fail with these texts."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.attempts = 0

    def __call__(self) -> str:
        """Try it."""
        self.attempts += 1
        if self.failures:
            raise PySparkException(self.failures.pop(0))
        return "done"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_PAUSE_S", 0.0)


def test_change_is_made_though_somebody_else_changed_the_table() -> None:
    """Its snapshots are expired meanwhile, say: Iceberg does not try again by itself."""
    change = Change("org.apache.iceberg.exceptions.CommitFailedException: changed", "CommitFailedException")
    assert (commit(change), change.attempts) == ("done", 3)


def test_another_failure_is_one() -> None:
    """It is not tried again."""
    change = Change("no such table")
    with pytest.raises(PySparkException, match="no such table"):
        commit(change)
    assert change.attempts == 1
