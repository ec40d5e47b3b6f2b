"""Formats are registered on both sides under the names of the setting, and say whether the fast lane reads them."""

from __future__ import annotations

from typing import Any, get_args

from log_partitioner import native
from log_partitioner.batch.fast_lane import why_no_lane
from log_partitioner.config.settings import InputSettings
from log_partitioner.input.formats import FORMATS
from tests.fakes.lanes import settings
from tests.toy_format import oracle, worker

NAMES = set(get_args(InputSettings.model_fields["format"].annotation))


def test_formats_of_the_setting_are_those_of_the_worker_and_of_the_second_opinion() -> None:
    assert FORMATS["csv"] is worker.csv
    assert NAMES | {"csv"} == FORMATS.keys() == oracle.FORMATS.keys()


class AnyFormat(InputSettings):
    """The format is no setting of the product, or has a pattern."""

    format: Any
    pattern: str | None = "(?P<a>.*)"


def test_fast_lane_is_entered_for_formats_that_it_reads_alone() -> None:
    reasons = {name: why_no_lane(settings(input=AnyFormat(format=name))) for name in FORMATS}
    absent = None if native.IS_INSTALLED else "not installed"
    plain = {"json": absent, "ndjson": absent}
    framed = settings(input=InputSettings(framing="confluent"))
    assert why_no_lane(framed) == (absent or "input.framing is confluent")
    assert {name: absent or f"input.format is {name}" for name in FORMATS} | plain == reasons
