"""Objects as jobs read and delete them: the version that a reference names, broken connections, bytes that are others.

The servers of the tests keep no versions (S3Proxy: 501), so a small one does here: versions, delete markers,
`If-Match`, ranges, and deletion of many, as S3 documents them; and it breaks the first bodies, if it is told to.
"""

import hashlib
import re
import threading
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.stub import Stubber
from msgspec.structs import replace

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import Checksum, Reference
from log_partitioner.proof.audit.store import Address, FetchedObject
from log_partitioner_pipeline import objects
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Content, Objects
from log_partitioner_pipeline.pieces import ReadGroup, ReferencePart, decode_share, encode_share, pieces_of
from log_partitioner_pipeline.rows import Container
from tests.pipeline.packs import KEY, Entry, write_object

OBJECT_KEY = "p/pack/b-0.avro"
WRITTEN = write_object([Entry(KEY, {"n": 1})], object_key=OBJECT_KEY)


class _Versions(ThreadingHTTPServer):
    """One bucket: the versions of each key, oldest first; one without bytes is a delete marker."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.versions: dict[str, list[tuple[str, bytes | None]]] = {}
        self.asked = self.broken = 0
        self._numbers = count()

    def put(self, content: bytes | None) -> str:
        """Put a version over the object, or a delete marker; gives its id."""
        some = self.versions.setdefault(OBJECT_KEY, [])
        some.append((f"v{next(self._numbers)}", content))
        return some[-1][0]

    def find(self, key: str, version_id: str | None) -> bytes | None:
        """Give the bytes of a version, or of the newest."""
        some = self.versions.get(key) or [("", None)]
        return some[-1][1] if version_id is None else dict(some).get(version_id)

    def delete(self, key: str, version_id: str | None) -> None:
        """Delete a version for good; without one put a delete marker over the key."""
        if version_id is None:
            self.put(None)
        else:
            self.versions[key] = [one for one in self.versions[key] if one[0] != version_id]


class _Handler(BaseHTTPRequestHandler):
    server: _Versions

    def do_GET(self) -> None:
        """Give a version, or the newest, or a part of it."""
        url = urlsplit(self.path)
        (version_id,) = parse_qs(url.query).get("versionId", [None])
        content = self.server.find(url.path.removeprefix("/data/"), version_id)
        if content is None:
            self._refuse(404, "NoSuchKey" if version_id is None else "NoSuchVersion")
        elif self.headers.get("If-Match", etag_of(content)) != etag_of(content):
            self._refuse(412, "PreconditionFailed")
        else:
            span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            part = content if span is None else content[int(span[1]) : int(span[2]) + 1]
            self.server.asked += 1
            is_broken = self.server.asked <= self.server.broken
            sent = part[: len(part) // 2] if is_broken else part
            self._answer(200 if span is None else 206, sent, {"ETag": etag_of(content)}, length=len(part))

    def do_POST(self) -> None:
        """Delete many."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for one in ET.fromstring(body).findall("{*}Object"):  # noqa: S314 - of this process
            key, version_id = one.findtext("{*}Key"), one.findtext("{*}VersionId")
            self.server.delete(key or "", version_id)
        self._answer(200, b"<DeleteResult/>", {})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str], *, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body) if length is None else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def etag_of(content: bytes) -> str:
    """Make an etag as S3 does."""
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


@pytest.fixture
def bucket() -> Iterator[_Versions]:
    """A bucket with versions on a free port."""
    with _Versions() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def objects_of(bucket: _Versions) -> Objects:
    """Objects in that bucket."""
    url = f"http://127.0.0.1:{bucket.server_address[1]}"
    settings = {"bucket": "data", "endpoint_url": url, "access_key": "a", "secret_key": "s"}
    return Objects(S3Settings.model_validate(settings))


def reference(version_id: str | None) -> Reference:
    """Give the reference into the object, which names this version of it."""
    (one,) = WRITTEN.references
    return replace(one, location=replace(one.location, version_id=version_id, etag=etag_of(WRITTEN.content)))


def shared(*references: Reference) -> list[ReadGroup]:
    """Give the pieces of references as a task gets them."""
    return decode_share(encode_share(pieces_of(references)))


def rows_of(bucket: _Versions, version_id: str | None) -> int:
    """Count the rows that a job reads."""
    (piece,) = shared(reference(version_id))
    container = Container(objects_of(bucket).read(piece), piece.where)
    return sum(len(block.rows) for part in piece.parts for block in container.blocks_of(part))


@pytest.mark.parametrize("later", [b"another object", None])
def test_version_that_the_reference_names_is_read(bucket: _Versions, later: bytes | None) -> None:
    """Overwritten, or behind a delete marker: the audit reads that version, and so does every job."""
    version_id = bucket.put(WRITTEN.content)
    bucket.put(later)
    address = Address("data", OBJECT_KEY, version_id)
    assert objects_of(bucket).fetch(address) == FetchedObject(WRITTEN.content, etag_of(WRITTEN.content))
    assert rows_of(bucket, version_id) == 1


