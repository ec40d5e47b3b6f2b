"""A small writer of workers' log lines, as pods write them: each boot numbers its own, by a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from log_partitioner.formats import log_events as events
from log_partitioner.formats.log_events import LogEvent
from tests.log_lines import line_of

MINUTE_MS = 60_000
Spans = Mapping[str, tuple[int, int]]
P0, P1 = "source-0", "source-1"


class Pod:
    """One boot of one worker; each method is what a worker does, and gives its lines."""

    def __init__(self, worker: str = "w1", boot: str = "b1", *, clock_ms: int = 0, group: str | None = "g") -> None:
        self.worker, self.boot, self.lines = worker, boot, list[bytes]()
        self.at_ms = clock_ms
        self.generation = self._batches = 0
        if group is not None:
            self.say(events.WorkerStarted(group, "classic", ["source"], "bucket", 1, "1"))

    def say(self, event: LogEvent | str, *, level: str = "info", **fields: Any) -> Pod:
        """Write one line."""
        self.at_ms += 1000
        line = line_of(
            event, at_ms=self.at_ms, worker=self.worker, boot=self.boot, seq=len(self.lines) + 1, level=level, **fields
        )
        self.lines.append(line + b"\n")
        return self

    def owns(self, group_generation: int, *, source: str = "committed", **starts: int | None) -> Pod:
        """Be assigned TopicPartitions: `p0=5` is read from offset 5, the offset of `p0=None` is not known yet."""
        self.generation += 1
        names = {f"source-{name[1:]}": offset for name, offset in starts.items()}
        member = f"{self.worker}-{self.boot}"
        self.say(events.PartitionsAssigned(self.generation, member, group_generation, len(names), list(names)))
        placed = {tp: events.Start(offset, source) for tp, offset in names.items() if offset is not None}
        return self.say(events.Positioned(group_generation, placed)) if placed else self

    def gives_back(self, *tps: str) -> Pod:
        """Be asked to give TopicPartitions back."""
        self.generation += 1
        return self.say(events.PartitionsRevoked(list(tps), self.generation))

    def loses(self, *tps: str) -> Pod:
        """Lose TopicPartitions."""
        self.say(events.PartitionsLost(list(tps), self.generation))
        self.generation += 1
        return self

    def begins(self, spans: Spans, *, batch_id: str | None = None, generation: int | None = None) -> str:
        """Begin a flush, upload its objects; gives the batch's id."""
        self._batches += 1
        batch_id = batch_id or f"{self.worker}-{self.boot}-{self._batches}"
        self.say(events.FlushStarted(batch_id, "interval", generation or self.generation, dict(spans)))
        self.say(events.ObjectsUploaded(batch_id, objects=1))
        return batch_id

    def ends(self, batch_id: str, spans: Spans, **others: Any) -> Pod:
        """Tell of the commit of a batch."""
        offsets: dict[str, events.Covered] = {
            tp: {"first_offset": first, "min_offset": first, "max_offset": end - 1, "next_offset": end}
            for tp, (first, end) in spans.items()
        }
        fields: dict[str, Any] = {
            "flush_seq": 1, "reason": "interval", "generation": self.generation, "objects": 1, "references": 1,
            "records": sum(end - first for first, end in spans.values()), "entries": 1, "dead_letters": 0,
            "object_bytes": 1, "step_seconds": {}, "offsets": offsets,
            "member": f"{self.worker}-{self.boot}", "member_generation": 1,
        }  # fmt: skip
        return self.say(events.BatchCommitted(batch_id, **fields | others))

    def commits(self, spans: Spans, **others: Any) -> Pod:
        """Flush and commit."""
        return self.ends(self.begins(spans), spans, **others)

    def gives_up(self, batch_id: str, *, outcome: str = "aborted", reason: str | None = "interval") -> Pod:
        """Discard a batch."""
        cause = "CommitUnknownError" if outcome == "unknown" else "UploadError"
        discarded = events.BatchDiscarded(
            batch_id=batch_id, reason=reason, generation=self.generation, cause=cause, code=None, outcome=outcome,
            cost="",
        )  # fmt: skip
        return self.say(discarded, level="warning")

    def rewinds(self, offset: int, *, partition: int = 0, first_offset: int = 0) -> Pod:
        """Go on at a committed offset."""
        start = events.Start(offset, "committed", first_offset)
        return self.say(events.Positioned(1, {f"source-{partition}": start}))

    def stops(self) -> Pod:
        """End in order."""
        return self.say(events.WorkerStopped("stopped"))


def owner() -> Pod:
    """Own P0 from its beginning, as the first of all."""
    return Pod("w1").owns(1, source="policy", p0=0)


def lines_of(*pods: Pod) -> list[bytes]:
    """Return all lines, one pod after the other."""
    return [line for pod in pods for line in pod.lines]


def renumbered(lines: list[bytes]) -> list[bytes]:
    """Number the lines of each boot anew, as a worker would that never wrote the ones that are gone."""
    seqs: dict[str, int] = {}
    numbered = []
    for raw in lines:
        fields = json.loads(raw)
        boot = f"{fields['worker']} {fields['boot']}"
        fields["seq"] = seqs[boot] = seqs.get(boot, 0) + 1
        numbered.append(json.dumps(fields).encode() + b"\n")
    return numbered
