"""Chooses whose references a job takes: the references of one group and of groups that it has adopted.

Audits and backfills choose the group when they begin. Who reads references on and on learns of groups when their
references come: only then is the flushes topic read, from the offsets of the last time on. A table remembers the group
that it is of, and takes no other; it remembers of which groups it has left references out, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import structlog
from pyspark.sql import functions as F

from log_partitioner.adapters.kafka.topics import KafkaTopics
from log_partitioner.errors import CouldNotTellError
from log_partitioner.formats.flush_record import Lineage
from log_partitioner.proof.audit.whose import Groups, has_reference, of_group
from log_partitioner_pipeline.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, DataFrame

    from log_partitioner.config.settings import KafkaSettings
    from log_partitioner.formats.reference import Reference
    from log_partitioner_pipeline.config import JobSettings
    from log_partitioner_pipeline.table import Table

PROPERTY_GROUP = "log-partitioner.group"
_LEFT_OUT = "log-partitioner.left-out"


class Chosen(NamedTuple):
    """The history of a job, its settings with that group, and groups that are unrelated."""

    settings: JobSettings
    lineage: Lineage
    others: list[str]


def choose_group(settings: JobSettings, *, of_table: str | None = None) -> Chosen:
    """Choose the group by the flush records; blocks until the flushes topic is read.

    If the settings name no group, it is the one to which the table `of_table` belongs.

    Raises:
        CouldNotTellError: there are several, or brokers do not answer.
    """
    kafka, groups = settings.worker.kafka, Groups()
    if of_table is not None and "group_id" not in kafka.model_fields_set:
        kafka = of_group(settings.worker, of_table).kafka
    _read_on(kafka, groups)
    lineage = groups.lineage(kafka)
    worker = of_group(settings.worker, lineage.group_id)
    others = sorted(groups.topics.keys() - set(lineage.groups))
    return Chosen(settings.model_copy(update={"worker": worker}), lineage, others)


class OneHistory:
    """Takes references of one history only; `of_table` is the group of the job's table, if it has one.

    `left_out` are the groups whose references of the source topics the table lacks: none of them can become part of the
    history any more.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        of_table: str | None,
        *,
        left_out: Iterable[str] = (),
        read_on: Callable[[KafkaSettings, Groups], None] | None = None,
    ) -> None:
        self._kafka = kafka
        self._of_table = of_table
        self._read_on = read_on or _read_on
        self._groups = Groups()
        named = kafka.group_id if "group_id" in kafka.model_fields_set else of_table
        self.lineage: Lineage | None = None if named is None else Lineage(named, [])
        self.left_out = set(left_out)
        self._known = set() if named is None else {named}
        self._told: set[str] = set()
        self._log = structlog.get_logger("whose")
        if of_table is not None and named != of_table:
            self._learn({of_table})

    def take(self, references: list[Reference]) -> list[Reference]:
        """Return the references of the history, which grows with groups that go on with its work.

        Raises:
            CouldNotTellError: there are several groups, unrelated, or none, and none is named; or brokers are silent.
            TableError: it has grown by a group whose references were left out.
        """
        if not references:
            return []
        ours = self._kafka.sources
        of_ours = [one for one in references if any(source.topic in ours for source in one.sources)]
        groups = {one.group_id for one in of_ours}
        lineage = self.lineage
        if lineage is None and len(groups) == 1:
            lineage = self.lineage = Lineage(min(groups), [])
        if lineage is None or not all(has_reference(lineage, one) for one in of_ours):
            lineage = self._learn(groups, of={one.group_id for one in references})
        self._known |= groups
        self.left_out |= {one.group_id for one in of_ours if not has_reference(lineage, one)} - set(lineage.groups)
        taken = [one for one in references if has_reference(lineage, one)]
        if len(taken) < len(references):
            self._tell({one.group_id for one in references if not has_reference(lineage, one)}, lineage)
        return taken

    def _learn(self, new: set[str], *, of: Iterable[str] = ()) -> Lineage:
        """Read flush records on, and choose again: a group that was foreign may be part of the history by now."""
        self._read_on(self._kafka, self._groups)
        self._known |= new
        topics = self._kafka.source_topics
        if not self._known and not self._groups.of(self._kafka.sources):
            raise CouldNotTellError(
                f"references are of {', '.join(sorted(of))}, and no group has flushed {', '.join(sorted(topics))}: "
                "say which is meant, by LOGP_KAFKA__GROUP_ID"
            )
        lineage = self._groups.lineage(self._kafka, also=self._known)
        is_of_table = self._of_table is None or self._of_table in lineage.groups  # another's table is refused as such
        grown = sorted(self.left_out & set(lineage.groups))
        if grown and is_of_table:
            raise TableError(
                f"references of group {', '.join(grown)} were left out of this table, and belong to the history of "
                f"{lineage.group_id} now: make the table anew, or backfill what it lacks and remove its property "
                f"{_LEFT_OUT}"
            )
        self.lineage = lineage
        return lineage

    def _tell(self, others: set[str], lineage: Lineage) -> None:
        for group in sorted(others - self._told):
            self._told.add(group)
            self._log.warning("references_left_out", group=group, taken=lineage.group_id)


