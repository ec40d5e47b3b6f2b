"""A comparison for a person at a terminal."""

from __future__ import annotations

from log_partitioner.privacy import printable
from log_partitioner_pipeline.audit.comparison import Comparison, Named, names_of
from log_partitioner_pipeline.audit.text import window_text


def to_text(comparison: Comparison) -> str:
    """Write who names which entries, and the conclusion."""
    sides = comparison.first, comparison.second
    names = names_of(*sides)
    lines = [f"two audits of {window_text(comparison.window)}"]
    lines += [f"  {name}: {side.verdict.value.replace('_', ' ')}" for name, side in zip(names, sides, strict=True)]
    for one in comparison.compared:
        kind = one.kind.value.replace("_", " ")
        parts = {
            f"{kind} in both": one.both,
            f"{kind} in {names[0]} alone": one.only_first,
            f"{kind} in {names[1]} alone": one.only_second,
        }
        for title, some in parts.items():
            lines += _listed(title, some)
    for name, side in zip(names, sides, strict=True):
        lines += _listed(f"{name}, not comparable", side.not_comparable)
    if comparison.could_not_tell:
        lines += ["", "could not tell", *(f"  {printable(text)}" for text in comparison.could_not_tell)]
    lines += ["", "judgement", *(f"  {printable(text)}" for text in comparison.judgement)]
    lines += ["", f"the witnesses {_word(comparison)} ({int(comparison.exit_code)})"]
    return "\n".join(lines) + "\n"


def _word(comparison: Comparison) -> str:
    if comparison.could_not_tell:
        return "cannot be compared"
    return "agree" if comparison.agrees else "do not agree"


def _listed(title: str, some: list[Named]) -> list[str]:
    if not some:
        return []
    count = sum(one.count for one in some)
    return ["", f"{title}: {count}", *(f"  {printable(_line(one))}" for one in some)]


def _line(one: Named) -> str:
    parts = [] if one.id is None else [f"id {one.id}"]
    if one.topic is not None:
        index = "" if one.index is None else f" index {one.index}"
        parts.append(f"{one.topic}-{one.partition} offset {one.offset}{index}")
    return f"{', '.join(parts) or '-'}: {one.text}"
