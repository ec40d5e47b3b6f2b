"""A worker without a part in its group ends in time; one that was stopped meanwhile has not looked."""

from __future__ import annotations

import pytest

from log_partitioner.errors import SourceError
from log_partitioner.runtime.participation import Participation


def looked(*times_s: float) -> Participation:
    """Look at these times, with no part in the group since the beginning; 600 s are waited."""
    participation = Participation(without_max_s=600.0, now_s=0.0)
    for now_s in times_s:
        participation.look(now_s, "the group has not answered")
    return participation


def test_worker_that_looks_all_the_time_ends_in_time() -> None:
    """Also where a flush, or a question to brokers that do not answer, takes minutes."""
    with pytest.raises(SourceError, match="no part in the group for 600 s"):
        looked(*range(1, 601))
    with pytest.raises(SourceError, match="no part in the group for 600 s"):
        looked(*range(120, 601, 120))


def test_worker_that_was_stopped_for_long_has_its_time_anew() -> None:
    """Nobody asked for its membership meanwhile; the time begins at the first look afterwards."""
    looked(1.0, 5000.0, *range(5001, 5600))
    with pytest.raises(SourceError, match="no part in the group for 600 s"):
        looked(1.0, *range(5000, 5601))
