"""Which request gets which fault."""

from tools.local.s3_fault_rules import Action, Rule, Rulebook, lost_answer, slow_down


def _actions(book: Rulebook, *requests: tuple[str, str]) -> list[Action | None]:
    return [rule.action if (rule := book.take(*request)) else None for request in requests]


def test_rule_applies_to_matching_requests_only() -> None:
    book = Rulebook()
    book.add(slow_down(times=9, method="PUT", key="user=a"))

    assert _actions(book, ("GET", "/b/user=a/1"), ("PUT", "/b/user=b/1"), ("PUT", "/b/user=a/1")) == [
        None,
        None,
        Action.STATUS,
    ]


def test_rule_is_used_up() -> None:
    book = Rulebook()
    book.add(slow_down(times=2))

    assert _actions(book, *[("PUT", "/b/k")] * 3) == [Action.STATUS, Action.STATUS, None]


def test_rule_skips_first_requests() -> None:
    book = Rulebook()
    book.add(Rule(Action.DROP_REQUEST, skip=2))

    assert _actions(book, *[("PUT", "/b/k")] * 4) == [None, None, Action.DROP_REQUEST, None]


def test_rules_follow_one_another() -> None:
    book = Rulebook()
    book.add(slow_down())
    book.add(lost_answer())

    assert _actions(book, *[("PUT", "/b/k")] * 3) == [Action.STATUS, Action.DROP_ANSWER, None]


def test_done_and_seen_count_everything() -> None:
    book = Rulebook()
    book.add(slow_down(times=2))
    _actions(book, ("PUT", "/b/k"), ("GET", "/b/k"), ("PUT", "/b/k"), ("PUT", "/b/k"))
    book.clear()

    assert book.done == {Action.STATUS: 2}
    assert [(seen.method, seen.action) for seen in book.seen] == [
        ("PUT", Action.STATUS),
        ("GET", None),
        ("PUT", Action.STATUS),
        ("PUT", None),
    ]
