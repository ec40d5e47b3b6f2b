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
        """Keep a frame: it is used more than once, and is made from what is far away."""
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self.callback(kept.unpersist)
        return kept

    def keep_apart(self, frame: DataFrame) -> DataFrame:
        """Make a frame now, and keep it without how it was made.

        Spark writes plans out whenever they change, and those of kept frames wherever they are used: where one is made
        from the other, and used several times, that is gigabytes.
        """
        kept = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        self.callback(kept._jdf.queryExecution().logical().rdd().unpersist, False)  # noqa: SLF001, FBT003 - no other way
        return kept
