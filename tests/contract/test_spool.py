"""The spool's contract, for the fake and for the disk; and what only a disk can do."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.adapters.spool import DiskSpool
from service.errors import SpoolError
from service.runtime.ports import Spool
from tests.contract.spool_suite import SpoolContract
from tests.fakes.spool import FakeSpool


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


def prepared(directory: Path, bytes_max: int = 10_000) -> DiskSpool:
    """Give a spool that is ready."""
    made = DiskSpool(directory, bytes_max=bytes_max)
    made.prepare()
    return made


def test_leftovers_of_an_earlier_process_are_wiped(tmp_path: Path) -> None:
    """C02, C15: nothing is ever taken over; the records are read again."""
    first = prepared(tmp_path / "spool")
    first.append(1, b"x")
    first.seal(1, iter([b"abc"]))
    second = prepared(tmp_path / "spool")
    assert second.bytes_on_disk == 0
    second.seal(1, iter([b"new"]))
    with pytest.raises(SpoolError):
        second.reader(1)(0, 1)


@pytest.mark.parametrize("name", ["precious.txt", "open"])
def test_directory_that_is_not_a_spool_is_never_emptied(tmp_path: Path, name: str) -> None:
    """A wrong setting must not delete somebody's files."""
    (tmp_path / name).mkdir() if name == "open" else (tmp_path / name).write_text("keep")
    with pytest.raises(SpoolError, match="not a spool"):
        prepared(tmp_path)
    assert (tmp_path / name).exists()


def test_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    """Where it leads may change under us."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(SpoolError):
        prepared(tmp_path / "link")


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """Named, not with a traceback."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpoolError):
        prepared(tmp_path / "file")


def test_file_that_changed_on_disk_is_never_uploaded(tmp_path: Path) -> None:
    """C03: what is read back has the checksum of what was written."""
    spool = prepared(tmp_path / "spool")
    sealed = spool.seal(1, iter([b"abc"]))
    Path(sealed.path).write_bytes(b"abd")
    with pytest.raises(SpoolError, match="not what was written"):
        spool.load(sealed)
    Path(sealed.path).write_bytes(b"ab")
    with pytest.raises(SpoolError):
        spool.load(sealed)


def _no_space(*_args: object, **_kwargs: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES])
def test_every_refusal_of_the_disk_is_a_discard(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space, an error, too many files, no permission: the batch goes, the worker stays."""
    spool = prepared(tmp_path / "spool")
    spool.append(1, b"x")
    sealed = spool.seal(1, iter([b"abc"]))

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    for operation in (
        lambda: spool.append(1, b"x"),
        lambda: spool.reader(1)(0, 1),
        lambda: spool.seal(2, iter([b"x"])),
        lambda: spool.load(sealed),
    ):
        with pytest.raises(SpoolError):
            operation()


def test_files_that_cannot_be_deleted_are_tried_again_and_never_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C16: the flush is committed already: a cleanup that fails is logged, and hides nothing."""
    spool = prepared(tmp_path / "spool")
    spool.seal(1, iter([b"abc"]))
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(shutil, "rmtree", _no_space)
        spool.clear()
    assert {one["event"] for one in logs} == {"spool_not_cleared"}
    with pytest.raises(SpoolError):
        spool.seal(1, iter([b"new"]))
    spool.clear()
    assert list((tmp_path / "spool" / "sealed").iterdir()) == []


def test_files_that_could_not_be_deleted_still_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W9 bounds what is on the disk, not what we would like to be there."""
    spool = prepared(tmp_path / "spool", bytes_max=1000)
    spool.append(1, b"x" * 900)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", _no_space)
        spool.clear()
    assert spool.bytes_on_disk == 900
    with pytest.raises(SpoolError, match="W9"):
        spool.append(2, b"x" * 200)
    spool.clear()
    assert spool.bytes_on_disk == 0
