"""The uploader without threads: each upload is done when it is begun, so that a run repeats exactly."""

from __future__ import annotations

from log_partitioner.runtime.uploader import ObjectStore, Task, Uploader


class InlineUploader(Uploader):
    """The real uploader's rules for keys, faults and deadlines, on the caller's thread."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, threads=0)

    def _begin(self, tasks: list[Task]) -> None:
        """Upload now; a failure waits in the future as it would in a thread's."""
        for future, put in tasks:
            try:
                future.set_result(put())
            except Exception as error:  # noqa: BLE001 - a kill passes
                future.set_exception(error)
