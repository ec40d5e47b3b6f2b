"""The uploader: acknowledged or not before the deadline; its threads hold nothing up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from log_partitioner.boundary import StoredObject
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import SpoolError, StoreRefusedError, UploadError
from log_partitioner.runtime.uploader import (
    BODIES_BYTES_MAX,
    KEYS_MAX,
    Upload,
    Uploader,
    _Bodies,
    bytes_upload,
    file_upload,
)
from tests.fakes.clock import FakeClock
from tests.fakes.spool import FakeSpool
from tests.fakes.store import Bucket, FakeObjectStore, PutFault


class Bench:
    """An uploader with real threads over a fake store."""

    def __init__(self, threads: int = 2) -> None:
        self.clock = FakeClock()
        self.bucket = Bucket()
        self.store = FakeObjectStore(self.bucket, self.clock)
        self.uploader = Uploader(self.store, threads=threads)
        self.noted: list[int] = []

    def deadline(self, seconds: float = 90.0) -> Deadline:
        """Make a deadline on the fake clock."""
        return Deadline.after(seconds, self.clock.now_s)

    def put(
        self, *uploads: Upload, deadline: Deadline | None = None, abandoned: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Upload, and return the keys."""
        stored = self.uploader.put_all(
            uploads, deadline or self.deadline(), abandoned=abandoned, note_stored=lambda: self.noted.append(1)
        )
        return [one.key for one in stored]


@pytest.fixture
def bench() -> Bench:
    """Give a bench."""
    return Bench()


def thing(key: str = "key", body: bytes = b"body", *, shared: bool = False) -> Upload:
    """Describe an upload."""
    return bytes_upload(body, key, {}, shared=shared)


def test_all_uploads_are_given_in_the_order_they_were_asked_for(bench: Bench) -> None:
    """They may finish in any order."""
    keys = [f"key-{number}" for number in range(20)]
    assert bench.put(*map(thing, keys)) == keys
    assert len(bench.noted) == len(keys)


def test_upload_whose_turn_comes_after_the_deadline_is_not_begun(bench: Bench) -> None:
    """Time is not spent on what comes too late anyway."""
    deadline = bench.deadline(10.0)
    bench.clock.advance(11.0)
    with pytest.raises(UploadError):
        bench.put(thing(), deadline=deadline)
    assert (bench.bucket.puts, bench.noted) == ([], [])


@pytest.mark.parametrize("shared", [True, False])
def test_key_taken_by_another_object_gives_another_key_unless_it_is_shared(bench: Bench, *, shared: bool) -> None:
    """A data object goes to the next key; a schema's key follows from its content."""
    bench.bucket.create("key", b"somebody else's", {})
    assert bench.put(thing(shared=shared)) == ["key" if shared else "key-1"]
    assert bench.bucket.objects["key"] == b"somebody else's"


@pytest.mark.parametrize(("may_read", "keys"), [(True, ["key"]), (False, ["key", "key-1"])])
def test_lost_answer_is_found_again_where_we_may_look(bench: Bench, *, may_read: bool, keys: list[str]) -> None:
    """The object that has our key, length and checksum is ours; one that we may not look at counts as foreign."""
    bench.store.may_read = may_read
    bench.store.script.append(PutFault.ANSWER_LOST)
    assert bench.put(thing()) == keys[-1:]
    assert list(bench.bucket.objects) == keys


def test_keys_that_are_all_taken_end_in_a_discard(bench: Bench) -> None:
    """The worker does not try other keys without end."""
    bench.store.may_read = False
    for key in ("key", "key-1", "key-2"):
        bench.bucket.create(key, b"x", {})
    with pytest.raises(UploadError, match=str(KEYS_MAX)):
        bench.put(thing())


def test_first_failure_is_the_one_that_is_raised_and_cancels_the_rest() -> None:
    """Uploads that have not begun are cancelled."""
    bench = Bench(threads=1)
    bench.store.script.append(PutFault.REFUSED)
    waiting = range(4, 0, -1)
    with pytest.raises(StoreRefusedError):
        bench.put(*(thing(f"key-{number}") for number in waiting))
    assert len(bench.bucket.objects) < len(waiting)


class HeldStore(FakeObjectStore):
    """A store that never answers until it is told to."""

    def __init__(self, bucket: Bucket, clock: FakeClock) -> None:
        super().__init__(bucket, clock)
        self.entered = threading.Event()
        self.release = threading.Event()

    def put(self, key: str, body: bytes, **more: Any) -> StoredObject:
        """Wait."""
        self.entered.set()
        self.release.wait(10)
        return super().put(key, body, **more)


def held() -> tuple[Bench, HeldStore]:
    """Give a bench whose only thread will be held."""
    bench = Bench(threads=1)
    store = HeldStore(bench.bucket, bench.clock)
    bench.uploader = Uploader(store, threads=1)
    return bench, store


def _after_entering(store: HeldStore, then: Callable[[], None]) -> Callable[[], bool]:
    def asked() -> bool:
        store.entered.wait(5)
        then()
        return False

    return asked


