"""The failures that `python -m tests.failures` makes are those of the runbook, and so are their alerts."""

import re

from tests.deployment.tools import RULES
from tests.failures.bed import FACTOR, in_less_time
from tests.failures.catalogue import FAILURES, alerts_by_row


def test_failures_are_the_rows_of_the_runbook_whose_alerts_exist() -> None:
    """A developer who adds a row there also makes its failure."""
    rules = set(re.findall(r"- alert: LogPartitioner(\w+)", RULES.read_text()))
    rows = alerts_by_row()
    assert sorted(one.row for one in FAILURES.values()) == sorted(rows)
    assert {alert for alerts in rows.values() for alert in alerts} - rules == set()


def test_rules_in_less_time_differ_by_windows_and_waits_alone() -> None:
    """Divided, and back again, they are the rules of the chart."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}

    def in_s(rules: str, factor: int) -> str:
        text = re.sub(r"(\d+)ms", lambda found: f"{round(int(found[1]) * factor / 1000)} s", rules)
        return re.sub(r"\b(\d+)([smhd])\b", lambda found: f"{int(found[1]) * units[found[2]]} s", text)

    rules = RULES.read_text()
    divided = in_less_time(rules)
    assert divided.count("ms") > len(re.findall("- alert", rules))
    assert in_s(divided, FACTOR) == in_s(rules, 1)
