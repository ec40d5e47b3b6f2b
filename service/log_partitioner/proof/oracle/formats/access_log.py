"""`access-log`, read from left to right."""

from __future__ import annotations

from log_partitioner.config.settings import InputSettings
from log_partitioner.formats.dead_letter import Reason
from log_partitioner.proof.oracle.format import DeadError, Format, lines_of, text_of_line

_STATUS_DIGITS, _SIZE_DIGITS = 3, 18


def access_log(_settings: InputSettings) -> Format:
    """Return the rules of `access-log`."""
    return Format(lines=lines_of, parse=_entry)


class _Rest:
    """The rest of a line, behind what was passed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def need(self, mark: str) -> None:
        """Pass a mark."""
        if not self.text.startswith(mark):
            raise DeadError(Reason.MALFORMED)
        self.text = self.text[len(mark) :]

    def until(self, mark: str) -> str:
        """Pass a value that is not empty, and the mark behind it."""
        value, found, self.text = self.text.partition(mark)
        if not value or not found:
            raise DeadError(Reason.MALFORMED)
        return value

    def word(self) -> str:
        """Pass a value without white space, and the space behind it."""
        value = self.until(" ")
        if len(value.split()) != 1 or value != value.strip():
            raise DeadError(Reason.MALFORMED)
        return value

    def quoted(self, *, may_lack_end: bool = False) -> str:
        """Pass a quoted value, which stays escaped."""
        self.need('"')
        at = 0
        while at < len(self.text) and self.text[at] != '"':
            at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text) and not (may_lack_end and at == len(self.text)):
            raise DeadError(Reason.MALFORMED)
        value, self.text = self.text[:at], self.text[at + 1 :]
        return value

    def number(self, digits: range) -> int:
        """Pass digits."""
        found = self.text[: len(self.text) - len(self.text.lstrip("0123456789"))]
        if len(found) not in digits:
            raise DeadError(Reason.MALFORMED)
        self.text = self.text[len(found) :]
        return int(found)


def _entry(line: bytes) -> object:
    rest = _Rest(text_of_line(line))
    entry: dict[str, object] = {name: rest.word() for name in ("client", "ident", "user")}
    rest.need("[")
    entry["time"] = rest.until("]")
    rest.need(" ")
    entry["request"] = rest.quoted()
    rest.need(" ")
    entry["status"] = rest.number(range(_STATUS_DIGITS, _STATUS_DIGITS + 1))
    rest.need(" ")
    if rest.text.startswith("-"):
        rest.need("-")
    else:
        entry["bytes"] = rest.number(range(1, _SIZE_DIGITS + 1))
    combined = _combined(rest.text)
    if combined is not None:
        entry["referer"], entry["agent"], rest.text = combined
    if rest.text:
        rest.need(" ")
        entry["more"] = rest.text
    return entry


def _combined(text: str) -> tuple[str, str, str] | None:
    """Return referer, agent and what follows them; None if this is something else."""
    rest = _Rest(text)
    try:
        rest.need(" ")
        referer = rest.quoted()
        rest.need(" ")
        agent = rest.quoted(may_lack_end=True)
    except DeadError:
        return None
    return (referer, agent, rest.text) if rest.text[:1] in ("", " ") else None
