"""The place of an entry: user, event time, date, hour; and users as paths (DESIGN 3.1, 4.5)."""

from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from log_partitioner.config.settings import IdSettings, TimeSettings, UserSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.formats.model import PartitionKey, SourceRecord, TopicPartition
from log_partitioner.formats.object_key import key_safe
from log_partitioner.formats.values import Bytes, Decimal, DeclaredMap, Timestamp
from log_partitioner.partitioning.partitioner import USER_CHARS_MAX, Partitioner, Placement, Rejection
from tests.fakes.lanes import assert_judged_alike, settings

NOON_MS = 1_714_564_800_000  # 2024-05-01T12:00:00Z
RECORD = SourceRecord(TopicPartition("app", 0), 5, NOON_MS + 1, b"key-user", None, (("id", b"h1"),))


def place(
    entry: dict[str, Any],
    *,
    envelope: Any = None,
    missing_user: str | None = None,
    missing_time: Any = "record-timestamp",
) -> Any:
    """Place one entry, as the second opinion does, too."""
    rules = settings(
        user=UserSettings(paths=("user", "account.id", "envelope:user"), missing_name=missing_user),
        time=TimeSettings(paths=("time", "ts", "envelope:time"), missing=missing_time),
        id=IdSettings(paths=("id", "header:id")),
    )
    placed = Partitioner(rules).partition(entry, envelope, RECORD)
    assert_judged_alike(placed, entry, envelope, RECORD, rules)
    return placed


def test_entry_with_all_it_takes_is_placed_by_user_date_and_hour() -> None:
    """The usual case."""
    placed = place({"user": "ann", "time": "2024-05-01T12:34:56.789Z", "id": "x1"})
    expected = PartitionKey("ann", "2024-05-01", 12)
    assert placed == Placement(expected, NOON_MS * 1000 + 2_096_789_000, "x1", fallback_time=False)


@pytest.mark.parametrize(
    ("entry", "user"),
    [
        ({"user": "ann"}, "ann"),
        ({"user": " "}, " "),
        ({"user": -(2**70)}, str(-(2**70))),
        ({"user": "-", "account": {"id": "bob"}}, "bob"),
        ({"user": ["ann"], "account": {"id": 7}}, "7"),
        ({"user": {"name": "ann"}}, "eve"),
        ({"user": 42.0}, "42"),
        ({"user": -0.0}, "0"),
        ({"user": 7.5}, "eve"),
        ({"user": ""}, "eve"),
        ({"user": 2.0**53}, "9007199254740992"),
        ({"user": 2.0**53 + 2}, "eve"),  # doubles beyond are not each one integer
        ({"user": msgspec.Raw(b"1e400")}, "eve"),
        ({"user": msgspec.Raw(b"7" * 4500)}, None),
        ({"user": Decimal("42")}, "42"),
        ({"account": DeclaredMap(id="bob")}, "bob"),
        ({}, "eve"),
    ],
)
def test_user_is_the_first_that_a_path_yields(entry: dict[str, Any], user: str | None) -> None:
    """Strings and integers name a user; `user.no_values` and values of other types are passed over."""
    placed = place(entry, envelope={"user": "eve"})
    assert (placed.key.user if isinstance(placed, Placement) else None) == user


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, ""),
        ({"user": 1.5, "account": {"id": True}}, ": user is no integer, account.id is true or false"),
        ({"user": "-", "account": {"id": ["ann"]}}, ": user is in user.no_values, account.id is an array"),
    ],
)
def test_entry_without_a_user_says_what_stands_at_the_paths_or_gets_the_configured_name(
    entry: dict[str, Any], why: str
) -> None:
    """The policy decides; the reason tells the kind of the values there, never the values."""
    assert place(entry) == Rejection(Reason.NO_USER, f"no path of user.paths yields a user{why}")
    assert place(entry, missing_user="unknown").key.user == "unknown"


def test_user_that_is_too_long_is_none_under_either_policy() -> None:
    """No user's entries are put under a name that stands for others."""
    assert place({"user": "x" * USER_CHARS_MAX}).key.user == "x" * USER_CHARS_MAX
    for missing_user in (None, "unknown"):
        dead = place({"user": "x" * (USER_CHARS_MAX + 1)}, missing_user=missing_user)
        assert dead == Rejection(Reason.NO_USER, "a user of 4097 characters, the limit is 4096")


@pytest.mark.parametrize(
    "entry",
    [{}, {"time": "nonsense"}, {"time": "9999-12-31T23:59:59Z"}, {"time": 10**30},
     {"time": "1970-01-01T00:00:00Z", "ts": "2024-05-01T10:00:00Z"}],
)  # fmt: skip
def test_entry_whose_time_is_missing_or_absurd_gets_the_records_or_is_dead(entry: dict[str, Any]) -> None:
    """By policy: Kafka's timestamp, marked as a stand-in, or a dead letter; an absurd time ends the search."""
    placed = place({"user": "ann", **entry})
    assert (placed.event_time_us, placed.key.hour, placed.fallback_time) == ((NOON_MS + 1) * 1000, 12, True)
    dead = place({"user": "ann", **entry}, missing_time="dead-letter")
    assert dead.reason is Reason.NO_EVENT_TIME


def test_time_that_no_rule_reads_is_looked_for_at_the_next_path() -> None:
    """Several candidate fields: the first readable one counts."""
    assert place({"user": "ann", "time": "soon", "ts": "2024-05-01T10:00:00Z"}).key.hour == 10
    assert place({"user": "ann", "time": Bytes(""), "ts": Timestamp("2024-05-01T10:00:00.000000Z")}).key.hour == 10
    assert place({"user": "ann"}, envelope={"time": "2024-05-01T09:00:00Z"}).key.hour == 9


@pytest.mark.parametrize(
    ("entry", "unique_id"),
    [({"id": "a"}, "a"), ({"id": 2**64}, str(2**64)), ({"id": ""}, ""), ({"id": 1.5}, "h1"), ({}, "h1"),
     ({"id": msgspec.Raw(b"-" + b"7" * 5000)}, "-" + "7" * 5000)],
)  # fmt: skip
def test_unique_id_is_the_first_text_or_integer_of_its_paths(entry: dict[str, Any], unique_id: str) -> None:
    """An id of any size is carried as text."""
    assert place({"user": "ann", **entry}).unique_id == unique_id


@pytest.mark.parametrize(
    ("user", "encoded"),
    [("Ann_b-c", "Ann_b-c"), ("../../x", "%2E%2E%2F%2E%2E%2Fx"), ("%2e", "%252e"), ("a\r\n\0", "a%0D%0A%00"),
     ("~", "%7E"), ("2001:db8::1", "2001%3Adb8%3A%3A1"), ("e\u0301", "e%CC%81"), ("\u202e", "%E2%80%AE"), ("", "")],
)  # fmt: skip
def test_user_of_each_awkward_kind_is_safe_in_a_path_and_reads_back(user: str, encoded: str) -> None:
    """Hostile users (DESIGN 4.5): traversal, separators, control characters, lookalikes."""
    assert key_safe(user) == encoded
    assert unquote(encoded) == user


def test_user_beyond_the_bound_is_a_prefix_and_a_hash() -> None:
    """Such a path only identifies; twins that differ at the end differ in the hash."""
    one, other = key_safe("x" * 10_000 + "a"), key_safe("x" * 10_000 + "b")
    assert one != other
    assert one[:67] == other[:67] == "x" * 67
    assert (len(one), one[67]) == (100, "~")
    assert key_safe("x" * 100) == "x" * 100
    assert "~" in key_safe("x" * 101)
