"""A page says what the result says, all of it, whatever the data is; and needs nothing but itself."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.audit.history import read_result
from log_partitioner_pipeline.audit.result import (
    Archive,
    Counts,
    Example,
    Finding,
    Ids,
    Result,
    Witness,
    decode,
    encode,
)
from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.errors import PipelineError
from log_partitioner_pipeline.report.around import Log, read_log
from log_partitioner_pipeline.report.page import EXAMPLES_SHOWN, RANGES_SHOWN, render, write_page
from log_partitioner_pipeline.report.words import seconds, size
from tests.log_lines import discarded
from tests.unit.report.reading import Page
from tests.unit.report.world import (
    FLUSH_MS,
    T0_MS,
    TOPIC,
    WorkerLog,
    flush,
    hour,
    missing,
    record_hour,
    result,
)

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; url(https://example.org/x)",
    "</style><style>@import 'https://example.org'",
    "{{ 7 * 7 }}{% raw %}",
    "$x^2$ \\alpha & &amp;",
    "mal\u202elory\u0000\u2066",
    "\u00e5ngstr\u00f6m \u65e5\u672c",
]
URL = re.compile(r"https?:|//|\burl\((?!#)|@import|data:", re.IGNORECASE)


def busy() -> tuple[Result, Log]:
    """Make a result with 500 findings, hostile names in all of its texts, commits and events beside it."""
    flushes = [flush(T0_MS + nth * FLUSH_MS, {0: (nth * 10, nth * 10 + 10)}) for nth in range(100)]
    lost = [missing(nth * 2, at_ms=T0_MS + nth, user=HOSTILE[nth % len(HOSTILE)]) for nth in range(480)]
    wrong = [Example(text=text, object=text, id=text, worker=text, reference_id=text) for text in HOSTILE]
    twice = [missing(nth, text=HOSTILE[nth % len(HOSTILE)]) for nth in range(12)]
    log = WorkerLog().assigned(T0_MS - 5, 0)
    log.write(T0_MS + 5, discarded(cause=HOSTILE[0], message=HOSTILE[1]))
    log.lost(T0_MS + 70_000, 0).write(T0_MS + 70_001, HOSTILE[2])
    made = result(
        [(Kind.MISSING, lost), (Kind.DUPLICATED, twice), (Kind.OBJECT_UNREFERENCED, wrong)],
        flushes=flushes,
        hours=[hour(0, findings={"missing": 480, "duplicated": 12}), hour(1), hour(4)],
        record_hours=[record_hour(0, missing=40), record_hour(1), record_hour(None)],
        could_not_tell=HOSTILE,
    )
    places = dict(zip(HOSTILE, HOSTILE, strict=True))
    return msgspec.structs.replace(
        made, places=places, notes=HOSTILE, dead_letters=dict.fromkeys(HOSTILE, 2)
    ), read_log(log.lines)


def busy_rendered() -> str:
    """Make the page of all this, beside earlier audits."""
    made, log = busy()
    earlier = [result(run_id=f"r{nth}", started_at_ms=T0_MS + nth) for nth in range(3)]
    return render(made, earlier=earlier, log=log, notes=["left out of the history: a file"])


@pytest.fixture(scope="module")
def busy_page() -> str:
    """The same for all tests."""
    return busy_rendered()


@pytest.fixture(scope="module")
def busy_parsed(busy_page: str) -> Page:
    """The same, parsed."""
    return Page(busy_page)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (result(record_hours=[record_hour(0)]), ["Clean", "1,234 entries of the source: each is in exactly one file"]),
        (result([(Kind.MISSING, [missing(1)] * 3)]), ["Findings", "3 findings: 3 missing."]),
        (result(could_not_tell=["S3 refused"]), ["Could not tell", "for 1 reason.", "S3 refused"]),
        (result(counts=Counts()), ["Clean", "no entries here"]),
        (
            result([(Kind.META, [missing(1)])], could_not_tell=["why"]),
            ["1 finding: 1 meta.", "The audit could not tell all, for 1 reason."],
        ),
    ],
)
def test_the_verdict_stands_on_top_in_words(made: Result, words: Sequence[str]) -> None:
    """Heading and sentence of each verdict, with window and exit code."""
    page = Page(render(made))
    top = page.text.partition("Accounts Counts")[0]
    assert not [word for word in words if word not in top]
    assert f"exit code {int(made.exit_code)}" in page.text
    assert "records from 2026-03-04 00:00:00.000 until 2026-03-04 08:00:00.000" in top
    assert page.count("div", of_class=made.verdict.value) == 1


def test_every_finding_is_shown_and_counted(busy_parsed: Page) -> None:
    """500 findings: each kind with its number, each example, each range with what is around it."""
    text = busy_parsed.text
    for kind, count in (("missing", 480), ("duplicated", 12), ("object unreferenced", len(HOSTILE))):
        assert f"{kind}: {count} examples of {count} findings" in text
    for nth in range(480):
        assert f"{TOPIC}-0 offset {nth * 2} index 0" in text
    assert len(re.findall(r"offset \d+ index 0", text)) == 492
    ranges = 96 + 2 + 1
    assert busy_parsed.count("div", of_class="range") == ranges
    assert "5 missing logs.of-products-0 offsets 10 to 18" in text
    assert "batch discarded w1: batch_id" in text


def test_hostile_names_are_text_and_nothing_else(busy_page: str, busy_parsed: Page) -> None:
    """Elements and attributes are the templates' own; an invisible character is shown by its number."""
    for text in HOSTILE[:6]:
        assert text in busy_parsed.text
    assert "mal\\x202elory\\x00\\x2066" in busy_parsed.text
    assert "\u202e" not in busy_page
    tags = {tag for tag, _ in busy_parsed.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "image", "foreignobject"}
    assert busy_parsed.count("style") == 1
    assert not [name for _, found in busy_parsed.elements for name in found if name.startswith("on")]


