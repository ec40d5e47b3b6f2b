"""A connection that breaks inside the body of an object: it is read again, a few times; and bytes that are others."""

import hashlib
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import Checksum
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Content, Objects
from log_partitioner_pipeline.pieces import ReadGroup, ReferencePart

BODY = b"0123456789"
PART = ReferencePart("r", PartitionKey("u", "2026-03-04", 5), 1, ((0, len(BODY)),), 0)
CHECKSUM = Checksum("sha256", hashlib.sha256(BODY).hexdigest())
WHOLE = ReadGroup("data", "o", None, None, len(BODY), CHECKSUM, "", ("null",), (PART,))


class _Breaking(BaseHTTPRequestHandler):
    """Gives the body, but only half of it as often as the server says."""

    def do_GET(self) -> None:
        """Answer."""
        assert isinstance(self.server, _Server)
        self.server.asked += 1
        self.send_response(200)
        begin, end = 0, len(self.server.body)
        if asked := self.headers["Range"]:
            first, last = asked.removeprefix("bytes=").split("-")
            begin, end = int(first), int(last) + 1
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        is_broken = self.server.asked <= self.server.broken
        self.wfile.write(self.server.body[begin : (begin + end) // 2 if is_broken else end])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    asked = 0
    broken = 0
    body = BODY


@pytest.fixture
def server() -> Iterator[_Server]:
    """A server on a free port."""
    with _Server(("127.0.0.1", 0), _Breaking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def objects_of(server: _Server) -> Objects:
    """Objects in that server."""
    url = f"http://127.0.0.1:{server.server_address[1]}"
    settings = {"bucket": "data", "endpoint_url": url, "access_key": "a", "secret_key": "s"}
    return Objects(S3Settings.model_validate(settings), threads=1)


def test_broken_body_is_read_again(server: _Server) -> None:
    """Twice it breaks, then it comes; whoever asks."""
    server.broken = 2
    assert objects_of(server).read(WHOLE) == Content(((0, BODY),))
    server.asked = 0
    stored = objects_of(server).fetch(("data", "o", None))
    assert (stored and stored.data, server.asked) == (BODY, 3)


def test_body_that_stays_broken(server: _Server) -> None:
    """Not for ever: an error that names the object."""
    server.broken = 100
    with pytest.raises(ObjectError, match="s3://data/o"):
        objects_of(server).read(WHOLE)
    assert server.asked == 3


def test_spans_of_an_object_give_what_lies_in_one_of_them() -> None:
    """Where they are cut off, and what is between them, is nowhere."""
    content = Content(((0, b"0123"), (8, b"89ab")))
    assert (content.of(1, 3), content.of(8, 4)) == (b"123", b"89ab")
    for start, length in ((2, 3), (5, 1), (7, 2), (11, 2)):
        with pytest.raises(ValueError, match=f"no {length} bytes at {start}"):
            content.of(start, length)


def test_what_is_under_way_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch, server: _Server) -> None:
    """In order, as many as there are threads for, and fewer where they are large; one too large goes alone."""
    monkeypatch.setattr("log_partitioner_pipeline.objects._AHEAD_BYTES_MAX", 10)
    begun: list[int] = []

    def take(size: int) -> int:
        begun.append(size)
        return size

    given = objects_of(server).ahead(take, [4, 4, 4, 50, 1], size_of=lambda size: size)
    assert next(given) == 4
    assert 50 not in begun
    assert list(given) == [4, 4, 50, 1]


@pytest.mark.parametrize("checksum", [CHECKSUM, Checksum("crc32", f"{zlib.crc32(BODY):08x}")])
def test_altered_bytes_of_a_whole_object_are_refused(server: _Server, checksum: Checksum) -> None:
    """As many bytes, with one bit turned: without compression they might be rows of other values."""
    whole = msgspec.structs.replace(WHOLE, checksum=checksum)
    assert objects_of(server).read(whole) == Content(((0, BODY),))
    server.body = b"0123456788"
    with pytest.raises(ObjectError, match=rf"s3://data/o .* {checksum.algorithm} .* {checksum.value}"):
        objects_of(server).read(whole)


def test_an_unknown_checksum_is_no_proof(server: _Server) -> None:
    """Of a newer version of this code: refused, not passed over."""
    with pytest.raises(ObjectError, match=r"s3://data/o .*unknown algorithm crc64nvme"):
        objects_of(server).read(msgspec.structs.replace(WHOLE, checksum=Checksum("crc64nvme", "00")))


def test_bytes_of_a_part_have_no_checksum_of_their_own(server: _Server) -> None:
    """The checksum is that of all bytes: what a span of them holds is proven by the audit, which reads them all."""
    server.body = b"0123456788"
    part = msgspec.structs.replace(PART, ranges=((0, 4),))
    assert objects_of(server).read(msgspec.structs.replace(WHOLE, parts=(part,))) == Content(((0, b"0123"),))


def test_schema_that_is_no_text(server: _Server) -> None:
    """It is named as everything else that cannot be read."""
    server.body = b"\xff\xfe"
    with pytest.raises(ObjectError, match="s3://data/o is no text"):
        objects_of(server).read_text("data", "o")
