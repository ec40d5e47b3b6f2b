"""What nobody can read, and what ended the worker: the audit on Spark passes both by as the worker did."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from deploy.local.kafka import KafkaCluster
from pipeline.audit.auditor import Auditor, Options
from pipeline.audit.put_away import PutAway
from pipeline.audit.result import Result, Verdict, Window
from service.accounting import Kind
from service.formats.dead_letter import HEADER_END_OFFSET, HEADER_OFFSET, HEADER_REASON, Reason
from service.formats.model import FATAL, OffsetRanges, SourceRecord, TopicPartition
from tests.integration.harness import Deployment
from tests.integration.test_fatal_record import DEADLY, ENDS, EXIT_CODE
from tests.integration.test_unreadable import BATCH, damage, entry, write_batches
from tests.pipeline.conftest import Lake
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.providers import jars
from tests.stack.s3_helper import S3Helper

TP, OTHER = TopicPartition("app", 0), TopicPartition("app", 1)


def spans_of(put_away: PutAway, ranges: OffsetRanges) -> list[tuple[int, int, int]]:
    """Give what is left of ranges, in order."""
    pieces = put_away.around(ranges)
    return sorted((tp.partition, *span) for piece in pieces for tp, span in piece.items() if span[0] < span[1])


def test_ranges_are_cut_around_what_cannot_be_read() -> None:
    """Once or several times, at the begin and at the end; each piece has one range of a TopicPartition."""
    put_away = PutAway({(TP, 20): 30, (TP, 40): 41, (OTHER, 0): 5}, frozenset())
    everything = {TP: (0, 50), OTHER: (0, 10)}
    assert spans_of(put_away, everything) == [(0, 0, 20), (0, 30, 40), (0, 41, 50), (1, 5, 10)]
    assert spans_of(put_away, {TP: (21, 50)}) == [(0, 30, 40), (0, 41, 50)], "it begins within"
    assert spans_of(put_away, {TP: (5, 25)}) == [(0, 5, 20)], "it ends within"
    overlapping = PutAway({(TP, 10): 20, (TP, 15): 30}, frozenset())
    assert spans_of(overlapping, {TP: (0, 40)}) == [(0, 0, 10), (0, 30, 40)]
    assert put_away.starts_in({TP: (20, 40)}) == [(TP, 20)]


def test_record_is_seen_as_the_worker_has_seen_it() -> None:
    record = SourceRecord(TP, 20, None, b"k", b"v", ())
    assert PutAway({}, frozenset([(TP, 20)])).seen(record).unreadable == FATAL
    assert PutAway({(TP, 20): 30}, frozenset()).seen(record).end_offset == 30
    assert PutAway({(TP, 21): 30}, frozenset([(OTHER, 20)])).seen(record) is record


def audit(lake: Lake, *, until_ms: int | None = None) -> Result:
    """Audit in this process."""
    window = Window(from_ms=None, until_ms=until_ms, padding_s=600)
    return Auditor(lake.spark, lake.settings, Options(window, verdicts=False)).run()


def test_both_audits_are_clean_where_everything_else_is(
    s3: S3Helper, names: Names, tmp_path: Path, lake_of: Callable[..., Lake]
) -> None:
    """A record batch is damaged on the broker's disk, and one record ends each process that decodes it."""
    with KafkaCluster(jars=jars(), root=tmp_path / "damaged", brokers=1) as broker:
        kafka = KafkaHelper(broker.bootstrap_servers, provider="local process")
        settings = {"LOGP_FLUSH__INTERVAL_S": "1", "LOGP_KAFKA__ON_UNREADABLE": "dead-letter"}
        with Deployment(kafka=kafka, s3=s3, names=names, root=tmp_path, partitions=2, settings=settings) as deployment:
            written = write_batches(deployment, damaged=2)
            deadly = [ToProduce(value=entry(n, text="deadly" if n == 3 else "fine"), partition=1) for n in range(BATCH)]
            written += kafka.produce(deployment.source, deadly)
            damage(broker, deployment.source)
            for _ in range(ENDS):
                deployment.start("w1", inside=[sys.executable, "-c", DEADLY])
                assert deployment.exit_code("w1", within_s=60) == EXIT_CODE
            deployment.start("w1", inside=[sys.executable, "-c", DEADLY])
            deployment.wait_drained(written, timeout_s=90)
            assert deployment.stop_all() == {"w1": 0}
            dead = {"unreadable": 1, "fatal": 1}
            assert deployment.require_clean().json["dead_letters"] == dead

            lake = lake_of(deployment)
            for until_ms in (None, time.time_ns() // 1_000_000):
                result = audit(lake, until_ms=until_ms)
                assert (result.verdict, result.dead_letters) == (Verdict.CLEAN, dead), result
                assert result.counts.in_files == len(written) - BATCH - 1

            # Who says so of records that can be read has lost them.
            letters = [dict(one.headers() or ()) for one in deployment.dead_letters()]
            (headers,) = [one for one in letters if one[HEADER_REASON] == Reason.UNREADABLE.encode()]
            headers |= {HEADER_OFFSET: b"0", HEADER_END_OFFSET: b"10"}
            kafka.produce(deployment.dead_letters_topic, [ToProduce(value=None, headers=headers)])
            found = {one.kind: one.count for one in audit(lake).findings}
            assert found[Kind.DEAD_LETTER_UNEXPECTED] == 1
