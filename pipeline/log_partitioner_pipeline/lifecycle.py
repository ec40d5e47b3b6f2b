"""On which day do a bucket's lifecycle rules delete an object? Pure: rules, key, time -> day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

Rule = Mapping[str, Any]
"""A rule of `GetBucketLifecycleConfiguration`."""

_DAY = timedelta(days=1)


def deleted_on(rules: Iterable[Rule], key: str, *, created_at: datetime) -> date | None:
    """Return the day (UTC) on which the first of these rules deletes an object; None if none ever does.

    S3 counts whole days, and ends at the midnight after. A rule that also asks for tags or a size is taken as one that
    does not apply: the object may go earlier, and not later.
    """
    days = []
    for rule in rules:
        condition, expiration = rule.get("Filter", {}), rule.get("Expiration", {})
        is_by_prefix = not condition.keys() - {"Prefix"}
        prefix = condition.get("Prefix", rule.get("Prefix", ""))
        if rule["Status"] == "Enabled" and is_by_prefix and key.startswith(prefix):
            if "Date" in expiration:
                days.append(expiration["Date"].date())
            elif "Days" in expiration:
                days.append(created_at.astimezone(UTC).date() + timedelta(days=expiration["Days"]) + _DAY)
    return min(days, default=None)
