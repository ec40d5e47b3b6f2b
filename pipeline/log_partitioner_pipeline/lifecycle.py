"""Until when do a bucket's lifecycle rules keep an object? Pure: rules, key, time -> words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Rule = Mapping[str, Any]
"""A rule of `GetBucketLifecycleConfiguration`."""


def end_of(rules: Iterable[Rule] | None, key: str, *, created_at: datetime) -> str:
    """Say on which day (UTC) the first of these rules deletes an object; `rules` is None if nobody knows them.

    S3 counts whole days, and ends at the midnight after. A rule that also asks for tags or a size is taken as one that
    does not apply: the object may go earlier, and not later.
    """
    if rules is None:
        return "the store does not tell its lifecycle"
    days = []
    for rule in rules:
        condition, expiration = rule.get("Filter", {}), rule.get("Expiration", {})
        prefix = condition.get("Prefix", rule.get("Prefix", ""))
        if rule["Status"] != "Enabled" or condition.keys() - {"Prefix"} or not key.startswith(prefix):
            continue
        if "Date" in expiration:
            days.append(expiration["Date"].date())
        elif "Days" in expiration:
            days.append(created_at.astimezone(UTC).date() + timedelta(days=expiration["Days"] + 1))
    return f"the bucket's lifecycle deletes it on {min(days)}" if days else "nothing deletes it"
