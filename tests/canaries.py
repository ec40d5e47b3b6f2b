"""Users and secrets that no output may show (I11): a test fails if one stands in its log, its output or its errors.

Test data has these users unless a test asks for others. When a test ends, all that it printed or logged is searched,
in whatever way it was caught. Objects, references and dead letters hold users by right, so they are not searched.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import structlog

USER = "canary-user-ann"
USERS = (USER, "canary-user-bob", "canary-user-cem")
SECRET = "canary-secret-7f3a"  # noqa: S105 - it is none
MARKS = ("canary-user", "canary-secret")

_logged: list[str] = []


def found_in(text: str) -> str | None:
    """Return the first line of a text that shows a canary, or None."""
    return next((line for line in text.splitlines() if any(mark in line for mark in MARKS)), None)


class Watched(structlog.testing.LogCapture):
    """Remembers the lines that `capture_logs` catches, because they do not come to the output."""

    def __call__(self, logger: Any, method_name: str, event_dict: MutableMapping[str, Any]) -> Any:
        """Keep the line for the test, and for the search at its end."""
        _logged.append(repr(event_dict))
        return super().__call__(logger, method_name, event_dict)


def watch() -> None:
    """Look at what tests catch from now on."""
    structlog.testing.LogCapture = Watched  # type: ignore[misc]


def logged() -> str:
    """Return what was caught since the last time, a line each."""
    lines, _logged[:] = list(_logged), []
    return "\n".join(lines)
