"""The contract of every spool; subclass it with a `spool` fixture."""

from __future__ import annotations

import hashlib
import zlib

import pytest

from log_partitioner.boundary import Spool
from log_partitioner.errors import SpoolError


class SpoolContract:
    """Holds for the fake and for the disk. A spool of `LIMIT` bytes is expected."""

    LIMIT = 10_000

    def test_pieces_are_read_back_in_any_order(self, spool: Spool) -> None:
        """Pieces lie one behind the other in one file; a piece may be empty."""
        batch = spool.open("b1")
        pieces = [batch.append(data) for data in (b"first", b"", b"second")]
        assert [batch.read(piece) for piece in reversed(pieces)] == [b"second", b"", b"first"]

    def test_batches_do_not_see_each_other(self, spool: Spool) -> None:
        """Each has a directory of its own."""
        one, other = spool.open("b1"), spool.open("b2")
        mine, theirs = one.append(b"mine!"), other.append(b"other")
        assert (one.read(mine), other.read(theirs)) == (b"mine!", b"other")
        other.delete()
        assert one.read(mine) == b"mine!"

    def test_piece_that_is_not_what_was_written_is_an_error(self, spool: Spool) -> None:
        """By length, and by checksum."""
        batch = spool.open("b1")
        piece = batch.append(b"first")
        for wrong in (piece._replace(length=10), piece._replace(start=1), piece._replace(crc32=piece.crc32 ^ 1)):
            with pytest.raises(SpoolError):
                batch.read(wrong)

    def test_batch_id_is_opened_once(self, spool: Spool) -> None:
        """A directory that is still there is never taken over."""
        spool.open("b1")
        with pytest.raises(SpoolError):
            spool.open("b1")

    def test_finished_object_is_loaded_as_it_was_written(self, spool: Spool) -> None:
        """Size and checksums are those of the bytes; several objects may be written at once."""
        batch = spool.open("b1")
        one, other = batch.create(0), batch.create(1)
        for data in (b"a", b"", b"bc"):
            one.write(data)
            other.write(data * 2)
        assert (one.size, other.size) == (3, 6)
        sealed = one.finish()
        assert batch.load(sealed) == b"abc"
        assert (sealed.size, sealed.sha256, sealed.crc32) == (3, hashlib.sha256(b"abc").digest(), zlib.crc32(b"abc"))
        assert batch.load(other.finish()) == b"aabcbc"

    def test_object_that_is_not_what_was_written_is_an_error(self, spool: Spool) -> None:
        """By length, and by checksum."""
        batch = spool.open("b1")
        file = batch.create(0)
        file.write(b"abc")
        sealed = file.finish()
        for wrong in (sealed._replace(size=2), sealed._replace(crc32=sealed.crc32 ^ 1)):
            with pytest.raises(SpoolError):
                batch.load(wrong)

    def test_number_is_created_once(self, spool: Spool) -> None:
        """No object is ever written over."""
        batch = spool.open("b1")
        batch.create(1).write(b"a")
        with pytest.raises(SpoolError):
            batch.create(1)

    def test_bytes_of_all_files_are_counted_until_they_are_deleted(self, spool: Spool) -> None:
        """W9: pieces and objects, of every batch."""
        one, other = spool.open("b1"), spool.open("b2")
        one.append(b"x" * 100)
        one.create(0).write(b"y" * 50)
        other.append(b"z" * 7)
        assert spool.bytes_on_disk == 157
        one.delete()
        assert spool.bytes_on_disk == 7
        other.delete()
        assert spool.bytes_on_disk == 0

    def test_limit_refuses_a_piece_and_an_object_and_a_batch(self, spool: Spool) -> None:
        """W9: the disk of the node is not ours alone; sealing writes everything a second time."""
        batch = spool.open("b1")
        batch.append(b"x" * (self.LIMIT - 1))
        with pytest.raises(SpoolError, match="W9"):
            batch.append(b"xx")
        file = batch.create(0)
        with pytest.raises(SpoolError, match="W9"):
            file.write(b"yy")
        file.write(b"y")
        with pytest.raises(SpoolError, match="W9"):
            spool.open("b2")

    def test_deleted_batch_is_gone_and_there_is_room_again(self, spool: Spool) -> None:
        """This holds after a refusal, too: a batch that is too large is discarded, and the worker goes on."""
        batch = spool.open("b1")
        piece = batch.append(b"x" * (self.LIMIT - 10))
        file = batch.create(0)
        file.write(b"abc")
        sealed = file.finish()
        with pytest.raises(SpoolError):
            batch.append(b"x" * self.LIMIT)
        batch.delete()
        assert spool.bytes_on_disk == 0
        with pytest.raises(SpoolError):
            batch.load(sealed)
        with pytest.raises(SpoolError):
            batch.read(piece)
        spool.open("b2").append(b"x" * self.LIMIT)

    def test_batch_of_nothing_is_deleted_and_its_id_is_free(self, spool: Spool) -> None:
        """Records without entries leave no row."""
        spool.open("b1").delete()
        spool.open("b1").delete()
        assert spool.bytes_on_disk == 0
