"""The spool's contract, for the fake and for the disk; and what only a disk can do."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from log_partitioner.adapters.spool import DiskBatch, DiskSpool
from log_partitioner.batch import rows as rows_module
from log_partitioner.boundary import Piece, SealedFile, Spool
from log_partitioner.control.flush_policy import FlushReason
from log_partitioner.errors import SpoolError
from tests.contract.spool_suite import SpoolContract
from tests.fakes import worker as worker_module
from tests.fakes.records import P0, entry, value_of
from tests.fakes.rig import Rig
from tests.fakes.spool import FakeSpool
from tests.fakes.worker import Rules

LOCK = """
import sys
from contextlib import suppress
from pathlib import Path
from log_partitioner.adapters.spool import DiskSpool
from log_partitioner.errors import SpoolError
try:
    DiskSpool(Path(sys.argv[1]), bytes_max=1).prepare()
except SpoolError as error:
    sys.exit(str(error))
"""


class TestFakeSpool(SpoolContract):
    """The fake."""

    @pytest.fixture
    def spool(self) -> Spool:
        """Give a spool."""
        return FakeSpool(bytes_max=self.LIMIT)


class TestDiskSpool(SpoolContract):
    """The real one."""

    @pytest.fixture
    def spool(self, tmp_path: Path) -> Spool:
        """Give a spool."""
        return prepared(tmp_path / "spool", self.LIMIT)


_prepared: list[DiskSpool] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the spools of a test."""
    yield
    while _prepared:
        _prepared.pop().close()


def prepared(directory: Path, bytes_max: int = 10_000) -> DiskSpool:
    """Give a spool that is ready."""
    made = DiskSpool(directory, bytes_max=bytes_max)
    made.prepare()
    _prepared.append(made)
    return made


def test_leftovers_of_an_earlier_process_are_wiped(tmp_path: Path) -> None:
    """Nothing is ever taken over; the records are read again (DESIGN 5)."""
    first = prepared(tmp_path / "spool")
    batch = first.open("b1")
    batch.append(b"x")
    batch.create(0).write(b"abc")
    (tmp_path / "spool" / "open").mkdir()
    (tmp_path / "spool" / "open" / "0").write_bytes(b"of an earlier version")
    first.close()
    second = prepared(tmp_path / "spool")
    assert second.bytes_on_disk == 0
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [".log-partitioner-spool"]
    second.open("b1")
    batch.delete()


@pytest.mark.parametrize("name", ["precious.txt", "rows"])
def test_directory_that_is_not_a_spool_is_never_emptied(tmp_path: Path, name: str) -> None:
    """A wrong setting must not delete somebody's files."""
    (tmp_path / name).mkdir() if name == "rows" else (tmp_path / name).write_text("keep")
    with pytest.raises(SpoolError, match="not a spool"):
        prepared(tmp_path)
    assert (tmp_path / name).exists()


def test_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    """The link's target may change while the worker runs."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(SpoolError):
        prepared(tmp_path / "link")


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """Named, not with a traceback."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpoolError):
        prepared(tmp_path / "file")


