"""Verification mode: a share of the flushes is judged right after the commit, as the audit does.

Owns which flushes are judged and when, and reports the outcome. Remembers nothing but the flush that is due.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import structlog

from log_partitioner.boundary import FlushFindings, SentFlush
from log_partitioner.config.settings import VerifySettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import VerificationError
from log_partitioner.formats.log_events import FlushDiffers, FlushVerified, tell
from log_partitioner.runtime.ports import Ports

HURRIED_S = 10.0  # for a judgement once the worker is asked to stop: it has a grace period


@dataclass(eq=False, repr=False)
class Verification:
    """Has flushes judged; used by the loop thread only."""

    ports: Ports
    rules: VerifySettings

    def __post_init__(self) -> None:
        self.differences: Counter[str] = Counter()
        self._owed = 1.0 if self.rules.share else 0.0  # the first flush is judged, then a share of them
        self._due: SentFlush | None = None
        self._log = structlog.get_logger("verification")

    def committed(self, flush: SentFlush) -> None:
        """Note a committed flush: it is due if its turn has come."""
        if self._owed >= 1:
            self._owed -= 1
            self._due = flush
        self._owed += self.rules.share

    def judge(self, deadline: Deadline) -> None:
        """Have the due flush judged; outside callbacks, before the next commit.

        Raises:
            VerificationError: it differs, and the policy is to stop.
            StoreRefusedError: the store does not let us read.
        """
        flush, self._due = self._due, None
        if flush is not None:
            began_s, hurried = self.ports.clock.now_s(), deadline.at_most(HURRIED_S)
            found = self.ports.judge(flush, lambda: hurried if self.ports.stop.requested else deadline)
            self._report(flush, found, self.ports.clock.now_s() - began_s)
        if self.differences and self.rules.on_difference == "stop":
            raise VerificationError(
                f"verification: {self.story()}; nothing more is committed. See the event flush_differs for the places"
            )

    def story(self) -> str:
        """List the differences found since the start."""
        found = ", ".join(f"{count} {kind}" for kind, count in self.differences.items())
        return f"committed flushes differ from the source: {found}"

    def _report(self, flush: SentFlush, found: FlushFindings, seconds: float) -> None:
        unverified = 0 if found.problem is None else flush.entries
        verified = flush.entries - unverified
        self.ports.metrics.add("verified_entries", verified)
        self.ports.metrics.add("verification_seconds", seconds)
        if found.problem is not None:
            self.ports.metrics.add("unverified_entries", unverified)
            self._log.warning("entries_not_verified", entries=unverified, message=found.problem)
        counts = verified, unverified, found.objects
        tell(self._log.info, FlushVerified(flush.batch_id, *counts, round(seconds, 4), found.differences))
        for kind, count in found.differences.items():
            self.ports.metrics.add("verification_differences", count, kind=kind)
        self.differences.update(found.differences)
        if found.differences:
            tell(self._log.error, FlushDiffers(flush.batch_id, found.differences, found.places))
