"""Plans `offsets set --to`: the new committed offsets, and their cost in records published twice, or skipped.

Owns the rules; changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from log_partitioner.errors import SettingsError
from log_partitioner.formats import offset_metadata
from log_partitioner.formats.model import CommittedOffset, TopicPartition
from log_partitioner.offsets.survey import Standing, Survey

Target = Literal["committed", "flushed", "beginning"] | int


class Change(NamedTuple):
    """The change of one committed offset.

    `after` is None if the offset stays as it is; `note` says why, and `is_met` whether it is as requested already.
    `twice` and `skipped` count the offsets that will be published again, or by nobody.
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
        _change(survey, standing, target, is_named=standing.tp.partition in partitions)
        for standing in survey.standings(partitions)
    ]


def _change(survey: Survey, standing: Standing, target: Target, *, is_named: bool) -> Change:
    tp, before = standing.tp, standing.committed
    if isinstance(target, int) and not standing.first <= target <= standing.end:
        raise SettingsError([f"--to {target}: {tp} has the offsets {standing.first} to {standing.end}"])
    if target == "committed":
        if before is None:
            return Change(tp, None, None, "nothing is committed", is_met=False)
        offset = before.offset
    elif target == "flushed":
        if problem := _not_at_flushed(survey, standing):
            return Change(tp, before, None, problem, is_met=False)
        assert standing.flushed is not None, "there is a flush record"
        offset = standing.flushed
    else:
        offset = standing.first if target == "beginning" else target
    after = _after(survey, standing, offset, keeps_epoch=not is_named)
    if after == before:
        return Change(tp, before, None, "it is there")
    twice, skipped = _cost(survey, standing, offset)
    return Change(tp, before, after, twice=twice, skipped=skipped)


def _not_at_flushed(survey: Survey, standing: Standing) -> str:
    """Say why a TopicPartition cannot go on where its flush records end; empty if it can."""
    if standing.flushed is None:
        return "no flush record of this group names it"
    if standing.committed is not None and survey.is_of_another_topic(standing.committed):
        return "it is of another topic of this name: --to committed or --to beginning"
    if not standing.first <= standing.flushed <= standing.end:
        return f"flush records end at {standing.flushed}, the log has {standing.first} to {standing.end} only"
    return ""


def _after(survey: Survey, standing: Standing, offset: int, *, keeps_epoch: bool) -> CommittedOffset:
    """Return what to commit; it says when a person has set it, unless flush records say the same.

    If the same offset of this very topic stays, its leader epoch does, too, unless the partition is named: then its log
    may have been rewritten.
    """
    before = standing.committed
    told = offset_metadata.decode("" if before is None else before.metadata)
    stays = before is not None and before.offset == offset
    is_same = before is not None and stays and survey.is_of_this_topic(before)
    if standing.flushed is not None and offset < standing.flushed:
        set_ms: int | None = survey.now_ms()  # whatever was set before: flush records may be younger
    elif is_same:
        set_ms = told.set_ms
    else:
        set_ms = None if offset == standing.flushed else survey.now_ms()
    epoch = before.leader_epoch if before is not None and is_same and keeps_epoch else None
    return CommittedOffset(offset, epoch, offset_metadata.encode(survey.topic_id, set_ms=set_ms))


def _cost(survey: Survey, standing: Standing, offset: int) -> tuple[int, int]:
    """Count offsets that are published twice, and that are skipped, as far as flush records, or a start, tell."""
    before, first = standing.committed, standing.first
    if standing.flushed is not None:
        known = max(standing.flushed, first)
        return max(0, known - max(offset, first)), max(0, offset - known)
    if before is not None and before.offset == offset:
        return 0, 0
    begun = before.offset if before is not None and survey.is_of_this_topic(before) else first
    return 0, max(0, offset - max(begun, first))
