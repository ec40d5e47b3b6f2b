"""A bucket that keeps versions: jobs read and delete the version that a reference names, whatever became of the key.

The servers of the tests keep none (S3Proxy: 501), so a small one does here: versions, delete markers, `If-Match`,
ranges, and deletion of many, as S3 documents them.
"""

import hashlib
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.errors import ObjectError
from log_partitioner_pipeline.objects import Objects, Stored
from log_partitioner_pipeline.pieces import ReadGroup, decode_share, encode_share, pieces_of
from log_partitioner_pipeline.rows import Container
from tests.pipeline.packs import KEY, Entry, write_object

OBJECT_KEY = "p/pack/b-0.avro"
WRITTEN = write_object([Entry(KEY, {"n": 1})], object_key=OBJECT_KEY)


class _Versions(ThreadingHTTPServer):
    """One bucket: the versions of each key, oldest first; one without bytes is a delete marker."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.versions: dict[str, list[tuple[str, bytes | None]]] = {}
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
            self._answer(200 if span is None else 206, part, {"ETag": etag_of(content)})

    def do_POST(self) -> None:
        """Delete many."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for one in ET.fromstring(body).findall("{*}Object"):  # noqa: S314 - of this process
            key, version_id = one.findtext("{*}Key"), one.findtext("{*}VersionId")
            self.server.delete(key or "", version_id)
        self._answer(200, b"<DeleteResult/>", {})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
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
    return Objects(S3Settings.model_validate(settings), threads=1)


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
    address = ("data", OBJECT_KEY, version_id)
    assert objects_of(bucket).fetch(address) == Stored(WRITTEN.content, etag_of(WRITTEN.content))
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
    """What was put over it stays; a deletion that names no version hides the key, and frees no byte."""
    first, second = bucket.put(WRITTEN.content), bucket.put(b"another object")
    store = objects_of(bucket)
    store.delete([("data", OBJECT_KEY, first)])
    assert (store.fetch(("data", OBJECT_KEY, first)), bucket.find(OBJECT_KEY, None)) == (None, b"another object")
    store.delete([("data", OBJECT_KEY, None)])
    assert store.fetch(("data", OBJECT_KEY, None)) is None
    assert bucket.find(OBJECT_KEY, second) == b"another object"
