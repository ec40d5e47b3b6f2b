"""Judges once whether the settings fit the source, by the first entries and the first batch (DESIGN 3.9).

A path that matches nothing makes every entry a dead letter, or files it under Kafka's time, and nothing fails. Logs
names of fields here, never values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import structlog

from log_partitioner.batch.batch import ClosedBatch
from log_partitioner.batch.fast_lane import TakenRun
from log_partitioner.batch.topic_rules import RulesByTopic
from log_partitioner.boundary import Poll
from log_partitioner.config.settings import Settings
from log_partitioner.errors import PathsError
from log_partitioner.formats.model import SourceRecord
from log_partitioner.input.decode import RecordContent

ENTRIES = 1000  # of a source topic, which a process looks at
FEW = 10  # entries: with fewer nothing is judged yet
TOO_FEW_TO_STOP = 100  # entries: a first batch with fewer is committed, even if all are dead
SAMPLES = 20
FIELDS_MAX, FIELD_CHARS_MAX = 40, 60
_PLAIN = re.compile(r"@?[A-Za-z_][\w.-]*")  # another name may be a user's, if a map is keyed by user


class _Look:
    """Counts over the first entries of one topic."""

    def __init__(self) -> None:
        self.entries = self.dead = self.timestamps = self.samples = self.envelopes = 0
        self.fields: dict[str, None] = {}

    def sample(self, decoded: RecordContent) -> None:
        if self.samples < SAMPLES and decoded.entries:
            self.samples += 1
            self.envelopes += decoded.entries[0][3] is not None
            for _, entry, *_ in decoded.entries[:SAMPLES]:
                self.fields |= dict.fromkeys(list(entry)[:FIELDS_MAX])


class FirstLook:
    """Counts the first entries of each source topic; used by one recorder. It costs nothing after enough entries."""

    def __init__(self, settings: Settings, rules: RulesByTopic) -> None:
        self.has_fit = False
        """A batch was not almost all dead: whatever a sample said, the settings fit the source."""
        self._share_max = settings.dead_letters.share_max
        self._sources = settings.kafka.sources
        self._rules = rules
        self._looks: dict[str, _Look] = {}
        self._begun: set[str] = set()  # a topic that matches a pattern may come at any time
        self._poll: Poll | None = None
        self._topic_of: list[str] = []
        self._is_here = False
        self._log = structlog.get_logger("first_look")

    # The first entries of a topic.

    def until(self, poll: Poll, first: int, stop: int) -> int:
        """Return the end of a run of records of one topic; `stop` if no topic of the poll is looked at any more."""
        if poll is not self._poll:
            self._poll = poll
            self._topic_of = [tp.topic for tp in poll.tps]
            self._is_here = any(self._look_at(self._topic_of[tp]) for tp in set(poll.tp_of))
        if not self._is_here:
            return stop
        topic_of = self._topic_of
        topic = topic_of[poll.tp_of[first]]
        return next((at for at in range(first, stop) if topic_of[poll.tp_of[at]] != topic), stop)

    def took(self, poll: Poll, first: int, run: TakenRun) -> None:
        """Count the entries of a run that the fast lane took at a place of a poll; none is dead."""
        look = self._look_at(run.covered[0].tp.topic) if run.covered else None
        if look is None:
            return
        decode = self._rules[run.covered[0].tp.topic].decoder.decode
        for at in range(first, first + run.records, max(1, run.records // SAMPLES)):
            if look.samples < SAMPLES:
                look.sample(decode(poll.values[at]))
        self._count(run.covered[0].tp.topic, look, run.entries, 0, run.fallbacks)

    def recorded(self, record: SourceRecord, decoded: RecordContent, *, dead: int, timestamps: int) -> None:
        """Count one record."""
        look = self._look_at(record.tp.topic)
        if look is not None:
            look.sample(decoded)
            entries = len(decoded.entries) + len(decoded.bad)
            self._count(record.tp.topic, look, entries, dead, timestamps)

    def _look_at(self, topic: str) -> _Look | None:
        """Return the look at a topic, as long as there is one."""
        if topic not in self._begun:
            self._begun.add(topic)
            self._looks[topic] = _Look()
        return self._looks.get(topic)

    def closed(self) -> None:
        """Judge by the entries so far when a batch is closed: a quiet topic does not wait for its thousandth entry."""
        for topic, look in [*self._looks.items()]:
            if look.entries >= FEW:
                self._judge(topic, look)

    def _count(self, topic: str, look: _Look, entries: int, dead: int, timestamps: int) -> None:
        look.entries += entries
        look.dead += dead
        look.timestamps += timestamps
        if look.entries >= ENTRIES:
            self._judge(topic, look)
            self._looks.pop(topic, None)

    def _judge(self, topic: str, look: _Look) -> None:
        settings = self._rules[topic].settings
        has_no_envelope = bool(settings.input.entries_path) and look.samples >= FEW and not look.envelopes
        unread = look.timestamps if settings.time.paths else 0  # without a path Kafka's time is wanted
        if 2 * (look.dead + unread) <= look.entries and not has_no_envelope:
            return
        del self._looks[topic]
        self._log.warning(
            "paths_doubted", topic=topic, entries=look.entries, dead_letters=look.dead,
            record_timestamps=look.timestamps, envelopes=look.envelopes, settings=_paths_of(settings),
            fields=list(_shown(look.fields)),
            advice=f"`log-partitioner try --topic {topic}` shows what the settings make of its newest records",
        )  # fmt: skip

    # The first batch: a wrong path must not commit a topic away.

    def require_fit(self, batch: ClosedBatch, flushed_topics: Collection[str]) -> None:
        """Require that a batch is not almost all dead, unless the group has flushed its topics before.

        A topic that only a pattern matches stops no group that has flushed other topics: anybody may make such a topic.

        Raises:
            PathsError: it is; nothing of it is committed.
        """
        entries, dead, share_max = batch.entries, batch.dead, self._share_max
        self.has_fit |= entries >= TOO_FEW_TO_STOP and dead < share_max * entries
        if share_max >= 1 or entries < TOO_FEW_TO_STOP or dead < share_max * entries:
            return
        topics = sorted(batch.topics)
        if any(topic in flushed_topics for topic in topics):
            return
        if flushed_topics and not any(map(self._sources.are_naming, topics)):
            return
        reasons: Counter[str] = Counter()
        for letter in batch.dead_letters:
            reasons[letter.reason.value] += letter.entries
        look = _Look()
        for letter in batch.dead_letters[:SAMPLES]:
            if letter.record.unreadable is None:
                decode = self._rules[letter.record.tp.topic].decoder.decode
                look.sample(decode(letter.record.value, letter.record.headers))
        each = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        paths = (
            f"{name}: {', '.join(values)}; " for name, values in _paths_of(self._rules[topics[0]].settings).items()
        )
        raise PathsError(
            f"{dead} of the first {entries} entries of {', '.join(topics)} are dead letters ({each}); nothing was "
            f"committed, since the group has committed nothing there before; {''.join(paths)}try settings on a sample: "
            f"`log-partitioner try --topic {topics[0]}`; to accept these dead letters: dead_letters.share_max = 1 "
            f"(LOGP_DEAD_LETTERS__SHARE_MAX); fields that were seen: {', '.join(_shown(look.fields)) or 'none'}"
        )


def _paths_of(settings: Settings) -> dict[str, Sequence[str]]:
    """Return the settings with paths, by name."""
    paths: dict[str, Sequence[str]] = {"user.paths": settings.user.paths, "time.paths": settings.time.paths}
    path = settings.input.entries_path
    return paths if path is None else paths | {"input.entries_path": (path,)}


def _shown(fields: Iterable[str]) -> Iterator[str]:
    every = list(fields)
    names = [name for name in every if _PLAIN.fullmatch(name)]
    for name in names[:FIELDS_MAX]:
        yield name if len(name) <= FIELD_CHARS_MAX else name[:FIELD_CHARS_MAX] + "..."
    if len(names) > FIELDS_MAX:
        yield f"and {len(names) - FIELDS_MAX} more"
    if len(every) > len(names):
        yield f"and {len(every) - len(names)} that are no plain names"
