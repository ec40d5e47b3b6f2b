"""The uploader without threads: each upload is done when it is submitted, so that a run repeats exactly."""

from __future__ import annotations

from concurrent.futures import Future

from log_partitioner.boundary import StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.runtime.ports import ObjectStore, Upload
from log_partitioner.runtime.uploader import BODIES_BYTES_MAX, Uploader, _Bodies


class InlineUploader(Uploader):
    """The real uploader's rules for keys, faults and deadlines, on the caller's thread."""

    def __init__(self, store: ObjectStore) -> None:  # no pool: Uploader's is threads
        self._store = store
        self._bodies = _Bodies(BODIES_BYTES_MAX)

    def close(self) -> None:
        """No threads, nothing to let go."""

    def _replace_pool(self) -> None:
        """No thread is ever held."""

    def submit(self, upload: Upload, deadline: Deadline) -> Future[StoredObject]:
        """Upload now; a failure waits in the future as it would in a thread's."""
        future: Future[StoredObject] = Future()
        try:
            future.set_result(self._put(upload, deadline))
        except Exception as error:  # noqa: BLE001 - as ThreadPoolExecutor does; a kill passes
            future.set_exception(error)
        return future