def test_directory_in_use_is_refused_to_another_process_until_it_is_closed(tmp_path: Path) -> None:
    """Two workers of one name would delete each other's rows; the second says so and leaves everything as it is."""
    spool = prepared(tmp_path / "spool")
    batch = spool.open("b1")
    piece = batch.append(b"rows")
    command = [sys.executable, "-c", LOCK, str(tmp_path / "spool")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "is in use" in refused.stderr
    with pytest.raises(SpoolError, match="is in use"):
        prepared(tmp_path / "spool")
    assert batch.read(piece) == b"rows"
    batch.delete()
    spool.close()
    spool.close()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    prepared(tmp_path / "spool").close()


def test_file_system_without_locks_is_refused_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have none: a spool belongs on a local disk."""

    def refuse(*_args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(SpoolError, match="No locks available"):
        prepared(tmp_path / "spool")


def _turn_a_bit(data: bytearray, piece: Piece) -> bytes:
    data[piece.start + piece.length // 2] ^= 1
    return bytes(data)


def _tear(data: bytearray, piece: Piece) -> bytes:
    return bytes(data[: piece.start + piece.length // 2])


def _tear_in_the_middle(data: bytearray, piece: Piece) -> bytes:
    """A block of the disk that was never written reads as zeros."""
    data[piece.start : piece.start + piece.length // 2] = bytes(piece.length // 2)
    return bytes(data)


def _swap_bytes(data: bytearray, piece: Piece) -> bytes:
    at = next(n for n in range(piece.start, piece.start + piece.length - 1) if data[n] != data[n + 1])
    data[at], data[at + 1] = data[at + 1], data[at]
    return bytes(data)


def _swap_pieces(data: bytearray, piece: Piece) -> bytes:
    """Two pieces of the same length, each whole, each in the other's place."""
    first, second = data[: piece.length], data[piece.length : 2 * piece.length]
    return bytes(second + first + data[2 * piece.length :])


@pytest.mark.parametrize("damage", [_turn_a_bit, _tear, _tear_in_the_middle, _swap_bytes, _swap_pieces])
@pytest.mark.parametrize("what", ["rows", "object"])
def test_rows_that_changed_on_disk_are_never_sealed_and_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytearray, Piece], bytes], what: str
) -> None:
    """The real disk under a whole worker: between a spill and the seal, or the seal and the upload, bytes change."""
    rig, spool = Rig(), prepared(tmp_path / "spool", 10**7)
    monkeypatch.setattr(worker_module, "FakeSpool", lambda **_: spool)
    monkeypatch.setattr(rows_module, "PIECE_BYTES", 1_000)
    pieces: list[Piece] = []
    append = DiskBatch.append

    def remember(batch: DiskBatch, data: bytes) -> Piece:
        pieces.append(append(batch, data))
        return pieces[-1]

    monkeypatch.setattr(DiskBatch, "append", remember)
    memory = {"memory_bytes_max": 1 if what == "rows" else 10**9}
    worker = rig.owning(rules=Rules().with_settings(spool=memory).with_layout("pack"))
    for number in range(9):
        value = value_of(entry(f"user-{number}", text=chr(97 + number) * 5_000))
        rig.broker.logs[P0].append(value, timestamp_ms=rig.clock.wall_ms())
    rig.turn_until(lambda: worker.recorder.load().entries == 9)
    if what == "rows":
        (path,) = (tmp_path / "spool").glob("*/rows")
        path.write_bytes(damage(bytearray(path.read_bytes()), pieces[0]))
    else:
        load = DiskBatch.load

        def damaged(batch: DiskBatch, sealed: SealedFile) -> bytes:
            monkeypatch.setattr(DiskBatch, "load", load)
            path = Path(sealed.path)
            path.write_bytes(damage(bytearray(path.read_bytes()), Piece(0, sealed.size // 2, 0)))
            return load(batch, sealed)

        monkeypatch.setattr(DiskBatch, "load", damaged)
    with capture_logs() as logs:
        worker.controller.flush_due(FlushReason.INTERVAL)
    (discarded,) = [one for one in logs if one["event"] == "batch_discarded"]
    assert (discarded["cause"], "not what was written" in discarded["message"]) == ("SpoolError", True)
    assert [key for key in rig.bucket.puts if key.endswith(".avro")] == []
    assert worker.committer.calls == 0
    rig.pass_time(2.0)
    rig.drain()
    assert worker.metrics.total("flushes", outcome="committed") > 0


def _refusing(code: int) -> Callable[..., None]:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES])
def test_every_refusal_of_the_disk_is_a_discard(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space, an error, too many files, no permission: the batch goes, the worker stays."""
    spool = prepared(tmp_path / "spool")
    batch = spool.open("b1")
    piece = batch.append(b"x")
    file = batch.create(0)
    file.write(b"abc")
    sealed = file.finish()
    with monkeypatch.context() as patch:
        for owner, name in ((Path, "open"), (Path, "mkdir"), (Path, "read_bytes"), (os, "pwrite"), (os, "pread")):
            patch.setattr(owner, name, _refusing(code))
        for operation in (
            lambda: spool.open("b2"),
            lambda: batch.append(b"x"),
            lambda: batch.read(piece),
            lambda: batch.create(2),
            lambda: batch.load(sealed),
        ):
            with pytest.raises(SpoolError):
                operation()
    batch.delete()
    assert spool.bytes_on_disk == 0


def test_piece_after_one_that_was_torn_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that ends in the middle is written over by the next; bytes that were asked for count until the end."""
    spool = prepared(tmp_path / "spool")
    batch = spool.open("b1")
    first = batch.append(b"first")
    write = os.pwrite

    with monkeypatch.context() as patch:

        def tear(file: int, data: bytes, at: int) -> int:
            patch.setattr(os, "pwrite", _refusing(errno.ENOSPC))
            return write(file, data[:3], at)

        patch.setattr(os, "pwrite", tear)
        with pytest.raises(SpoolError):
            batch.append(b"torn piece")
    second = batch.append(b"second")
    assert (batch.read(first), batch.read(second)) == (b"first", b"second")
    batch.delete()
    assert spool.bytes_on_disk == 0


def test_write_that_takes_only_a_part_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """POSIX allows short writes even if there is room."""
    batch = prepared(tmp_path / "spool").open("b1")
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, bytes(data)[:3], at))
    assert batch.read(batch.append(b"piece by piece")) == b"piece by piece"


