"""Which request gets which fault."""

import pytest

from tools.local.s3_fault_rules import Action, Rule, Rulebook, lost_answer, slow_down

PUT, GET = ("PUT", "/b/user=a/1"), ("GET", "/b/user=a/1")
STATUS, DROP = Action.STATUS, Action.DROP_ANSWER


@pytest.mark.parametrize(
    ("rules", "requests", "actions"),
    [
        ([slow_down(times=9, key="user=a")], [GET, ("PUT", "/b/user=b/1"), PUT], [None, None, STATUS]),
        ([slow_down(times=2)], [PUT, GET, PUT, PUT], [STATUS, None, STATUS, None]),
        ([slow_down(), lost_answer()], [PUT] * 3, [STATUS, DROP, None]),
    ],
    ids=["match", "are used up", "follow one another"],
)
def test_rules_say_what_is_done_to_a_request(
    rules: list[Rule], requests: list[tuple[str, str]], actions: list[Action | None]
) -> None:
    """The first that matches and is not used up decides; the counts stay when the rules are cleared."""
    book = Rulebook()
    for rule in rules:
        book.add(rule)
    taken = [book.take(*request) for request in requests]
    assert [rule and rule.action for rule in taken] == actions
    book.clear()
    assert [(one.method, one.path) for one in book.seen] == requests
    assert [one.action for one in book.seen] == actions
    assert book.done.total() == len([one for one in actions if one])