def _read_on(kafka: KafkaSettings, groups: Groups) -> None:
    with KafkaTopics.of(kafka) as topics:
        groups.read_on(topics, kafka.flushes_topic)


# In SQL.


def of_history(frame: DataFrame, lineage: Lineage, lines: str) -> DataFrame:
    """Keep the rows of a history: by `group_id`, and `lines` with topic, partition and next_offset."""
    return frame.where(_is_of(lineage, F.col("group_id"), F.col(lines)))


def _is_of(lineage: Lineage, group: Column, lines: Column) -> Column:
    own = group == F.lit(lineage.group_id)
    ends = lineage.ends()
    if not ends:
        return own
    pairs = [F.lit(part) for place, end in sorted(ends.items()) for part in ("\0".join(map(str, place)), end)]
    adopted = F.create_map(*pairs)

    def is_adopted(line: Column) -> Column:
        place = F.concat_ws("\0", group, line["topic"], line["partition"].cast("string"))
        return F.coalesce(line["next_offset"] <= F.try_element_at(adopted, place), F.lit(False))  # noqa: FBT003

    return own | F.forall(lines, is_adopted)


# A table's.


def group_of(table: Table) -> str | None:
    """Return the group of a table; None if it has taken nothing yet."""
    return table.properties().get(PROPERTY_GROUP)


def history_of(table: Table, kafka: KafkaSettings) -> OneHistory:
    """Begin to take references into a table.

    Raises:
        TableError: it is of another group than the settings name, or lacks references of the history.
        CouldNotTellError: nobody can tell whether the one has adopted the other.
    """
    known = table.properties()
    left_out = json.loads(known.get(_LEFT_OUT) or "[]")
    history = OneHistory(kafka, known.get(PROPERTY_GROUP), left_out=left_out)
    if history.lineage is not None:
        require_group(table, history.lineage)
    return history


def claim(table: Table, history: OneHistory) -> None:
    """Make a table remember whose history it holds, if that is known, and whose references it leaves out.

    Raises:
        TableError: it holds another one.
    """
    lineage = history.lineage
    if lineage is None:
        return
    known = table.properties()
    left_out = json.dumps(sorted(history.left_out))
    if (known.get(PROPERTY_GROUP), known.get(_LEFT_OUT) or "[]") != (lineage.group_id, left_out):
        require_group(table, lineage)
        table.set_properties({PROPERTY_GROUP: lineage.group_id, _LEFT_OUT: left_out})


def require_group(table: Table, lineage: Lineage) -> None:
    """Refuse a table that is of another history.

    Raises:
        TableError: it says of which.
    """
    known = group_of(table)
    if known is not None and known not in lineage.groups:
        raise TableError(
            f"table {table.name} is of group {known}, not of {lineage.group_id}: name another table, or set "
            f"LOGP_KAFKA__GROUP_ID to {known}"
        )
