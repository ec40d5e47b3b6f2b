"""The run page: what it shows of a worker, and what it does not."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from pydantic import SecretStr

from log_partitioner.adapters.metrics import PrometheusMetrics
from log_partitioner.adapters.run_page import run_page
from log_partitioner.config.settings import Settings
from tests import canaries
from tests.fakes.rig import Rig
from tests.fakes.worker import settings_of

NOW_S = 1_790_000_060.0
BYTES_MAX = 10_000


def measured(topic_partitions: int) -> PrometheusMetrics:
    """Measure a worker that owns so many TopicPartitions, and has taken three quarters of its memory."""
    metrics = PrometheusMetrics()
    for number in range(topic_partitions):
        for name, value in (("committed_offset", 1234567), ("lag_records", 1200 + number), ("lag_seconds", 31)):
            metrics.set(name, value, topic="app", partition=str(number))
    metrics.set("memory_bytes", 0.75 * 2**30)
    metrics.set("batch_entries", 4321)
    return metrics


def page(metrics: PrometheusMetrics, settings: Settings, state: str = "Ready: member of the group") -> str:
    """Make the page of a worker that has flushed twice."""
    flushes = Rig().flushed().flusher.recent
    return run_page(settings, state, metrics.series, flushes, now_s=NOW_S).decode()


def text_of(html: str) -> list[str]:
    """Return the texts of rows, cell by cell with a bar between them, as a person sees them."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.sub(r"<[^>]*>", "", re.sub(r"</t[hd]>(?=.)", " | ", row)) for row in rows]


def test_page_shows_assignment_batch_limits_flushes_and_settings() -> None:
    """Each number under the name of its column."""
    rows = text_of(page(measured(2), settings_of()))

    assert rows[:3] == [
        "TopicPartition | Committed offset | Lag in records | Lag in seconds",
        "app 0 | 1,234,567 | 1,200 | 31",
        "app 1 | 1,234,567 | 1,201 | 31",
    ]
    assert "Bytes in memory | 805,306,368 | 1,073,741,824 | 75%, near the limit" in rows
    assert "Seconds since the last commit | none yet | - | -" in rows
    first = rows.index("Time | Reason | Entries | Objects | Bytes | Seal | Upload | Announce | Commit") + 1
    assert len(re.findall(r"UTC \| interval \| 4 \| 1 \| [\d,]+ \| 0\.00 \| ", "\n".join(rows[first : first + 2]))) == 2
    assert "time.paths | time" in rows
    assert not any(row.startswith("verify.share") for row in rows)


def test_page_of_a_worker_without_anything_says_so() -> None:
    """It has just begun: nothing is assigned, and nothing flushed."""
    html = run_page(settings_of(), "Not ready", PrometheusMetrics().series, [], now_s=NOW_S).decode()

    assert "0 TopicPartitions are owned." in html
    assert text_of(html).count("None") == 2


def test_page_shows_no_secret_and_no_user() -> None:
    """I11: neither of settings, nor of a store's answer."""
    mine = settings_of()
    secret = SecretStr(canaries.SECRET)
    kafka = mine.kafka.model_copy(update={"secret_properties": {"sasl.password": secret}})
    s3 = mine.s3.model_copy(update={"access_key": secret, "secret_key": secret})
    settings = mine.model_copy(update={"kafka": kafka, "s3": s3})

    html = page(measured(1), settings, state=f"Not ready: logs/user={canaries.USER}/1.avro is refused")

    assert canaries.found_in(html) is None
    assert text_of(html).count("s3.secret_key | **********") == 1
    assert "kafka.secret_properties.sasl.password | **********" in text_of(html)


def test_name_that_is_markup_is_shown_as_it_is() -> None:
    """A topic's cannot be, a worker's can."""
    html = page(measured(0), settings_of().model_copy(update={"worker": "<script>w"}))

    assert "<h1>Worker &lt;script&gt;w</h1>" in html
    assert "<script" not in html


def test_page_of_a_thousand_topic_partitions_is_light() -> None:
    """The rest is counted; `status` lists all."""
    html = page(measured(1000), settings_of())

    assert len(html) < BYTES_MAX
    assert "1000 TopicPartitions are owned. 970 more are not shown." in html


def test_page_is_well_formed_and_its_tables_have_captions_and_headers() -> None:
    """A screen reader names each cell by its column and its row."""
    opened: list[str] = []
    tags: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, dict(attrs)))
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader().feed(page(measured(2), settings_of()))

    assert opened == []
    names = [tag for tag, _ in tags]
    assert names.count("table") == names.count("caption") == names.count("h2") == 4
    assert {attributes.get("scope") for tag, attributes in tags if tag == "th"} == {"row", "col"}


@pytest.mark.parametrize(
    ("used", "expected"), [(0.69, "69%"), (0.7, "70%, near the limit"), (0.95, "95%, at the limit")]
)
def test_limit_that_is_near_is_told_in_words(used: float, expected: str) -> None:
    """A screen reader does not read colours."""
    metrics = PrometheusMetrics()
    metrics.set("spool_bytes", used * settings_of().spool.bytes_max)
    (row,) = (one for one in text_of(page(metrics, settings_of())) if one.startswith("Bytes on disk"))

    assert row.endswith(f" | {expected}")
