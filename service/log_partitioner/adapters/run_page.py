"""The run page: one worker at a glance, as HTML without a script.

Reads the metrics only: it asks no broker and no store, and delays nothing. It shows no user and no secret (I11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from log_partitioner.config.settings import Settings
from log_partitioner.control.flush_policy import STEPS
from log_partitioner.formats.log_events import BatchCommitted
from log_partitioner.privacy import veiled
from log_partitioner.version import product_version

Series = Sequence[tuple[Mapping[str, str], float]]
ROWS_MAX = 30  # of a table: the page stays light
NEAR, AT = 0.7, 0.95  # of a limit

_STYLE = """
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:64rem;margin:1.5rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
div{overflow-x:auto}
table{border-collapse:collapse;margin:0 0 1.5rem;min-width:60%}
caption{text-align:left;color:#555;padding:.3rem 0}
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid #ccc;vertical-align:top}
td{font-variant-numeric:tabular-nums;overflow-wrap:break-word}
a:focus-visible{outline:3px solid #06c}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}caption{color:#b5b5b5}th,td{border-color:#444}}
"""


def run_page(
    settings: Settings,
    state: str,
    series_of: Callable[[str], Series],
    flushes: Iterable[tuple[int, BatchCommitted]],
    *,
    now_s: float,
) -> bytes:
    """Return the page; `flushes` are the last ones with the time of each in ms, `series_of` gives a gauge's values."""
    value = {name: next((number for _, number in series_of(name)), 0.0) for name in _NAMES}
    title = f"Worker {settings.worker}"
    kafka, s3 = settings.kafka, settings.s3
    body = f"""<h1>{escape(title)}</h1>
<p><strong>{escape(state)}</strong>. log-partitioner {product_version()}, group {escape(kafka.group_id)}, from
{escape(", ".join(kafka.source_topics))} to {escape(f"s3://{s3.bucket}/{s3.prefix}")}. As of {_moment(now_s)}.
<a href="/metrics">Metrics</a></p>
<h2>Assignment</h2>
{_assignment(series_of)}
<h2>Open batch and limits</h2>
{_table(_LIMIT_CAPTION, _LIMIT_HEAD, _limits(settings, value, now_s))}
<h2>Last flushes</h2>
{_table("Committed by this process, the newest first; steps in seconds.", _FLUSH_HEAD, _flushes(flushes))}
<h2>Settings</h2>
{_table("Those that are not at their default; secrets are hidden.", ("Setting", "Value"), _settings(settings))}"""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    page = f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body><main>{body}</main></body>'
    return veiled(f"{page}</html>\n").encode()


_NAMES = ("batch_entries", "partition_keys", "memory_bytes", "spool_bytes", "last_commit_timestamp_seconds")
_LIMIT_CAPTION = "At its limit of entries or disk a batch is flushed; at that of memory, entries go to disk."
_LIMIT_HEAD = ("What", "Now", "Limit", "Used")
_FLUSH_HEAD = ("Time", "Reason", "Entries", "Objects", "Bytes", *(step.capitalize() for step in STEPS))


def _assignment(series_of: Callable[[str], Series]) -> str:
    columns: dict[tuple[str, int], list[str]] = {}
    for name in ("committed_offset", "lag_records", "lag_seconds"):
        for labels, number in series_of(name):
            columns.setdefault((labels["topic"], int(labels["partition"])), []).append(_number(number))
    rows = ([f"{topic} {partition}", *cells] for (topic, partition), cells in sorted(columns.items()))
    head = ("TopicPartition", "Committed offset", "Lag in records", "Lag in seconds")
    return _table(f"{len(columns)} TopicPartitions are owned.", head, rows)


def _limits(settings: Settings, value: Mapping[str, float], now_s: float) -> Iterable[Sequence[str]]:
    flush, spool, last_s = settings.flush, settings.spool, value["last_commit_timestamp_seconds"]
    for what, now, limit in (
        ("Entries", value["batch_entries"], flush.entries_max),
        ("Bytes in memory", value["memory_bytes"], spool.memory_bytes_max),
        ("Bytes on disk", value["spool_bytes"], spool.bytes_max),
    ):
        share = now / limit
        near = ", at the limit" if share >= AT else ", near the limit" if share >= NEAR else ""
        yield what, _number(now), _number(limit), f"{share:.0%}{near}"
    yield "PartitionKeys", _number(value["partition_keys"]), "-", "-"
    yield "Seconds since the last commit", _number(now_s - last_s) if last_s else "none yet", "-", "-"


def _flushes(flushes: Iterable[tuple[int, BatchCommitted]]) -> Iterable[Sequence[str]]:
    for at_ms, one in reversed([*flushes]):
        counts = map(_number, (one.entries, one.objects, one.object_bytes))
        steps = (f"{one.step_seconds.get(step, 0):.2f}" for step in STEPS)
        yield _moment(at_ms / 1000), one.reason, *counts, *steps


def _settings(settings: Settings) -> Iterable[Sequence[str]]:
    def flat(path: str, value: Any) -> Iterable[Sequence[str]]:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                yield from flat(f"{path}.{name}" if path else name, inner)
        else:
            yield path, ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    return flat("", settings.model_dump(mode="json", exclude_defaults=True))


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table; the first cell of a row names it."""
    lines = [[escape(cell) for cell in row] for row in rows]
    if len(lines) > ROWS_MAX:
        caption += f" {len(lines) - ROWS_MAX} more are not shown."
    shown = "\n".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in lines[:ROWS_MAX]
    )
    names = "".join(f'<th scope="col">{name}</th>' for name in head)
    shown = shown or f'<tr><td colspan="{len(head)}">None</td></tr>'
    table = f"<caption>{escape(caption)}</caption><thead><tr>{names}</tr></thead><tbody>{shown}</tbody>"
    return f"<div><table>{table}</table></div>"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
