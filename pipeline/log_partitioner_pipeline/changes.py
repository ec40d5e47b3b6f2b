"""Finds changes of the table that others than the pipeline's own jobs have made since the table was last looked at.

The pipeline's own changes are the appends of materialize, which state offsets, the rewrites of compaction and the
deletions of erased users, which carry them, and added columns. A dropped or renamed column makes no snapshot; only the
table's schemas show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from log_partitioner_pipeline.table import SUMMARY_CARRIED, SUMMARY_OFFSETS, ancestors

if TYPE_CHECKING:
    from log_partitioner_pipeline.table import Position

_APPEND = "append"


def change_by_others(table: Any, since: Position) -> str | None:
    """Name a change that others have made to Iceberg's own `table` since this position was read; None if there is none.

    Reads the metadata that `table` has loaded; makes no request.
    """
    if str(table.uuid()) != since.table_id:
        return "it was made anew"
    newer = []
    for snapshot in ancestors(table):
        if snapshot.snapshotId() == since.snapshot_id:
            break
        newer.append(snapshot)
    else:
        return f"it does not come from snapshot {since.snapshot_id} any more"
    for snapshot in newer:
        if not _is_own(snapshot):
            return f"snapshot {snapshot.snapshotId()} ({snapshot.operation()}) is by none of its jobs"
    lost = columns_lost(table, since.schema_id)
    return f"columns {', '.join(lost)} are gone" if lost else None


def columns_lost(table: Any, schema_id: int | None) -> list[str]:
    """Name columns and fields of this schema that the table no longer has, or has under another name."""
    now = table.schema()
    if schema_id == now.schemaId():
        return []
    before = table.schemas().get(schema_id)
    if before is None:
        return [f"of schema {schema_id}"]
    return sorted(name for _, name in set(before.idToName().items()) - set(now.idToName().items()))


def _is_own(snapshot: Any) -> bool:
    said = SUMMARY_OFFSETS if snapshot.operation() == _APPEND else SUMMARY_CARRIED
    return snapshot.summary().get(said) is not None