def test_object_that_does_not_fit_on_the_disk_is_an_error_when_it_is_finished(tmp_path: Path) -> None:
    """Buffered bytes fail late; the worker does not take the file for a whole object."""
    batch = prepared(tmp_path / "spool").open("b1")
    file = batch.create(0)
    file.write(b"abc")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._file.fileno())
    os.close(full)
    with pytest.raises(SpoolError):
        file.finish()
    batch.delete()


def open_files(directory: Path) -> int:
    """Count the files in a directory that this process has open, deleted ones too."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found += descriptor.readlink().is_relative_to(directory)
    return found


def test_files_of_a_batch_are_closed_when_it_is_deleted(tmp_path: Path) -> None:
    """Finished or not: a worker that runs for months keeps no file open."""
    spool = prepared(tmp_path / "spool")
    for number in range(5):
        batch = spool.open(f"b{number}")
        batch.append(b"x")
        files = [batch.create(n) for n in range(3)]
        files[0].write(b"abc")
        files[0].finish()
        files[1].write(b"never finished")
        assert open_files(tmp_path) > 1
        batch.delete()
    assert open_files(tmp_path) == 1  # the lock
    spool.close()
    assert open_files(tmp_path) == 0


def written(spool: DiskSpool, batch_id: str, size: int) -> DiskBatch:
    """Open a batch and write so many bytes."""
    batch = spool.open(batch_id)
    batch.append(b"x" * (size // 2))
    file = batch.create(0)
    file.write(b"y" * (size - size // 2))
    file.finish()
    return batch


def test_files_that_cannot_be_deleted_are_tried_again_with_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush is committed already: a cleanup that fails is logged, and hides nothing."""
    spool = prepared(tmp_path / "spool")
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(shutil, "rmtree", _refusing(errno.EACCES))
        written(spool, "b1", 100).delete()
        assert spool.bytes_on_disk == 100
        other = written(spool, "b2", 10)
        assert spool.bytes_on_disk == 110
        with pytest.raises(SpoolError):
            spool.open("b1")
    assert {one["event"] for one in logs} == {"spool_not_cleared"}
    other.delete()
    assert spool.bytes_on_disk == 0
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [".log-partitioner-spool"]
    spool.open("b1")


def test_spool_full_of_what_cannot_be_deleted_opens_no_batch_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W9 bounds what is on the disk, not what we would like to be there."""
    spool = prepared(tmp_path / "spool", bytes_max=1000)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", _refusing(errno.EACCES))
        written(spool, "b1", 900).delete()
        second = spool.open("b2")
        with pytest.raises(SpoolError, match="W9"):
            second.append(b"x" * 200)
        second.append(b"x" * 100)
        second.delete()
        for _ in range(2):
            with pytest.raises(SpoolError, match="cannot be deleted"):
                spool.open("b3")
        assert spool.bytes_on_disk == 1000
    spool.open("b3").append(b"x" * 1000)


def test_leftovers_that_cannot_be_deleted_at_the_start_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried again with the first batch."""
    first = prepared(tmp_path / "spool")
    batch = written(first, "b1", 60)
    first.close()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", _refusing(errno.EACCES))
        second = prepared(tmp_path / "spool")
    assert second.bytes_on_disk == 60
    second.open("b2")
    assert second.bytes_on_disk == 0
    batch.delete()
