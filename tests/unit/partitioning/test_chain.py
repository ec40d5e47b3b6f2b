"""The source topic chain (DESIGN 3.8): the first link, or nothing if a row could not hold it."""

import pytest

from log_partitioner.formats.model import CHAIN_HEADER, RootLink, SourceRecord, TopicPartition
from log_partitioner.partitioning.chain import root_of
from log_partitioner.proof.oracle import locate as second_opinion
from log_partitioner.proof.oracle.json_text import parse_rounding


def roots_of(*headers: tuple[str, bytes | None]) -> list[RootLink | None]:
    """Give the root of a record with these headers, by the worker and by the second opinion."""
    record = SourceRecord(TopicPartition("app", 0), 0, None, None, None, headers)
    around = second_opinion.Surroundings(record, None, parse_rounding)
    return [root_of(record), second_opinion.root_of(around)]


@pytest.mark.parametrize(
    ("value", "root"),
    [
        (b'[["raw", 3, 17]]', RootLink("raw", 3, 17)),
        (b'[["raw", 3, 17], ["mid", 0, 4]]', RootLink("raw", 3, 17)),
        (b'[["raw", 3, 17, 2]]', RootLink("raw", 3, 17, 2)),
        (b'[["raw", 3, 17, 2, "a later part is not read"]]', RootLink("raw", 3, 17, 2)),
        (b'[["raw", 3, 17, null]]', RootLink("raw", 3, 17)),
        (b'[["raw", 3, 17, 2147483647]]', RootLink("raw", 3, 17, 2**31 - 1)),
        (b'[["raw", 3, 17, 2147483648]]', None),
        (b'[["raw", 3, 17, -1]]', None),
        (b'[["raw", 3, 17, "2"]]', None),
        (b'[["raw", 3, 17], "a later link is not read"]', RootLink("raw", 3, 17)),
        pytest.param(b'[["raw", 3, 17], ' + b"9" * 4400 + b"]", RootLink("raw", 3, 17), id="a link of many digits"),
        (b'[["raw", 2147483647, 9223372036854775807]]', RootLink("raw", 2**31 - 1, 2**63 - 1)),
        (b'[["raw", 2147483648, 17]]', None),
        (b'[["raw", 3, 9223372036854775808]]', None),
        (b'[["raw", 3, -1]]', None),
        (b'[["raw", true, 17]]', None),
        (b'[["raw", 3, true]]', None),
        (b'[["raw", 3, 17, true]]', None),
        (b'[["raw", 3, 17, 7.0]]', None),
        (b'[["raw", 3, 17.5]]', None),
        (b'[["' + b"x" * 250 + b'", 3, 17]]', None),
        (b'[["raw", 3]]', None),
        (b'[{"topic": "raw"}]', None),
        (b'["raw", 3, 17]', None),
        (b"[]", None),
        (b"", None),
        (None, None),
        (b"not JSON", None),
        (b'[["\xff", 3, 17]]', None),
        (b"[" * 100_000, None),
    ],
)
def test_root_of_each_kind_of_header_is_its_first_link_or_none(value: bytes | None, root: RootLink | None) -> None:
    """A link beyond Kafka's own bounds would make a row that no Avro reader takes: it is no link."""
    assert roots_of((CHAIN_HEADER, value)) == [root] * 2


def test_root_of_a_header_that_stands_twice_is_that_of_the_last() -> None:
    """A republisher appends; headers of other names do not matter."""
    headers = ((CHAIN_HEADER, b'[["a", 0, 1]]'), (CHAIN_HEADER, b'[["b", 0, 2]]'), ("other", b'[["c", 0, 3]]'))
    assert roots_of(*headers) == [RootLink("b", 0, 2)] * 2
    assert roots_of() == [None] * 2
