"""A judgement as one HTML page: no script, nothing from the network, every text of the logs escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from service.accounting import ExitCode
from service.privacy import printable
from service.verify.account import Evidence, exit_code, tell_tenure, time_of
from service.verify.history import Judgement
from service.verify.rules import MEANINGS
from service.verify.tenures import Tenure

BARS_MAX = 5000
_COLOURS = 12
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>verify-logs</title><style>
body { font: 14px/1.4 sans-serif; margin: 2em; max-width: 90em }
table { border-collapse: collapse } td, th { padding: 1px 10px 1px 0; text-align: left; vertical-align: top }
.it { background: #fdd } .bar { position: relative; height: 1.3em; background: #f4f4f4; min-width: 50em }
.bar i { position: absolute; top: 0; bottom: 0; min-width: 2px; box-sizing: border-box; border-left: 1px solid #000 }
.lost { border-right: 3px solid #c00 } code { white-space: pre-wrap }
</style></head><body>
"""
_WORDS = {
    ExitCode.CLEAN: "Pass: the logs break no rule",
    ExitCode.FINDINGS: "Violation: the logs break a rule",
    ExitCode.COULD_NOT_TELL: "Could not tell",
}


def render_page(judgement: Judgement, evidence: Sequence[Evidence], counts: dict[str, int]) -> str:
    """Write the page."""
    parts = [_HEAD, f"<h1>{_text(_WORDS[exit_code(judgement)])}</h1>"]
    parts.append(
        _rows(("", "number"), ((name.replace("_", " "), n) for name, n in (counts | judgement.numbers).items()))
    )
    rules = ((int(rule), number, MEANINGS[rule]) for rule, number in sorted(judgement.counts.items()))
    parts += ["<h2>Violations by rule</h2>", _rows(("rule", "violations", "what it is"), rules)]
    if judgement.violations:
        first = judgement.violations[0]
        parts.append(
            f"<h2>The first violation</h2><p>Rule {int(first.rule)}: {_text(first.text)}. {_text(first.boot)}</p>"
        )
        parts.append(_evidence(evidence))
        rest = ((int(one.rule), one.text, one.boot, one.seq, time_of(one.at_ms)) for one in judgement.violations[1:])
        parts.append(
            f"<details><summary>more</summary>{_rows(('rule', 'what', 'worker', 'line', 'at'), rest)}</details>"
        )
    for title, texts in (("Could not tell", judgement.doubts), ("Notes", judgement.notes)):
        if texts:
            parts.append(f"<h2>{title}</h2><ul>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>")
    for group, tenures in judgement.tenures.items():
        parts.append(f"<h2>Who owned what, in group {_text(group)}</h2>{''.join(_timeline(tenures))}")
    return "\n".join(parts) + "\n</body></html>\n"


def _evidence(evidence: Sequence[Evidence]) -> str:
    rows = (
        f"<tr{' class=it' if one.is_it else ''}><td>{number}</td><td>{time_of(one.at_ms)}</td>"
        f"<td>{_text(one.boot)}</td><td>{one.seq}</td><td><code>{_text(one.text)}</code></td><td>{_text(one.place)}</td></tr>"
        for number, one in enumerate(evidence, 1)
    )
    return f"<table>{''.join(rows)}</table>"


def _timeline(tenures: Sequence[Tenure]) -> Iterator[str]:
    """Yield a row for each TopicPartition, with a bar for each tenure; a colour for each worker."""
    if not tenures:
        return
    begin = min(one.began_ms for one in tenures)
    length = max(1, max(one.ended_ms for one in tenures) - begin)
    workers = {worker: number for number, worker in enumerate(sorted({one.boot.worker for one in tenures}))}
    yield f"<p>{time_of(begin)} to {time_of(begin + length)}, by each pod's own clock; a red end is a loss.</p><table>"
    by_tp: dict[str, list[Tenure]] = {}
    for one in tenures[:BARS_MAX]:
        by_tp.setdefault(one.tp, []).append(one)
    for tp, each in by_tp.items():
        bars = "".join(_bar(one, begin, length, workers[one.boot.worker]) for one in each)
        yield f'<tr><td>{_text(tp)}</td><td><div class="bar">{bars}</div></td></tr>'
    yield "</table><p>"
    for worker, number in workers.items():
        yield f'<span style="background:{_colour(number)}">&nbsp;{_text(worker)}&nbsp;</span> '
    yield "</p>"
    if len(tenures) > BARS_MAX:
        yield f"<p>and {len(tenures) - BARS_MAX} more</p>"


def _bar(one: Tenure, begin: int, length: int, number: int) -> str:
    left, width = 100 * (one.began_ms - begin) / length, 100 * max(0, one.ended_ms - one.began_ms) / length
    style = f"left:{left:.3f}%;width:{width:.3f}%;background:{_colour(number)}"
    is_lost = ' class="lost"' if one.ended == "lost" else ""
    return f'<i{is_lost} style="{style}" title="{_text(tell_tenure(one))}"></i>'


def _colour(number: int) -> str:
    return f"hsl({number % _COLOURS * 360 // _COLOURS}, 60%, {70 - 12 * (number // _COLOURS % 3)}%)"


def _rows(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{_text(head)}</th>' for head in heads)}</tr>{body}</table>"


def _text(value: object) -> str:
    return escape(printable(str(value)))
