"""The judge of a run: what its figures call a violation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tools.chaos.figures import _violations
from tools.chaos.run import Happened
from tools.chaos.watch import Recovery
from tools.demo.writer import Produced


def _happened(**changes: Any) -> Happened:
    return Happened(produced=Produced(records=5), is_drained=True, **changes)


CLEAN = {"verdict": "clean", "findings": {}, "doubts": [], "dead_letters": {"no_user": 3}}


@pytest.mark.parametrize(
    ("happened", "audit_code", "audit", "logs_code", "says"),
    [
        pytest.param(_happened(), None, {}, 0, "not everything was committed", id="not drained"),
        pytest.param(_happened(), 1, CLEAN | {"verdict": "findings", "findings": {"lost": 1}}, 0, "lost", id="lost"),
        pytest.param(_happened(), 2, CLEAN | {"verdict": "could_not_tell", "doubts": ["why"]}, 0, "why", id="doubt"),
        pytest.param(_happened(), 0, CLEAN | {"dead_letters": {"fatal": 1}}, 0, "fatal", id="put away"),
        pytest.param(_happened(), 0, CLEAN, 1, "verify-logs", id="logs"),
        pytest.param(
            _happened(recoveries=[Recovery("broker-kill", {}, 0.0)]), 0, CLEAN, 0, "broker-kill", id="no recovery"
        ),
        pytest.param(_happened(notes=["worker-1 was killed"]), 0, CLEAN, 0, "was killed", id="late"),
    ],
)
def test_what_is_wrong_is_a_violation(
    happened: Happened, audit_code: int | None, audit: dict[str, Any], logs_code: int, says: str
) -> None:
    """Each by itself; and without any of them there is none."""
    assert list(_violations(_happened(), 0, CLEAN, 0)) == []
    [violation] = _violations(happened, audit_code, audit, logs_code)
    assert says in violation


def test_difference_of_verification_mode_is_a_violation() -> None:
    """This holds even if the audit is clean."""
    happened = _happened()
    happened.tally.differences = Counter(missing=1)
    assert list(_violations(happened, 0, CLEAN, 0)) == ["verification mode: {'missing': 1}"]
