"""An animated picture of a demo, drawn from what the demo printed: `make demo > docs/demo.txt`, then `make docs`.

Every line of it is one of the demo's, cut at the width of the terminal. The picture says how many lines it leaves out
and which waits it shortens. It begins with the end, for some seconds; without animation, or if the reader wants no
motion, it stays there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise

_COLUMNS, _ROWS = 104, 22
_CHAR_W, _LINE_H, _MARGIN = 7.8, 18, 14  # pixels
_WAIT_S_MIN, _WAIT_S_MAX, _END_S, _FIRST_S = 0.12, 1.0, 7.0, 4.0
_TOLD = re.compile(r" *(\d+\.\d) s  (.*)")
_SHOWN = re.compile(
    r">>> |\d+ workers \(|worker-\d+: (flush_committed|batch_discarded|partitions_(assigned|lost))|[\d,]+ flushes, "
    r"|\d+ batches given up|materialising|auditing|verifying|audit of |findings"
    r"|(records|entries|in files|in dead letters|in table) |(missing|duplicated) |clean \(|pass \(|The audit "
)
_COLOURS = {
    "bad": r">>> SIGKILL|(missing|duplicated) +[1-9]|The audit (found|could)",
    "good": r"(missing|duplicated) +0$|clean \(0\)|pass \(0\)|The audit is clean",
    "act": r">>> |.*(batch_discarded|partitions_lost)",
    "dim": r"worker-\d+: partitions_assigned",
}
_STYLE = """\
svg{{background:#10141b;border-radius:8px}}
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d5dbe5;white-space:pre}}
.bad{{fill:#ff6b6b;font-weight:bold}}.good{{fill:#5ee08a;font-weight:bold}}.act{{fill:#ffd166}}.dim,.time{{fill:#8b97a8}}
@media(prefers-reduced-motion:no-preference){{text.line,#screen{{animation-duration:{length:.1f}s;animation-delay:{delay:.1f}s;\
animation-iteration-count:infinite;animation-timing-function:step-end}}
{keyframes}}}"""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that the demo printed; its time as it stands there, and the seconds by which it had been printed."""

    time: str
    text: str
    by_s: float


def picture_of(record: str) -> str:
    """Return the picture as SVG.

    Raises:
        ValueError: there is no line of a demo in the record.
    """
    everything = list(_lines(record))
    lines = [line for line in everything if _SHOWN.match(line.text.lstrip())]
    if not lines:
        raise ValueError("no line of a demo")
    moments = list(accumulate(_waits(lines)))
    length = moments[-1] + _END_S
    keyframes = _keyframes([100 * moment / length for moment in moments])
    caption = (
        f"{len(everything) - len(lines)} of {len(everything)} lines are left out; waits are cut to {_WAIT_S_MAX} s: "
        "the seconds are those of the run"
    )
    width, height = round(_COLUMNS * _CHAR_W) + 2 * _MARGIN, _ROWS * _LINE_H
    size = f'width="{width}" height="{height + 3 * _MARGIN + _LINE_H}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>A run of the demo: {escape(lines[-1].text)}</title>",
            f"<style>{_STYLE.format(length=length, delay=_FIRST_S - length, keyframes=keyframes)}</style>",
            f'<svg x="{_MARGIN}" y="{_MARGIN}" width="{width - 2 * _MARGIN}" height="{height}">',
            f'<g id="screen" transform="translate(0 -{_scrolled(len(lines) - 1)})">',
            *(_drawn(number, line) for number, line in enumerate(lines)),
            "</g></svg>",
            f'<text class="dim" x="{_MARGIN}" y="{height + 2 * _MARGIN + _LINE_H // 2}">{caption}</text>',
            "</svg>\n",
        ]
    )


def _lines(record: str) -> Iterator[_Line]:
    """Yield the lines that have text; one without seconds was printed before the next one that has them."""
    waiting: list[str] = []
    by_s = 0.0
    for line in filter(str.strip, record.splitlines()):
        if (told := _TOLD.fullmatch(line)) is None:
            waiting.append(line)
            continue
        by_s = float(told.group(1))
        yield from (_Line("", text, by_s) for text in waiting)
        waiting.clear()
        yield _Line(f"{told.group(1)} s", told.group(2), by_s)
    yield from (_Line("", text, by_s) for text in waiting)


def _waits(lines: Sequence[_Line]) -> Iterator[float]:
    """Yield the seconds before each line, never so short that it is not seen, nor so long that it bores."""
    for before, line in pairwise([lines[0], *lines]):
        yield min(max(line.by_s - before.by_s, _WAIT_S_MIN), _WAIT_S_MAX)


def _keyframes(shares: Sequence[float]) -> str:
    """Return when each line appears, and when the screen scrolls, as percentages of the whole."""
    appear = [
        f"@keyframes l{number}{{0%{{opacity:0}}{share:.2f}%{{opacity:1}}}}#l{number}{{animation-name:l{number}}}"
        for number, share in enumerate(shares)
    ]
    steps = [
        f"{share:.2f}%{{transform:translateY(-{_scrolled(number)}px)}}"
        for number, share in enumerate(shares)
        if _scrolled(number)
    ]
    return "\n".join([*appear, f"@keyframes up{{0%{{transform:none}}{''.join(steps)}}}#screen{{animation-name:up}}"])


def _scrolled(number: int) -> int:
    """Return by how many pixels the screen has scrolled once this line is there."""
    return max(0, number + 1 - _ROWS) * _LINE_H


def _drawn(number: int, line: _Line) -> str:
    text = line.text
    if len(text) > _COLUMNS - 10:
        text = text[: _COLUMNS - 11].rpartition(" ")[0] + " …"
    bare = text.lstrip()
    colour = next((name for name, pattern in _COLOURS.items() if re.match(pattern, bare)), "text")
    seconds = f'<tspan class="time">{line.time:>8}</tspan>'
    y = (number + 1) * _LINE_H - 5
    return f'<text class="line {colour}" id="l{number}" y="{y}" xml:space="preserve">{seconds}  {escape(text)}</text>'
