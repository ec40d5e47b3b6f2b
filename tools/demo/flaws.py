"""Broken records: each flaw turns the encoded entries of a record into a value that is wrong somewhere.

Good neighbours stay good: a worker must still deliver them if the record can be split at all.
"""

import gzip
from collections.abc import Callable

Flaw = Callable[[list[bytes]], bytes]


def join(elements: list[bytes]) -> bytes:
    """Return the elements as one JSON array."""
    return b"[" + b",".join(elements) + b"]"


def _among(*bad: bytes) -> Flaw:
    def insert(elements: list[bytes]) -> bytes:
        middle = len(elements) // 2
        return join([*elements[:middle], *bad, *elements[middle:]])

    return insert


def _alone(bad: bytes) -> Flaw:
    return lambda _: bad


def _truncated(elements: list[bytes]) -> bytes:
    value = join(elements)
    return value[: len(value) * 2 // 3]


def _truncated_object(elements: list[bytes]) -> bytes:
    return elements[0][:-2]


def _gzip_corrupt(elements: list[bytes]) -> bytes:
    packed = bytearray(gzip.compress(join(elements), compresslevel=1, mtime=0))
    packed[len(packed) // 2] ^= 0xFF
    packed[-5] ^= 0xFF  # the check sum too, should the flipped bits happen to decode
    return bytes(packed)


def _gzip_truncated(elements: list[bytes]) -> bytes:
    return gzip.compress(join(elements), compresslevel=1, mtime=0)[:-9]


_LEVELS = 150

FLAWS: dict[str, Flaw] = {
    "invalid element": _among(b'{"user":"ann","a":}'),
    "unquoted element": _among(b'{user:"ann"}'),
    "non-object elements": _among(b"5", b'"text"', b"null", b"[1]", b"true"),
    "NaN": _among(b'{"id":"nan","user":"ann","ratio":NaN}'),
    "overflowing number": _among(b'{"id":"huge","user":"ann","ratio":1e400}'),
    "endless integer": _among(b'{"id":"digits","user":"ann","account":' + b"7" * 4500 + b"}"),
    "invalid UTF-8": _among(b'{"id":"bytes","user":"ann","message":"\xff\xfe\xc3("}'),
    "lone surrogate": _among(b'{"id":"surrogate","user":"ann","message":"\\ud800 x"}'),
    "surrogate in user": _among(b'{"id":"surrogate","user":"\\udc00"}'),
    "raw control character": _among(b'{"id":"control","user":"ann","message":"a\nb"}'),
    "too deep": _among(b'{"id":"deep","user":"ann","tree":' + b"[" * _LEVELS + b"]" * _LEVELS + b"}"),
    "truncated array": _truncated,
    "truncated object": _truncated_object,
    "trailing text": lambda elements: elements[0] + b" and more",
    "two objects": lambda elements: elements[0] + elements[0],
    "scalar": _alone(b"42"),
    "text": _alone(b"Nov 20 21:48:01 host sshd[42]: Accepted publickey for ann"),
    "empty value": _alone(b""),
    "byte order mark": lambda elements: b"\xef\xbb\xbf" + elements[0],
    "corrupt gzip": _gzip_corrupt,
    "truncated gzip": _gzip_truncated,
    "corrupt zstd": _alone(b"\x28\xb5\x2f\xfd\x04\x00garbage"),
}
