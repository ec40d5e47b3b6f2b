"""What a person sees: plain lines, or a picture that is drawn over itself."""

import dataclasses
import io

import pytest

from tools.demo.screen import LiveScreen, Picture, PlainScreen, WorkerRow, make_screen, render

PICTURE = Picture(
    stage="round 1 of 2",
    records_in=1000,
    entries_in=3500,
    entries_out=3000,
    dead_letters=7,
    lag=None,
    flushes=4,
    assignment_changes=6,
    workers=(WorkerRow("worker-1", "paused", None, 3, 2000, "flush_committed"),),
)


def test_render_holds_the_numbers() -> None:
    """All numbers of the picture stand in the text, thousands separated, unknown ones as a question mark."""
    text = "\n".join(render(PICTURE))

    for expected in ("round 1 of 2", "1,000 records", "3,500 entries", "3,000 entries", "7 dead", "lag ?"):
        assert expected in text
    assert "worker-1   paused" in text


def test_plain_screen_prints_each_line_and_a_status_now_and_then() -> None:
    """News come at once, one line each; pictures in a row make one status line."""
    output = io.StringIO()
    plain = make_screen(output)
    plain.tell("something happened")
    plain.show(PICTURE)
    plain.show(PICTURE)

    lines = output.getvalue().splitlines()
    assert isinstance(plain, PlainScreen)
    assert len(lines) == 2
    assert lines[0].endswith("something happened")
    assert "\x1b" not in output.getvalue()


def test_live_screen_draws_the_picture_in_its_place_and_news_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a terminal: it ends with the last picture, and every piece of news stands above it, once."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what is no terminal is taken for one
    monkeypatch.setenv("TERM", "xterm")
    output = io.StringIO()
    live = LiveScreen(output)
    live.tell("before the first picture")
    live.show(PICTURE)
    live.tell("something [happened]")
    live.show(dataclasses.replace(PICTURE, stage="round 2 of 2"))
    live.leave()
    live.tell("after the last one")

    text = output.getvalue()
    assert text.count("something [happened]") == 1
    assert text.index("something [happened]") < text.rindex("round 2 of 2") < text.index("after the last one")
    assert "round 1 of 2" not in text[text.index("something [happened]") :].split("\x1b[2K")[-1]
