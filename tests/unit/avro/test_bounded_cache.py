"""The cache that weighs what it keeps."""

from log_partitioner.avro.bounded_cache import BoundedCache


def cache_of(made: list[str], weight_max: int) -> BoundedCache[str, str]:
    """Make a cache of texts that weigh their length, and a list of what was made."""

    def make(key: str) -> str:
        made.append(key)
        return key.upper()

    return BoundedCache(make, weigh=len, weight_max=weight_max)


def test_value_asked_for_again_is_not_made_again() -> None:
    """A kept value costs nothing the second time."""
    made: list[str] = []
    cache = cache_of(made, 10)
    assert [cache.get("aa"), cache.get("aa")] == ["AA", "AA"]
    assert made == ["aa"]


def test_values_used_longest_ago_go_first_when_weight_runs_out() -> None:
    """The bound holds for the sum of weights, whatever their number."""
    made: list[str] = []
    cache = cache_of(made, 6)
    for key in ("aa", "bb", "cc", "aa", "dd", "aa", "bb"):
        cache.get(key)
        assert cache.weight <= 6
    assert made == ["aa", "bb", "cc", "dd", "bb"]


def test_value_heavier_than_the_bound_is_made_but_not_kept() -> None:
    """A single hostile schema does not stay."""
    made: list[str] = []
    cache = cache_of(made, 3)
    assert cache.get("heavy") == "HEAVY"
    assert cache.weight == 0
    cache.get("heavy")
    assert made == ["heavy", "heavy"]