def test_part_of_a_version_is_read(bucket: _Versions) -> None:
    """A range of bytes is one of that version, too."""
    (piece,) = shared(reference(bucket.put(WRITTEN.content)))
    bucket.put(b"another object")
    assert objects_of(bucket)._span(piece, 4, 10) == WRITTEN.content[4:14]


def test_version_that_is_gone(bucket: _Versions) -> None:
    """The newest one is not taken in its place, though it has the same bytes."""
    version_id = bucket.put(WRITTEN.content)
    bucket.put(WRITTEN.content)
    bucket.delete(OBJECT_KEY, version_id)
    with pytest.raises(ObjectError, match="is referenced and not there"):
        rows_of(bucket, version_id)


def test_reference_without_a_version(bucket: _Versions) -> None:
    """The newest is read, and its etag tells whether it is the object that was referenced."""
    bucket.put(WRITTEN.content)
    assert rows_of(bucket, None) == 1
    bucket.put(b"another object")
    with pytest.raises(ObjectError, match="is not the object that was referenced"):
        rows_of(bucket, None)


def test_versions_of_one_key_are_two_objects() -> None:
    """They share no piece."""
    pieces = shared(reference("v0"), replace(reference("v1"), reference_id="other"))
    assert [piece.version_id for piece in pieces] == ["v0", "v1"]


def test_deletion_takes_the_named_version_only(bucket: _Versions) -> None:
    """A later version stays; a deletion that names no version hides the key, and frees no byte."""
    first, second = bucket.put(WRITTEN.content), bucket.put(b"another object")
    store = objects_of(bucket)
    store.delete([Address("data", OBJECT_KEY, first)])
    assert (store.fetch(Address("data", OBJECT_KEY, first)), bucket.find(OBJECT_KEY, None)) == (None, b"another object")
    store.delete([Address("data", OBJECT_KEY)])
    assert store.fetch(Address("data", OBJECT_KEY)) is None
    assert bucket.find(OBJECT_KEY, second) == b"another object"


# A connection that breaks inside the body of an object, and bytes that are others.

BODY = b"0123456789"
PART = ReferencePart("r", PartitionKey("u", "2026-03-04", 5), 1, ((0, len(BODY)),), 0)
CHECKSUM = Checksum("sha256", hashlib.sha256(BODY).hexdigest())
WHOLE = ReadGroup("data", OBJECT_KEY, None, None, len(BODY), CHECKSUM, "", ("null",), (PART,))


def test_broken_body_is_read_again(bucket: _Versions) -> None:
    """Twice it breaks, then it comes, for `read` as for `fetch`."""
    bucket.put(BODY)
    bucket.broken = 2
    assert objects_of(bucket).read(WHOLE) == Content(((0, BODY),))
    bucket.asked = 0
    stored = objects_of(bucket).fetch(Address("data", OBJECT_KEY))
    assert (stored and stored.data, bucket.asked) == (BODY, 3)


def test_body_that_stays_broken(bucket: _Versions) -> None:
    """Not for ever: an error that names the object."""
    bucket.put(BODY)
    bucket.broken = 100
    with pytest.raises(ObjectError, match=r"s3://data/p/pack/b-0\.avro"):
        objects_of(bucket).read(WHOLE)
    assert bucket.asked == 3


def test_spans_of_an_object_give_what_lies_in_one_of_them() -> None:
    """Bytes between the spans, or beyond their ends, are an error."""
    content = Content(((0, b"0123"), (8, b"89ab")))
    assert (content.of(1, 3), content.of(8, 4)) == (b"123", b"89ab")
    for start, length in ((2, 3), (5, 1), (7, 2), (11, 2)):
        with pytest.raises(ValueError, match=f"no {length} bytes at {start}"):
            content.of(start, length)


def test_what_is_under_way_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch, bucket: _Versions) -> None:
    """In order, as many as there are threads for, and fewer if they are large; one too large goes alone."""
    monkeypatch.setattr("log_partitioner_pipeline.objects._AHEAD_BYTES_MAX", 10)
    begun: list[int] = []

    def take(size: int) -> int:
        begun.append(size)
        return size

    given = objects_of(bucket).ahead(take, [4, 4, 4, 50, 1], size_of=lambda size: size)
    assert next(given) == 4
    assert 50 not in begun
    assert list(given) == [4, 4, 50, 1]


