"""Formats are registered on both sides under the names of the setting, and say whether the fast lane reads them."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from log_partitioner import native
from log_partitioner.batch.fast_lane import FastLane, has_lane, why_no_lane
from log_partitioner.config.settings import InputSettings, TopicSettings, UserSettings
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
    assert {name: absent or f"input.format is {name}" for name in FORMATS} | plain == reasons


@pytest.mark.skipif(not native.IS_INSTALLED, reason="make native")
def test_fast_lane_that_some_topics_lack_is_there_for_the_others_and_says_why() -> None:
    access = TopicSettings(input=InputSettings(format="access-log"))
    kept = InputSettings(entries_path="a[]")
    local = TopicSettings(input=kept, user=UserSettings(paths=("_envelope.who",)))
    mixed = settings(topics={"access": access, "app": TopicSettings(), "local": local})
    assert has_lane(mixed)
    assert why_no_lane(mixed) == (
        "topics.access: input.format is access-log; topics.local: user.paths lead into _envelope, as envelope: does"
    )
    assert [FastLane(mixed).reads(topic) for topic in ("access", "app", "local", "other")] == [False, True, False, True]
    dropped = local.model_copy(update={"input": InputSettings(entries_path="a[]", envelope="drop")})
    plain = local.model_copy(update={"input": InputSettings()})
    assert why_no_lane(settings(topics={"dropped": dropped, "plain": plain})) is None
