"""Records taken many at once, by Python, are what they are one by one; whatever comes between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.config.settings import Settings
from log_partitioner.formats.model import SourceRecord
from tests.fakes.lanes import deliver
from tests.property.test_lanes import LINES, NARROW, NOW_S, OTHER, PLAIN, TPS, logs
from tests.strategies import times_as_many


@pytest.mark.slow
@times_as_many(4)
@given(logs(), st.sampled_from([PLAIN, NARROW, OTHER, LINES]), st.integers(1, 20), st.sampled_from([2**40, 3000]))
def test_many_at_once_are_what_they_are_one_by_one(
    records: list[SourceRecord], given_settings: Settings, at_once: int, memory_max: int
) -> None:
    """Objects, what references say of them, dead letters, what is covered, and what is counted."""
    one_by_one = deliver(records, given_settings, is_fast=False, at_once=0, memory_max=memory_max)
    many = deliver(records, given_settings, is_fast=False, at_once=at_once, memory_max=memory_max)
    assert one_by_one.taken == 0
    assert many[:4] == one_by_one[:4]
    if memory_max == 2**40:
        assert many.load == one_by_one.load


def test_most_records_are_taken() -> None:
    """Also those with headers, and those around the ones that are not plain: else the test above compares nothing."""
    values = [b'{"user": "ann", "time": "2025-12-31T22:00:00Z", "n": %d}' % n for n in range(100)]
    values[10], values[20], values[30] = b"[]", b'{"user": "ann"}', b"nonsense"
    records = [
        SourceRecord(TPS[n % 3], n, NOW_S * 1000, None, value, (("trace", b"1"),) if n % 5 == 0 else (), 3)
        for n, value in enumerate(values)
    ]
    assert deliver(records, PLAIN, is_fast=False).taken == 98
    assert deliver(records, OTHER, is_fast=False).taken == 0
