"""The judge of the tests on real processes: a clean audit, and nothing put away that the test does not expect."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.harness import Deployment, Report


class Audited(Deployment):
    """A deployment without any server, of which the audit says what a test wants."""

    def __init__(self, exit_code: int, **dead_letters: int) -> None:
        self._report = Report(exit_code, "the audit's text", {"dead_letters": dead_letters})

    def audit(self, *_arguments: str) -> Report:
        """Say it."""
        return self._report


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Audited(1).require_clean(),
        lambda: Audited(0, fatal=1).require_clean(),
        lambda: Audited(0, skipped=1, fatal=1).require_clean(put_away={"fatal": 1}),
        lambda: Audited(0, fatal=2).require_clean(put_away={"fatal": 1}),
        lambda: Audited(0).require_clean(put_away={"skipped": 1}),
    ],
)
def test_audit_with_findings_and_record_put_away_unexpectedly_are_refused(refused: Callable[[], Report]) -> None:
    """To the audit what was put away is rightly dead, and a fault of ours would pass."""
    with pytest.raises(AssertionError, match="the audit's text"):
        refused()


def test_clean_audit_with_what_is_expected_is_not_refused() -> None:
    """Other dead letters are of the input."""
    Audited(0, no_user=3).require_clean()
    Audited(0, no_user=3, fatal=1, skipped=2).require_clean(put_away={"fatal": 1, "skipped": 2})
