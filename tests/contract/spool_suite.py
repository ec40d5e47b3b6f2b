"""What every spool does; subclass and give it a `spool` fixture."""

from __future__ import annotations

import hashlib
import zlib

import pytest

from service.errors import SpoolError
from service.runtime.ports import Spool


class SpoolContract:
    """Holds for the fake and for the disk. A spool of `LIMIT` bytes is expected."""

    LIMIT = 10_000

    def test_what_was_appended_is_read_by_start_and_length(self, spool: Spool) -> None:
        """Blocks lie one behind the other, each file by itself."""
        spool.append(1, b"first")
        spool.append(2, b"other")
        spool.append(1, b"second")
        read = spool.reader(1)
        assert (read(0, 5), read(5, 6), read(3, 4)) == (b"first", b"second", b"stse")

    def test_read_beyond_the_end_is_an_error(self, spool: Spool) -> None:
        """A torn file is never taken for a whole one."""
        spool.append(1, b"first")
        with pytest.raises(SpoolError):
            spool.reader(1)(3, 10)

    def test_read_of_a_file_that_is_not_there_is_an_error(self, spool: Spool) -> None:
        """Nothing was ever appended to it."""
        with pytest.raises(SpoolError):
            spool.reader(77)(0, 1)

    def test_sealed_file_is_loaded_as_it_was_written(self, spool: Spool) -> None:
        """Size and checksums are those of the bytes."""
        sealed = spool.seal(1, iter([b"a", b"", b"bc"]))
        assert spool.load(sealed) == b"abc"
        assert (sealed.size, sealed.sha256, sealed.crc32) == (3, hashlib.sha256(b"abc").digest(), zlib.crc32(b"abc"))

    def test_number_is_sealed_once(self, spool: Spool) -> None:
        """A file that could not be deleted is never written over."""
        spool.seal(1, iter([b"a"]))
        with pytest.raises(SpoolError):
            spool.seal(1, iter([b"b"]))

    def test_bytes_of_all_files_are_counted(self, spool: Spool) -> None:
        """Appended and sealed."""
        spool.append(1, b"x" * 100)
        spool.seal(1, iter([b"y" * 50]))
        assert spool.bytes_on_disk == 150

    def test_limit_refuses_an_append(self, spool: Spool) -> None:
        """W9: the disk of the node is not ours alone."""
        spool.append(1, b"x" * (self.LIMIT - 1))
        with pytest.raises(SpoolError, match="W9"):
            spool.append(2, b"xx")

    def test_limit_refuses_a_seal(self, spool: Spool) -> None:
        """Sealing writes everything a second time."""
        spool.append(1, b"x" * (self.LIMIT - 10))
        with pytest.raises(SpoolError, match="W9"):
            spool.seal(1, iter([b"y" * 11]))

    def test_clear_forgets_everything(self, spool: Spool) -> None:
        """Also what was loaded before; and there is room again."""
        spool.append(1, b"x" * (self.LIMIT - 10))
        sealed = spool.seal(1, iter([b"abc"]))
        spool.clear()
        assert spool.bytes_on_disk == 0
        with pytest.raises(SpoolError):
            spool.load(sealed)
        with pytest.raises(SpoolError):
            spool.reader(1)(0, 1)
        spool.append(2, b"x" * self.LIMIT)

    def test_clear_after_a_refusal_makes_room(self, spool: Spool) -> None:
        """A batch that is too large is discarded, not the worker."""
        with pytest.raises(SpoolError):
            spool.append(1, b"x" * (self.LIMIT + 1))
        spool.clear()
        spool.append(2, b"x" * self.LIMIT)

    def test_clear_twice_is_no_error(self, spool: Spool) -> None:
        """C16: idempotent."""
        spool.clear()
        spool.clear()
