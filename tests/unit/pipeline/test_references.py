"""References from their topic: what is none stops with a word for a person, schemas are kept within a bound."""

from typing import cast

import msgspec
import pytest
from pyspark.sql import Row

from pipeline.errors import PipelineError
from pipeline.objects import Objects
from pipeline.references import MessageAt, SchemaTexts, decode, time_spans
from service.core.reference import SchemaLocation
from tests.fakes.references import REFERENCE


class Store:
    """Schemas whose text is their key, and how often they were read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def read_text(self, _bucket: str, key: str) -> str:
        """Read a schema."""
        self.read.append(key)
        return key


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"reference_id":"\xff"}'])
def test_what_is_no_reference(value: bytes | None) -> None:
    """A message without a value, or with bytes that are no text, is named by its place."""
    with pytest.raises(PipelineError, match="partition 2 offset 7"):
        decode([MessageAt.of(Row(partition=2, offset=7, value=value))])


def test_schemas_are_kept_within_a_bound() -> None:
    """A driver runs for weeks, and a hostile client has a new schema every minute."""
    store = Store()
    texts = SchemaTexts(cast("Objects", store), chars_max=8)

    def ask(*names: str) -> dict[str, str]:
        return texts.of(msgspec.structs.replace(REFERENCE, schema=SchemaLocation(name, name)) for name in names)

    assert ask("aaaa", "bbbb", "aaaa") == {"aaaa": "aaaa", "bbbb": "bbbb"}
    assert ask("aaaa", "bbbb") == {"aaaa": "aaaa", "bbbb": "bbbb"}
    assert store.read == ["aaaa", "bbbb"]
    ask("cccc", "bbbb", "aaaa")
    assert store.read == ["aaaa", "bbbb", "cccc", "aaaa"]


def test_spans_of_event_times() -> None:
    """Every entry is in one; of too many the closest are joined."""

    def spans(*times: tuple[int, int], spans_max: int = 20) -> list[tuple[int, int]]:
        made = [
            msgspec.structs.replace(REFERENCE, event_time_min_us=first, event_time_max_us=last) for first, last in times
        ]
        return time_spans(made, spans_max=spans_max)

    assert spans() == []
    assert spans((5, 9), (0, 1), (1, 2), (6, 7)) == [(0, 2), (5, 9)]
    assert spans((100, 101), (0, 1), (3, 4), (50, 50), (52, 53), spans_max=3) == [(0, 4), (50, 53), (100, 101)]
    assert spans((100, 101), (0, 1), (50, 50), spans_max=1) == [(0, 101)]
