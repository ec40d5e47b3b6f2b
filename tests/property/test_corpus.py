"""Inputs that a fuzzer found, of each format: each of them runs other code (`fuzz_formats`)."""

from __future__ import annotations

import pytest

from tests.property.fuzzed import FORMATS, judge, kept_inputs


@pytest.mark.parametrize("format_", FORMATS)
def test_kept_input_of_a_fuzzer_is_read_as_the_second_opinion_says(format_: str) -> None:
    """Entries, rows, dead letters; and no input takes more than a second, or more memory than a record may."""
    inputs = kept_inputs(format_)
    assert inputs
    for data in inputs:
        judge(format_, data)
