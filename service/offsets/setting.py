"""What `offsets set --to` makes of committed offsets, and what that costs: records published twice, or skipped.

Owns the rules; changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from service.errors import SettingsError
from service.formats import offset_metadata
from service.formats.model import CommittedOffset, TopicPartition
from service.offsets.survey import Known, Survey

Target = Literal["committed", "flushed", "beginning"] | int


class Change(NamedTuple):
    """What becomes of one committed offset.

    `after` is None where it is left, and `note` says why; `is_met`: what was asked for holds then. `twice` and
    `skipped` count offsets that are published again, or by nobody.
    """

    tp: TopicPartition
    before: CommittedOffset | None
    after: CommittedOffset | None
    note: str = ""
    is_met: bool = True
    twice: int = 0
    skipped: int = 0


def plan(survey: Survey, target: Target, partitions: Collection[int] = ()) -> list[Change]:
    """Say for each TopicPartition what `set --to` changes.

    Raises:
        SettingsError: an offset without exactly one partition, or one that the log does not have.
        HistoryUnknownError: the flush records cannot be read.
    """
    if isinstance(target, int) and len(partitions) != 1:
        raise SettingsError(["--to OFFSET takes exactly one --partition"])
    return [
        _change(survey, place, target, is_named=place.tp.partition in partitions) for place in survey.known(partitions)
    ]


def _change(survey: Survey, place: Known, target: Target, *, is_named: bool) -> Change:
    tp, before = place.tp, place.committed
    if isinstance(target, int) and not place.first <= target <= place.end:
        raise SettingsError([f"--to {target}: {tp} has the offsets {place.first} to {place.end}"])
    if target == "committed":
        if before is None:
            return Change(tp, None, None, "nothing is committed", is_met=False)
        offset = before.offset
    elif target == "flushed":
        if problem := _not_at_flushed(survey, place):
            return Change(tp, before, None, problem, is_met=False)
        assert place.flushed is not None, "there is a flush record"
        offset = place.flushed
    else:
        offset = place.first if target == "beginning" else target
    after = _after(survey, place, offset, keeps_epoch=not is_named)
    if after == before:
        return Change(tp, before, None, "it is there")
    twice, skipped = _cost(survey, place, offset)
    return Change(tp, before, after, twice=twice, skipped=skipped)


def _not_at_flushed(survey: Survey, place: Known) -> str:
    """Say why a TopicPartition cannot go on where its flush records end; empty where it can."""
    if place.flushed is None:
        return "no flush record of this group names it"
    if place.committed is not None and survey.is_of_another_topic(place.committed):
        return "it is of another topic of this name: --to committed or --to beginning"
    if not place.first <= place.flushed <= place.end:
        return f"flush records end at {place.flushed}, the log has {place.first} to {place.end} only"
    return ""


def _after(survey: Survey, place: Known, offset: int, *, keeps_epoch: bool) -> CommittedOffset:
    """Return what to commit; it says when a person has set it, unless flush records say the same.

    If the same offset of this very topic stays, its leader epoch does, too, unless the partition is named: then its log
    may have been rewritten.
    """
    before = place.committed
    told = offset_metadata.decode("" if before is None else before.metadata)
    stays = before is not None and before.offset == offset
    is_same = before is not None and stays and survey.is_of_this_topic(before)
    if place.flushed is not None and offset < place.flushed:
        set_ms: int | None = survey.now_ms()  # whatever was set before: flush records may be younger
    elif is_same:
        set_ms = told.set_ms
    else:
        set_ms = None if offset == place.flushed else survey.now_ms()
    epoch = before.leader_epoch if before is not None and is_same and keeps_epoch else None
    roots = told.roots if stays else ()
    text = offset_metadata.encode(survey.topic_id, roots, began=survey.topics.began.get(place.tp.topic), set_ms=set_ms)
    return CommittedOffset(offset, epoch, text.text)


def _cost(survey: Survey, place: Known, offset: int) -> tuple[int, int]:
    """Count offsets that are published twice, and that are skipped, as far as flush records, or a start, tell."""
    before, first = place.committed, place.first
    if place.flushed is not None:
        known = max(place.flushed, first)
        return max(0, known - max(offset, first)), max(0, offset - known)
    if before is not None and before.offset == offset:
        return 0, 0
    begun = before.offset if before is not None and survey.is_of_this_topic(before) else first
    return 0, max(0, offset - max(begun, first))
