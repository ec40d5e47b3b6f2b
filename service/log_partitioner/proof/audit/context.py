"""The surroundings of judging flushes: settings and second opinion, the store, findings; it outlives each flush."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.oracle.judge import Judge
from log_partitioner.proof.oracle.published_schema import HeaderSchema

if TYPE_CHECKING:
    from typing import Any

    from log_partitioner.config.settings import Settings
    from log_partitioner.formats.flush_record import Lineage
    from log_partitioner.formats.model import OffsetRanges, SourceRecord, TopicPartition
    from log_partitioner.formats.reference import Reference
    from log_partitioner.formats.schema import FindSchema
    from log_partitioner.proof.audit.put_away import PutAway
    from log_partitioner.proof.audit.ranges import Committed
    from log_partitioner.proof.audit.report import Findings
    from log_partitioner.proof.audit.source import GivenUp
    from log_partitioner.proof.audit.store import Address, FetchedObject

EXAMPLE_CHARS_MAX = 400
HEADERS_MAX = 256


class Ground(NamedTuple):
    """All that judging batches takes from beyond them; it can be pickled.

    `source` are the audited offsets of each TopicPartition, `put_away` those that dead letters stand for as a whole.
    Below `lows` the source is gone; it begins at its `firsts`. `are_whole`: references and dead letters still have
    their beginning. `find_schema` gives the schemas that records name. Dead letters at the places `replayed` were put
    back into the source.
    """

    settings: Settings
    lineage: Lineage
    source: OffsetRanges
    put_away: PutAway
    committed: Committed
    lows: Mapping[TopicPartition, int]
    are_whole: bool = True
    find_schema: FindSchema | None = None
    firsts: Mapping[TopicPartition, int] = {}
    replayed: frozenset[tuple[TopicPartition, int]] = frozenset()


@dataclass
class Context:
    """The surroundings of flushes.

    `open_objects` returns the objects of addresses in their order, None for a missing one; `read_source` the records of
    ranges. `require_time` is called for each row, and may raise. `retired` are the rows of references whose objects are
    retired, by reference id, as the table has them: `_meta` and the digest of the values. `given_up` says of a
    reference, of the message at a place, why no reader has its entries any more. `on_row` sees each row: its reference,
    `_meta` and digest. `keeps_ids`: the unique ids of the source are kept beside its entries.
    """

    ground: Ground
    findings: Findings
    open_objects: Callable[[list[Address]], Iterable[FetchedObject | None]]
    read_source: Callable[[OffsetRanges], Iterable[SourceRecord]] = lambda _: ()
    require_time: Callable[[], None] = lambda: None
    retired: Mapping[str, Sequence[tuple[dict[str, Any], bytes]]] = field(default_factory=dict)
    given_up: Callable[[Reference, TopicPartition, int], GivenUp | None] = lambda *_: None
    on_row: Callable[[Reference, dict[str, Any], bytes], None] = lambda *_: None
    keeps_ids: bool = False

    def __post_init__(self) -> None:
        self.judge = Judge(self.ground.settings, self.ground.find_schema)
        self.header = lru_cache(HEADERS_MAX)(partial(HeaderSchema, parse=self.judge.parse))
        self.counts: Counter[str] = Counter()
        """Numbers of what was read, and of entries by what became of them."""
        self.dead_letters: Counter[str] = Counter()
        """Entries by the reason of their dead letter."""

    def read_again(self, tp: TopicPartition, offset: int) -> SourceRecord | None:
        """Read one record of the source; None if it is not there."""
        return next(iter([*self.read_source({tp: (offset, offset + 1)})]), None)

    def is_gone(self, tp: TopicPartition, offset: int) -> bool:
        """Return whether the source has lost an offset that flush records cover."""
        return offset < self.ground.lows.get(tp, 0)

    def refute(self, reference: Reference, text: str) -> None:
        """Count a statement of a reference that is not true."""
        text = f"{where_of(reference)}: {text}"[:EXAMPLE_CHARS_MAX]
        self.findings.add(Kind.REFERENCE_WRONG, text, reference.location.object, reference=reference)

    def explain(self, tp: TopicPartition, offset: int, index: int) -> Mapping[Kind, object] | None:
        """Read an entry of the source again: the `_meta` and the values that its row must have."""
        record = self.read_again(tp, offset)
        entry = None if record is None else self.judge.judge(record).entries[index].deliverable
        if record is None or entry is None:
            return None
        meta = {"event_time": entry.event_time_us, "id": entry.id, "timestamp": entry.timestamp_ms, "root": entry.root}
        return {Kind.META: meta, Kind.ALTERED: self.judge.values(record)[index]}


def where_of(reference: Reference) -> str:
    """Name a reference by its object and its id."""
    return f"{reference.location.object} (reference {reference.reference_id})"
