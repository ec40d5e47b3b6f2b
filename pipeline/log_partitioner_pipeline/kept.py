"""Frames that are kept on disk until a run ends."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Kept(ExitStack):
    """Keeps frames; at the end of the block they are forgotten."""

    def keep(self, frame: DataFrame) -> DataFrame:
        """Persist a frame on disk until the run ends, because it is used more than once and costly to make."""
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self.callback(kept.unpersist)
        return kept

    def keep_apart(self, frame: DataFrame) -> DataFrame:
        """Compute a frame now, and persist the result without its plan.

        Spark writes plans out whenever they change, and those of kept frames wherever they are used: if one is made
        from the other, and used several times, that is gigabytes.
        """
        kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        self.callback(kept._jdf.queryExecution().logical().rdd().unpersist, False)  # noqa: SLF001, FBT003 - no other way
        return kept