def test_a_page_needs_no_network_and_forbids_it(busy_parsed: Page) -> None:
    """No address in any attribute or style; links lead to elements of the page."""
    attributes = [pair for _, found in busy_parsed.elements for pair in found.items()]
    values = [value for name, value in attributes if value and not name.startswith("xmlns")]
    assert not [value for value in values if URL.search(value)]
    assert not URL.search("".join(busy_parsed.styles))
    ids = busy_parsed.attributes("id")
    assert len(ids) == len(set(ids))
    links = busy_parsed.attributes("href", "xlink:href") + [
        f"#{one}" for one in busy_parsed.attributes("aria-labelledby")
    ]
    links += [found for value in values for found in re.findall(r"url\((#[^)]+)\)", value)]
    assert links
    assert not [link for link in links if link[0] != "#" or link[1:] not in ids]
    (policy,) = [value for value in busy_parsed.attributes("content") if "default-src" in value]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(busy_page: str) -> None:
    """In this process, and in one with other hashes in another time zone: no clock, no random ids."""
    program = (
        "import sys; from tests.unit.report.test_page import busy_rendered; "
        "sys.stdout.buffer.write(busy_rendered().encode())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TZ": "Asia/Kolkata",
            "PATH": "",
            "HOME": "/nonexistent",
        },
        cwd=Path(__file__).parents[3],
        capture_output=True,
        check=True,
    )
    assert other.stdout.decode() == busy_page


def test_every_kind_at_once_and_an_older_system_are_shown() -> None:
    """The archive, unique ids and what is retired have accounts, and each kind its examples."""
    archive = Archive(
        files=3, bytes=2048, rows=77, rows_compared=70, rows_dead=0, rows_without_id=5, rows_not_judged=2,
        broken_lines=4, entries_without_id=6,
    )  # fmt: skip
    ids = Ids(
        in_source=91, in_files=92, missing=93, surplus=94, repeated_in_source=95, examples=["id-1: 1 in the source"]
    )
    counts = Counts(entries=5, objects_retired=81, rows_retired=82)
    made = msgspec.structs.replace(
        result([(kind, [missing(nth)]) for nth, kind in enumerate(Kind)], counts=counts),
        archive=archive,
        ids=ids,
        against=Witness.CSV,
    )
    text = Page(render(made)).text
    assert not [kind for kind in Kind if f"{kind.value.replace('_', ' ')}: 1 example of 1 finding" not in text]
    assert all(f" {number} " in text for number in (77, 70, 81, 82, 91, 92, 93, 94, 95))
    assert "an older system's archive" in text
    assert "objects retired 81 rows retired 82" in text
    assert "id-1: 1 in the source" in text
    coverage = "topic partition retained offset end offset committed offset first offset next offset"
    assert f"Offsets that were audited {coverage}" in text


def test_a_result_of_before_lag_was_known_is_readable() -> None:
    """Its page has the plots that can be made."""
    made = result(hours=[hour(0)], record_hours=[record_hour(0)])
    document = json.loads(encode(made))
    hours = document["record_hours"]
    document["record_hours"] = [{key: one[key] for key in one if not key.startswith("lag_")} for one in hours]
    for name in ("against", "archive", "durations_s", "flushes_left_out"):
        document.pop(name, None)
    page = Page(render(decode(json.dumps(document).encode())))
    assert "Delivery lag" not in page.text
    assert "Entries per hour" in page.text


def test_extremes_do_not_keep_a_page_from_being_made() -> None:
    """Nothing at all; one hour; clocks that are wrong; times that no calendar has; more than the largest plot takes."""
    assert Page(render(result())).count("figure") == 0
    far = Finding(kind=Kind.MISSING, count=10**12, examples=[missing(1, at_ms=10**17), missing(2, at_ms=-(10**13))])
    hours = [record_hour(nth, lag_ms=-5000 if nth else 0, entries=0) for nth in range(3000)]
    made = msgspec.structs.replace(
        result(
            flushes=[flush(T0_MS, {0: (5, 5)})],
            record_hours=hours,
            hours=[hour(nth, references=0) for nth in range(3000)],
        ),
        findings=[far],
    )
    text = Page(render(made)).text
    assert "1,000,000,000,000 missing" in text
    assert "500 of 3,000" in text


