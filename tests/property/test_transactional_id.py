"""No two of workers, backfills and `offsets` have one transactional id, unless prefix, group and name are the same."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from log_partitioner.config.s3_settings import S3Settings
from log_partitioner.config.settings import KafkaSettings, Settings
from tests.strategies import times_as_many

Names = tuple[str, str, str]
BYTES_MAX = 255 * 4 + 2 * 101 + len("/backfill")

parts = st.text(alphabet="a.%~/_-é2E", min_size=1, max_size=4) | st.sampled_from(
    ["logs", "logs.eu", "eu.pod-0", "pod-0", "g/backfill", "%2E", "x" * 255, "é" * 255, "é" * 254 + "e"]
)
names = st.tuples(parts, parts, parts)


def ids(one: Names) -> tuple[str, str, str, str]:
    """Give the transactional ids of a worker, of its group's backfills and replays, and of `offsets adopt`."""
    prefix, group, worker = one
    settings = Settings(
        transactional_id_prefix=prefix,
        worker=worker,
        kafka=KafkaSettings(bootstrap_servers="nowhere:1", source_topics=("app",), group_id=group),
        s3=S3Settings(bucket="bucket"),
    )
    of_group = settings.backfill_transactional_id, settings.offsets_transactional_id, settings.replay_transactional_id
    return settings.transactional_id, *of_group


@times_as_many(10)
@given(names, names)
@example(("p", "logs.eu", "pod-0"), ("p", "logs", "eu.pod-0"))
@example(("p.logs", "eu", "pod-0"), ("p", "logs.eu", "pod-0"))
@example(("p", "g", "g/backfill"), ("p", "g", "backfill"))
@example(("p", "g", "é" * 255), ("p", "g", "é" * 254 + "e"))
def test_transactional_ids_are_injective(one: Names, other: Names) -> None:
    """Equal ids are of equal names; a backfill's is never a worker's, and belongs to prefix and group alone."""
    (worker, *own), (other_worker, *others) = ids(one), ids(other)
    assert (worker == other_worker) == (one == other)
    assert (own == others) == (not {*own}.isdisjoint(others)) == (one[:2] == other[:2])
    assert {worker, other_worker}.isdisjoint({*own, *others})
    assert len({*own}) == len(own)


@given(names)
def test_transactional_id_begins_with_its_prefix_and_is_bounded(one: Names) -> None:
    """ACLs are by prefix; a name without dots stands in it as it is."""
    assert all(each.startswith(f"{one[0]}.") for each in ids(one))
    assert max(len(each.encode()) for each in ids(one)) <= BYTES_MAX
    assert ids(("log-partitioner", "my-logs", "pod-0"))[0] == "log-partitioner.my-logs.pod-0"
