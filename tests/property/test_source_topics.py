"""A pattern of source topics means the same to the client library (POSIX), to brokers (RE2) and to Python."""

from __future__ import annotations

import ctypes
import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from log_partitioner.config.source_topics import SourceNames, entries_of

EXTENDED, NOSUB = 1, 8  # of glibc and musl
C = ctypes.CDLL(None)


def posix_search(pattern: str, topic: str) -> bool:
    """Search as librdkafka does (`rdregex.c`)."""
    compiled = ctypes.create_string_buffer(1024)  # a regex_t takes 64
    assert C.regcomp(compiled, pattern.encode(), EXTENDED | NOSUB) == 0, pattern
    try:
        return bool(C.regexec(compiled, topic.encode(), 0, None, 0) == 0)
    finally:
        C.regfree(compiled)


def _repeated(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from(["", "", "*", "+", "?"])).map("".join)


def _several(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.lists(inner, min_size=1, max_size=3).map("".join)


def _either(inner: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda some: f"({'|'.join(some)})")


ATOMS = st.sampled_from(["a", "b", "1", "-", "_", ".", r"\.", "[ab]", "[^a]", "[a-b1]", "[.b]", "[a-]", "[^.a-b-]"])
PATTERNS = st.recursive(_repeated(ATOMS), lambda inner: _several(inner) | _repeated(_either(inner)), max_leaves=6)
ENTRIES = st.tuples(st.lists(PATTERNS, min_size=1, max_size=2).map("|".join), st.sampled_from(["", "$"]))
TOPICS = st.text("ab1-._", min_size=1, max_size=5)


@given(ENTRIES, st.lists(TOPICS, min_size=1, max_size=20))
def test_pattern_means_the_same_to_library_brokers_and_us(entry: tuple[str, str], topics: list[str]) -> None:
    """Brokers match all of a name against every pattern of a member in parentheses; the library searches."""
    (pattern,) = entries_of(("^" + "".join(entry),))
    names = SourceNames([pattern])
    (subscribed,) = names.subscription()
    for topic in topics:
        expected = topic in names
        assert expected == posix_search(subscribed, topic), (pattern, topic)
        assert expected == bool(re2.fullmatch(f"({subscribed})", topic)), (pattern, topic)


@pytest.mark.parametrize(
    "pattern",
    ["^", "^*", "^a**", "^a+?", "^(?:b)", "^(a|)", "^()", "^|a", "^a|", "^a||b", "^[a-z", "^[]a]", "^[z-a]",
     "^[[:alpha:]]", r"^a\d", r"^\w", r"^a\-b", "^a{2}", "^a)", "^(a", "^a^b", "^a$b", "^a b", "^ä", "^a\n"],
)  # fmt: skip
def test_pattern_that_not_all_read_alike_is_refused(pattern: str) -> None:
    """POSIX has no escapes of letters, Python no classes by name, and braces and commas would part a list."""
    with pytest.raises(ValueError, match=re.escape(f"has {pattern}, which is no pattern")):
        entries_of(("app", pattern))


def test_names_and_patterns_say_which_topics_are_meant() -> None:
    """A named one is, there or not; a pattern matches all of a name, and none that is named counts twice."""
    names = SourceNames(["web", "^app-[a-z]+", "app-b"])
    assert ["web" in names, "app-x" in names, "app-x1" in names, "x-app-x" in names] == [True, True, False, False]
    assert names.among(["app-z", "app-b", "app-a", "app-1", "references"]) == ["web", "app-b", "app-a", "app-z"]
    assert names.subscription() == ["web", "^(^app-[a-z]+)$", "app-b"]