@pytest.mark.parametrize("checksum", [CHECKSUM, Checksum("crc32", f"{zlib.crc32(BODY):08x}")])
def test_altered_bytes_of_a_whole_object_are_refused(bucket: _Versions, checksum: Checksum) -> None:
    """As many bytes, with one bit turned: without compression they might be rows of other values."""
    bucket.put(BODY)
    whole = replace(WHOLE, checksum=checksum)
    assert objects_of(bucket).read(whole) == Content(((0, BODY),))
    bucket.put(b"0123456788")
    with pytest.raises(ObjectError, match=rf"s3://data/p/pack/b-0\.avro .* {checksum.algorithm} .* {checksum.value}"):
        objects_of(bucket).read(whole)


def test_an_unknown_checksum_is_no_proof(bucket: _Versions) -> None:
    """A newer version of this code may have written it: the reader refuses it and does not pass it over."""
    bucket.put(BODY)
    with pytest.raises(ObjectError, match=r"s3://data/p/pack/b-0\.avro .*unknown algorithm crc64nvme"):
        objects_of(bucket).read(replace(WHOLE, checksum=Checksum("crc64nvme", "00")))


def test_bytes_of_a_part_have_no_checksum_of_their_own(bucket: _Versions) -> None:
    """The checksum is that of all bytes: the audit, which reads all of them, proves the bytes of a span."""
    bucket.put(b"0123456788")
    part = replace(PART, ranges=((0, 4),))
    assert objects_of(bucket).read(replace(WHOLE, parts=(part,))) == Content(((0, b"0123"),))


def test_schema_that_is_no_text(bucket: _Versions) -> None:
    """The error names it, as it names every object that cannot be read."""
    bucket.put(b"\xff\xfe")
    with pytest.raises(ObjectError, match=r"s3://data/p/pack/b-0\.avro is no text"):
        objects_of(bucket).read_text("data", OBJECT_KEY)


# Objects are deleted a thousand at a time; a refused one is asked for again, and then an error.


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Objects, Stubber]]:
    """Objects of a client that answers what it is told."""
    monkeypatch.setattr(objects, "_DELETE_AGAIN_S", 0)
    settings = {"bucket": "data", "endpoint_url": "http://127.0.0.1:1", "access_key": "a", "secret_key": "s"}
    store = Objects(S3Settings.model_validate(settings))
    with Stubber(store._client) as stubber:
        yield store, stubber


def expect(stubber: Stubber, keys: list[str], *, refused: dict[str, str] | None = None) -> None:
    """Expect a request for these keys; some are refused, with a code."""
    asked = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
    errors = [{"Key": key, "Code": code, "Message": "no"} for key, code in (refused or {}).items()]
    stubber.add_response("delete_objects", {"Errors": errors}, {"Bucket": "data", "Delete": asked})


def addresses(keys: list[str]) -> list[tuple[str, str, str | None]]:
    """Give keys as addresses."""
    return [("data", key, None) for key in keys]


def test_more_than_s3_takes_at_once(stubbed: tuple[Objects, Stubber]) -> None:
    """Two requests for 1001 objects."""
    store, stubber = stubbed
    keys = [f"{number}" for number in range(1001)]
    expect(stubber, keys[:1000])
    expect(stubber, keys[1000:])
    store.delete(addresses(keys))
    stubber.assert_no_pending_responses()


def test_refused_once(stubbed: tuple[Objects, Stubber]) -> None:
    """Only refused objects are asked for again; an absent object counts as deleted."""
    store, stubber = stubbed
    expect(stubber, ["a", "b", "c"], refused={"b": "InternalError", "c": "NoSuchKey"})
    expect(stubber, ["b"])
    store.delete(addresses(["a", "b", "c"]))
    stubber.assert_no_pending_responses()


def test_refused_for_good(stubbed: tuple[Objects, Stubber]) -> None:
    """The error names an object, and why."""
    store, stubber = stubbed
    for _ in range(objects._DELETE_ATTEMPTS):
        expect(stubber, ["a"], refused={"a": "AccessDenied"})
    with pytest.raises(ObjectError, match=r"1 objects of data cannot be deleted, the first is a: AccessDenied no"):
        store.delete(addresses(["a"]))


def test_lifecycle_rules_are_told_by_the_store(stubbed: tuple[Objects, Stubber]) -> None:
    """A bucket without rules has none; a store that cannot tell them, or forbids it, leaves them unknown."""
    store, stubber = stubbed
    rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "p/"}, "Expiration": {"Days": 3}}
    call = "get_bucket_lifecycle_configuration"
    stubber.add_response(call, {"Rules": [rule]}, {"Bucket": "data"})
    assert store.lifecycle("data") == [rule]
    for code, rules in (("NoSuchLifecycleConfiguration", []), ("AccessDenied", None), ("NotImplemented", None)):
        stubber.add_client_error(call, code, expected_params={"Bucket": "data"})
        assert store.lifecycle("data") == rules
