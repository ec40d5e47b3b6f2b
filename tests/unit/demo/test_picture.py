"""The picture of a demo: drawn from what was printed, and only from that."""

import re
from xml.etree import ElementTree as ET

import pytest

from tools.demo.picture import picture_of

RECORD = """\
   0.6 s  starting Kafka and S3 on 127.0.0.1
  10.7 s  3 workers (cooperative-sticky), 60,000 entries at 2,400/s, seed 1
  20.8 s  >>> SIGKILL worker-1
  21.0 s  worker-2: flush_committed reason=<odd> & records=1
  93.2 s  auditing on Spark: every entry

findings
  missing                            {missing}
  duplicated                         0

 254.2 s  verifying: who owned and committed what
The audit {verdict}.
"""


def drawn(record: str) -> dict[str, tuple[str, str]]:
    """Read the lines of a picture: text -> (time, colour)."""
    picture = ET.fromstring(picture_of(record))  # noqa: S314 - we have drawn it
    found = {}
    for line in picture.iter("{http://www.w3.org/2000/svg}text"):
        spans = list(line)
        if spans:
            found[str(spans[0].tail).strip()] = (str(spans[0].text).strip(), line.attrib["class"].split()[1])
    return found


def test_picture_of_a_clean_run_has_the_kill_in_red_and_what_is_missing_in_green() -> None:
    lines = drawn(RECORD.format(missing=0, verdict="is clean: 0 missing, 0 duplicated, 0 altered"))
    assert lines[">>> SIGKILL worker-1"] == ("20.8 s", "bad")
    assert lines["missing                            0"] == ("", "good")
    assert lines["The audit is clean: 0 missing, 0 duplicated, 0 altered."][1] == "good"


def test_picture_of_a_run_with_findings_has_them_in_red() -> None:
    lines = drawn(RECORD.format(missing=3, verdict="found something"))
    assert lines["missing                            3"][1] == "bad"
    assert lines["The audit found something."][1] == "bad"


def test_picture_has_the_lines_of_the_record_and_says_what_it_leaves_out() -> None:
    """The caption counts, as a reader would, lines that have text."""
    record = RECORD.format(missing=0, verdict="is clean")
    assert set(drawn(record)) <= {re.sub(r"^ *[\d.]+ s  ", "", line).strip() for line in record.splitlines()}
    assert "1 of 10 lines are left out" in picture_of(record)


def test_picture_of_a_wait_is_shorter_than_the_wait_and_keeps_the_order() -> None:
    """All of it takes less than half a minute, though the run took four."""
    picture = picture_of(RECORD.format(missing=0, verdict="is clean"))
    shares = [float(share) for share in re.findall(r"@keyframes l\d+\{0%\{opacity:0\}([\d.]+)%", picture)]
    (length_s,) = map(float, re.findall(r"animation-duration:([\d.]+)s", picture))
    assert shares == sorted(shares)
    assert length_s < 30


def test_record_without_a_line_of_a_demo_is_refused() -> None:
    with pytest.raises(ValueError, match="no line of a demo"):
        picture_of("make: *** No rule to make target\n")


def test_picture_begins_with_the_end() -> None:
    """A reader who does not wait half a minute, or a renderer without animation, sees the verdict."""
    picture = picture_of(RECORD.format(missing=0, verdict="is clean"))
    (length,) = map(float, re.findall(r"animation-duration:([\d.]+)s", picture))
    (delay,) = map(float, re.findall(r"animation-delay:(-[\d.]+)s", picture))
    shown_at = [float(share) / 100 * length for share in re.findall(r"opacity:0\}([\d.]+)%", picture)]
    assert max(shown_at) < -delay < length
