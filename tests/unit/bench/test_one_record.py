"""A legal record takes the memory that is counted, and at most so many times its bytes while it is in hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.one_record import RECORDS

IN_HAND = 32  # bytes for each byte of a record while it is decoded (DESIGN 4.5)
REST_MIB = 16
ONE_BY_ONE = 12  # what decoding it piece by piece would take


def taken(name: str) -> tuple[float, float, float]:
    """Measure one in a process of its own: MiB of the record, counted, and taken at the peak."""
    line = subprocess.run(
        [sys.executable, "-m", "bench.one_record", name], check=True, capture_output=True, text=True
    ).stdout
    numbers = [float(cell) for cell in line.split("|")[2:8]]
    return numbers[0], numbers[1], numbers[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide object", "entries of users"])
def test_record_of_many_parts_is_not_kept_in_many_copies(name: str) -> None:
    """An object of 780,000 keys took 25 times its bytes, for a type that no schema has room for."""
    record_mib, counted_mib, taken_mib = taken(name)
    assert taken_mib <= counted_mib + ONE_BY_ONE * record_mib + REST_MIB


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in RECORDS if name not in {"wide object", "entries of users"}])
def test_peak_is_what_is_counted_and_the_record_in_hand(name: str) -> None:
    """All sixteen records of docs/SIZING.md."""
    record_mib, counted_mib, taken_mib = taken(name)
    assert taken_mib <= counted_mib + IN_HAND * record_mib + REST_MIB


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="an entry becomes Python's values at once, not piece by piece")
def test_entry_of_millions_of_small_values_is_taken_piece_by_piece() -> None:
    """Nested arrays of three bytes each."""
    record_mib, counted_mib, taken_mib = taken("arrays of ones")
    assert taken_mib <= counted_mib + ONE_BY_ONE * record_mib + REST_MIB
