r"""The fields of a log entry as paths: what a person may write for the user, the time or the id.

A path is what LOGP_USER__PATHS takes: keys with dots between them, `\.` for a dot inside a key.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping

from log_partitioner import zstd

_DEPTH_MAX = 16  # deeper ones are values here
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def find_entry(value: bytes | None, index: int = 0) -> Mapping[str, object] | None:
    """Return the entry of this number in a record (an object, an array, lines); None if none can be read."""
    try:
        text = _decompress(value or b"")
        try:
            found = json.loads(text)
        except ValueError:  # lines of JSON
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        entries = found if isinstance(found, list) else [found]
        entry = entries[index]
    except (ValueError, OSError, EOFError, IndexError, RecursionError, zlib.error, zstd.ZstdError):
        return None
    return entry if isinstance(entry, dict) else None


def name_fields(entry: Mapping[str, object]) -> list[str]:
    """Return the paths of all values of an entry, in its order; an array or an empty object is a value."""
    return list(_walk(entry, "", _DEPTH_MAX))


def _walk(entry: Mapping[str, object], prefix: str, depth: int) -> Iterator[str]:
    for key, value in entry.items():
        if not key:
            continue  # an empty key cannot be written as a path
        path = prefix + key.replace(".", r"\.")
        if isinstance(value, dict) and value and depth > 1:
            yield from _walk(value, f"{path}.", depth - 1)
        else:
            yield path


def _decompress(value: bytes) -> bytes:
    if value.startswith(_GZIP):
        return gzip.decompress(value)
    return zstd.decompress(value) if value.startswith(_ZSTD) else value