def test_deadline_ends_the_wait_for_a_store_that_never_answers() -> None:
    """The flush goes on to its discard; the thread is left behind and what it stores is an orphan."""
    bench, store = held()
    asked = _after_entering(store, lambda: bench.clock.advance(5.0))
    with pytest.raises(UploadError, match="1 of 1"):
        bench.put(thing(), deadline=bench.deadline(10.0), abandoned=asked)
    store.release.set()


def test_second_stop_request_ends_the_wait() -> None:
    """Abandoned is as safe as committed, and quicker."""
    bench, store = held()
    with pytest.raises(UploadError, match="not acknowledged"):
        bench.put(thing(), abandoned=lambda: store.entered.wait(5))
    store.release.set()


def test_thread_that_is_held_does_not_hold_up_the_next_flush() -> None:
    """The uploads of the next batch have threads of their own."""
    bench, store = held()
    with pytest.raises(UploadError):
        bench.put(thing("stuck"), abandoned=lambda: store.entered.wait(5))
    bench.uploader._store = bench.store
    assert bench.put(thing("next")) == ["next"]
    assert list(bench.bucket.objects) == ["next"]
    store.release.set()


class SlowStore(FakeObjectStore):
    """A store that tries until the deadline of what it is given first, and stores all else at once."""

    def put(self, key: str, body: bytes, *, deadline: Deadline, **more: Any) -> StoredObject:
        """Wait."""
        while key == "first" and not deadline.has_passed():
            time.sleep(0.01)
        return super().put(key, body, deadline=deadline, **more)


def test_uploads_of_a_batch_that_is_given_up_end_and_leave_their_room_to_the_next() -> None:
    """They would go on to their deadline, a minute and a half, and the next batch would wait for them."""
    bench = Bench()
    bench.uploader = Uploader(SlowStore(bench.bucket, bench.clock), threads=2)
    first, second, third = (large(bench, key, BODIES_BYTES_MAX, []) for key in ("first", "second", "third"))
    with pytest.raises(UploadError):
        bench.put(first, second, abandoned=lambda: True)
    looks = iter(range(20))
    assert bench.put(third, abandoned=lambda: next(looks, None) is None) == ["third"]
    assert "second" not in bench.bucket.objects


def test_object_of_the_spool_is_read_when_its_turn_comes() -> None:
    """Its size and checksums are those of the file; a file that is not what was written is a discard."""
    bench = Bench()
    spool = FakeSpool().open("batch")
    file = spool.create(0)
    file.write(b"data")
    sealed = file.finish()
    upload = file_upload(spool, sealed, lambda _attempt: "key", {"a": "b"})
    assert (upload.size, upload.sha256, upload.crc32) == (4, sealed.sha256, sealed.crc32)
    assert (bench.put(upload), bench.bucket.objects["key"]) == (["key"], b"data")
    spool.delete()
    with pytest.raises(SpoolError):
        bench.put(upload)


def large(bench: Bench, key: str, size: int, seen: list[int]) -> Upload:
    """Describe an upload that claims so many bytes and notes how many are in memory when its body is read."""

    def body() -> bytes:
        seen.append(bench.uploader._bodies._bytes)
        return b""

    empty = thing(body=b"")
    return Upload(lambda _attempt: key, body, size, empty.sha256, empty.crc32, {})


def test_bodies_in_memory_are_bounded_by_bytes() -> None:
    """The number of threads does not matter: a body without room waits for its turn, and all have one."""
    bench = Bench(threads=8)
    seen: list[int] = []
    size = BODIES_BYTES_MAX // 3 + 1
    uploads = [large(bench, f"key-{number}", size, seen) for number in range(20)]
    assert len(bench.put(*uploads)) == 20
    assert max(seen) <= BODIES_BYTES_MAX


def test_body_looks_at_its_deadline_only_if_it_has_no_room() -> None:
    """Bodies in memory count with it: if nine of ten bytes are taken, there is room for one more, not for two."""
    bodies, looks = _Bodies(10), list[float]()

    def now_s() -> float:
        looks.append(1.0)
        return 1.0

    for size, seen in ((6, 0), (4, 0), (1, 1)):
        bodies.take(size, Deadline(0.0, now_s))
        assert len(looks) == seen


def test_body_larger_than_the_bound_goes_alone() -> None:
    """Otherwise it would wait for ever."""
    bench = Bench()
    seen: list[int] = []
    bench.put(large(bench, "key", 2 * BODIES_BYTES_MAX, seen))
    assert seen == [2 * BODIES_BYTES_MAX]


def test_body_whose_turn_does_not_come_in_time_is_given_up() -> None:
    """It stops waiting at the deadline, and is never read."""
    bench = Bench()
    bench.uploader._bodies.take(BODIES_BYTES_MAX, bench.deadline())
    seen: list[int] = []
    deadline = bench.deadline(10.0)
    bench.clock.advance(11.0)
    with pytest.raises(UploadError):
        bench.put(large(bench, "key", 1, seen), deadline=deadline)
    assert seen == []


def test_upload_threads_that_the_machine_refuses_leave_none_at_work(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for another thread the flush fails; uploads that wait are cancelled."""
    begun: list[str] = []

    def start(thread: threading.Thread) -> None:
        begun.append(thread.name)
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError):
        bench.put(thing("one"), thing("two"))
    assert bench.bucket.puts == []
