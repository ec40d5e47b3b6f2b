"""The replay of files: every compression, any grouping, lines untouched."""

import gzip
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from service import zstd
from tools.demo.replay import evenly_from_ms, read_lines, replay, take_entries

LINES = [b'{"a":1}', b'{"a":  2}', b"not json \xff", b'{"a":3}', b'{"a":4}']
TEXT = b'{"a":1}\n{"a":  2}\r\n\nnot json \xff\n{"a":3}\n{"a":4}'


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.ndjson", bytes), ("a.log", bytes), ("a.ndjson.gz", gzip.compress), ("a.ndjson.zst", zstd.compress)],
)
def test_read_lines_any_compression_gives_the_lines(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    """Lines come without their ends and without blank ones, else byte for byte."""
    path = tmp_path / name
    path.write_bytes(pack(TEXT))

    assert list(read_lines(path)) == LINES


def test_read_lines_zstd_with_long_window(tmp_path: Path) -> None:
    """Files made with a window of 2^27 are read, as real data sets come so."""
    path = tmp_path / "long.ndjson.zst"
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {parameter.window_log: 27, parameter.enable_long_distance_matching: 1}
    with zstd.open_file(path, "wb", options=options) as packed:
        packed.write(TEXT)

    assert list(read_lines(path)) == LINES


def test_replay_groups_lines_to_arrays(tmp_path: Path) -> None:
    """Several lines make one array; the last record of a file may be smaller."""
    path = tmp_path / "a.ndjson"
    path.write_bytes(b'{"a":1}\n{"a":2}\n{"a":3}\n')

    records = list(replay([path, path], entries_per_record=2, timestamps_ms=evenly_from_ms(1000, 10)))

    expected = [b'[{"a":1},{"a":2}]', b'[{"a":3}]'] * 2
    assert expected == [record.value for record in records]
    assert [record.entries for record in records] == [2, 1, 2, 1]
    assert [record.timestamp_ms for record in records] == [1000, 1010, 1020, 1030]


def test_replay_single_lines_are_untouched(tmp_path: Path) -> None:
    """By default a line is a record, whatever it holds."""
    path = tmp_path / "a.log"
    path.write_bytes(TEXT)

    assert [record.value for record in replay([path])] == LINES


def test_take_entries_stops_at_the_number(tmp_path: Path) -> None:
    """No record begins after the number is reached; a record is never cut."""
    path = tmp_path / "a.ndjson"
    path.write_bytes(TEXT)

    taken = take_entries(replay([path], entries_per_record=2, timestamps_ms=count()), 3)

    assert [record.entries for record in taken] == [2, 2]