@pytest.mark.slow
def test_lags_far_apart_are_on_an_axis_that_can_be_read() -> None:
    """From a second to hours: whole amounts at the axis."""
    lags = [record_hour(0, lag_ms=900), record_hour(1, lag_ms=20_000), record_hour(2, lag_ms=9_000_000)]
    page = Page(render(result(record_hours=lags)))
    assert "0 1 s 10 s 1 min 10 min 1 h 10 h" in page.text


@pytest.mark.slow
def test_times_that_are_none_are_shown_and_not_plotted() -> None:
    """Dates of wrong references, clocks of other centuries: in tables, beside what can be plotted."""
    wrong = [msgspec.structs.replace(hour(0, findings={"misplaced": 1}), date=date) for date in ("2026-13-45", "", "x")]
    times = [10**17, -(10**17), T0_MS]
    late = [msgspec.structs.replace(record_hour(0), begins_ms=at_ms) for at_ms in times]
    flushes = [flush(10**17, {0: (0, 5)}), flush(T0_MS, {0: (5, 9)})]
    findings = [missing(1, at_ms=10**17), missing(6), missing(7, partition=1, at_ms=-(10**17))]
    made = result([(Kind.MISSING, findings)], hours=[*wrong, hour(1)], record_hours=late, flushes=flushes)
    page = Page(render(made))
    assert "2026-13-45" in page.text
    assert "100000000000000000 ms" in page.text
    labels = page.attributes("aria-label")
    assert [label for label in labels if label.startswith("Entries per hour")]


def test_a_page_is_bounded_and_says_what_it_leaves_out() -> None:
    """More ranges and examples than a browser likes: counted, and left to the result."""
    flushes = [flush(T0_MS + nth, {0: (nth, nth + 1)}) for nth in range(EXAMPLES_SHOWN + 7)]
    findings = [(Kind.MISSING, EXAMPLES_SHOWN + 7), (Kind.ALTERED, 9)]
    made = result([(kind, [missing(nth) for nth in range(most)]) for kind, most in findings], flushes=flushes)
    page = Page(render(made))
    assert page.count("div", of_class="range") == RANGES_SHOWN
    assert f"The last {EXAMPLES_SHOWN + 9 - RANGES_SHOWN} of them are in the result only." in page.text
    assert "The result has 7 more of them." in page.text


def test_the_command_makes_the_page_of_the_newest_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without settings; others of the same witness beside it, a broken file of the history is said to be left out."""
    history = tmp_path / "history"
    history.mkdir()
    (history / "audit-1.json").write_bytes(encode(result([(Kind.META, [missing(1)])], run_id="old", started_at_ms=1)))
    (history / "audit-2.json").write_text("{}")
    other = msgspec.structs.replace(result(run_id="csv", started_at_ms=2), against=Witness.CSV)
    files = []
    for nth, made in enumerate([result(run_id="newest"), other, result(run_id="before", started_at_ms=3)]):
        files.append(tmp_path / f"{nth}.json")
        files[-1].write_bytes(encode(made))
    log = tmp_path / "w1.log"
    log.write_bytes(b"".join(WorkerLog().assigned(T0_MS, 0).lines))
    page = tmp_path / "made" / "page.html"
    (tmp_path / "w2.log").write_bytes(b"".join(WorkerLog("w2").assigned(T0_MS, 1).lines))
    logs = ["--logs", str(log), "--logs", str(tmp_path / "w2.log")]
    arguments = ["report", "--history", str(history), "--html", str(page), *logs, *map(str, files)]
    assert main(arguments) == 0
    text = Page(page.read_text()).text
    assert "run newest" in text
    assert "From 2 lines of workers' logs" in text
    assert "The last 3 audits as a table" in text
    assert "left out of the history" in text
    assert [one.name for one in page.parent.iterdir()] == ["page.html"]
    (tmp_path / "no.json").write_text("no")
    assert main(["report", str(tmp_path / "no.json"), "--html", str(page)]) == 2
    assert "is no result of an audit" in capsys.readouterr().err


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    """An absent log, an absent result, a page where a directory is."""
    with pytest.raises(PipelineError, match="cannot be read"):
        read_result(tmp_path / "absent.json")
    with pytest.raises(PipelineError, match="a log cannot be read"):
        write_page(result(), tmp_path / "page.html", logs=[tmp_path / "absent.log"])
    with pytest.raises(PipelineError, match="cannot be written"):
        write_page(result(), tmp_path)


def test_amounts_are_written_in_units_that_fit() -> None:
    """Sizes and durations, negative ones too."""
    assert [size(value) for value in (None, 0, 1023, 1536, 200 * 1024, 5 << 40)] == [
        "\N{EN DASH}", "0 B", "1023 B", "1.5 KiB", "200 KiB", "5.0 TiB",
    ]  # fmt: skip
    assert [seconds(value) for value in (0, 999, 1500, 61_000, 3_660_000, 90_000_000, -2000)] == [
        "0 ms", "999 ms", "1.5 s", "1 min 1 s", "1 h 1 min", "1 d 1 h", "\N{MINUS SIGN}2.0 s",
    ]  # fmt: skip
