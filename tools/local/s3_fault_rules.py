"""Which request to the S3 fault proxy gets which fault: rules, their matching, and the log of actions.

Thread-safe and without any input or output; s3_faults.py performs the actions.
"""

import enum
import threading
from collections import Counter
from dataclasses import dataclass
from random import Random


class Action(enum.StrEnum):
    """The treatment of a request; `Rule.delay_s` comes first, except for TRICKLE."""

    STATUS = "status"
    """Answer `status` and `code` as S3 does, without forwarding: nothing is stored."""
    DELAY = "delay"
    """Forward after `delay_s`, and answer truthfully."""
    DROP_REQUEST = "drop_request"
    """Close the connection without forwarding: nothing is stored."""
    DROP_ANSWER = "drop_answer"
    """Forward, then close the connection: done, but the answer is lost."""
    STALL = "stall"
    """Neither forward nor answer, but keep the connection, until clear() or stop()."""
    STALL_ANSWER = "stall_answer"
    """Forward, then keep the connection without an answer, until clear() or stop()."""
    ERROR_BODY = "error_body"
    """Answer 200 with an error document (`code`) as body, without forwarding."""
    TRICKLE = "trickle"
    """Forward, then send the answer byte by byte with `delay_s` after each: no read time-out sees it."""
    CUT_ANSWER = "cut_answer"
    """Forward, then close the connection after half of the answer's body."""
    CORRUPT_REQUEST = "corrupt_request"
    """Change one byte of the request's body, then forward it with its old checksums."""
    TRUNCATE_REQUEST = "truncate_request"
    """Forward only the first half of the request's body, with its old checksums."""
    CORRUPT_ANSWER = "corrupt_answer"
    """Forward, then change one byte of the answer's body."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The next `times` requests that match get the action."""

    action: Action
    method: str = ""
    """GET, PUT, HEAD ...; any if empty."""
    key: str = ""
    """Part of the decoded path `/bucket/key`; any if empty."""
    times: int = 1
    status: int = 503
    code: str = "SlowDown"
    delay_s: float = 0.0
    share: float = 1.0
    """How many of the requests that match, by chance; the others are as if they did not."""

    def matches(self, method: str, path: str) -> bool:
        """Say whether the rule is about such a request."""
        return self.method in ("", method) and self.key in path


def slow_down(*, times: int = 1, key: str = "") -> Rule:
    """Return the rule for `503 SlowDown`, the most frequent error of S3."""
    return Rule(Action.STATUS, method="PUT", key=key, times=times)


def internal_error(*, times: int = 1, key: str = "") -> Rule:
    """Return the rule for `500 InternalError`."""
    return Rule(Action.STATUS, method="PUT", key=key, times=times, status=500, code="InternalError")


def access_denied(*, times: int = 1, key: str = "") -> Rule:
    """Return the rule for `403 AccessDenied`."""
    return Rule(Action.STATUS, method="PUT", key=key, times=times, status=403, code="AccessDenied")


def lost_answer(*, times: int = 1, key: str = "") -> Rule:
    """Return the rule for a request that is done although its answer is lost."""
    return Rule(Action.DROP_ANSWER, method="PUT", key=key, times=times)


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as it arrived, and what was done to it (None: forwarded untouched)."""

    method: str
    path: str
    action: Action | None


class Rulebook:
    """The rules in force, first match first, and the list of all requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rng = Random(1)
        self._rules: list[_Counted] = []
        self._seen: list[SeenRequest] = []

    def add(self, rule: Rule) -> None:
        """Put a rule behind those in force."""
        with self._lock:
            self._rules.append(_Counted(left=rule.times, rule=rule))

    def clear(self) -> None:
        """Forget all rules; the requests seen so far stay."""
        with self._lock:
            self._rules.clear()

    def take(self, method: str, path: str) -> Rule | None:
        """Count the request against the rules and return the one to apply now, if any."""
        with self._lock:
            rule = next((c.rule for c in self._rules if self._concerns(c.rule, method, path) and c.take()), None)
            self._seen.append(SeenRequest(method, path, rule.action if rule else None))
            return rule

    def _concerns(self, rule: Rule, method: str, path: str) -> bool:
        return rule.matches(method, path) and (rule.share >= 1.0 or self._rng.random() < rule.share)

    @property
    def seen(self) -> list[SeenRequest]:
        """All requests so far, in the order of their arrival."""
        with self._lock:
            return list(self._seen)

    @property
    def done(self) -> Counter[Action]:
        """How often each action was done."""
        return Counter(request.action for request in self.seen if request.action)


@dataclass(slots=True)
class _Counted:
    """A rule and how much of it is left."""

    left: int
    rule: Rule

    def take(self) -> bool:
        """Count one matching request; say whether it is one of those that get the action."""
        if self.left == 0:
            return False
        self.left -= 1
        return True
