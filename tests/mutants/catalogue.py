"""The thirteen wrong builds that any checker of such a worker should notice (V01), but for those of `published`."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from tests.fakes.committer import Outcome
from tests.fakes.store import PutFault
from tests.fakes.worker import Parts
from tests.mutants import adapters, workers
from tests.mutants.mutant import QUIET, ZOMBIES, FastTest, Mutant, RealRun, fast
from tests.mutants.transactions import (
    AnnouncesOutsideTheTransaction,
    IgnoresDeliveryReports,
    KeepsItsProducer,
    ReadsUncommitted,
    TrustsAnyMembership,
)
from tests.simulation.swarm import Style
from tests.unit.adapters import test_kafka_committer
from tests.unit.adapters.scripted_kafka import fresh_producer_class

# Two rebalances in one consume, with a flush that fails in the first; commits that are held up half-way.
BACK_AT_ONCE = replace(QUIET, members=0.15, outcome=0.8, stop=0.1, old_library=1.0)
HELD_UP = replace(QUIET, at_zombie=0.008, members=0.03)

_ADAPTERS = "tests/unit/adapters"


def _committer_bench(monkeypatch: pytest.MonkeyPatch) -> tuple[test_kafka_committer.Bench]:
    producers = fresh_producer_class()
    monkeypatch.setattr(confluent_kafka, "Producer", producers)
    return (test_kafka_committer.Bench(producers),)


CATALOGUE = (
    Mutant(
        "commits-one-too-far",
        "commits the offset behind the next one",
        ("V01: commit position + 1",),
        Parts(flusher=workers.CommitsOneTooFar),
        fast=fast("runtime/test_flusher::test_flush_of_a_batch_commits_references_flush_record_and_offsets_together"),
        real=RealRun("rebalances"),
    ),
    Mutant(
        "commits-before-it-uploads",
        "commits first and uploads afterwards what it has announced",
        ("V01: commit before upload",),
        Parts(flusher=workers.CommitsBeforeItUploads),
        fast=fast(
            "runtime/test_flusher::test_flush_whose_upload_is_not_acknowledged_produces_nothing", PutFault.NOT_STORED
        ),
    ),
    Mutant(
        "keeps-its-producer",
        "uses one producer for all transactions, also after a time-out",
        ("V01: reuse producer after time-out",),
        Parts(committer=KeepsItsProducer),
        adapters.KEEPS_ITS_PRODUCER,
        fast=FastTest(
            f"{_ADAPTERS}/test_kafka_committer.py::test_finding_2_every_transaction_has_a_producer_of_its_own",
            _committer_bench,
        ),
    ),
    Mutant(
        "reads-uncommitted",
        "reads the source uncommitted, so that committed offsets are asked for while a transaction over them is open",
        ("V01: read_uncommitted",),
        Parts(consumer=ReadsUncommitted),
        adapters.READS_UNCOMMITTED,
        swarm=HELD_UP,
        fast=fast("runtime/test_positions::test_finding_7_read_committed_is_what_makes_committed_offsets_stable"),
    ),
    Mutant(
        "never-rewinds",
        "does not seek back after a flush that failed",
        ("V01: skip rewind after abort",),
        Parts(controller=workers.NeverRewinds),
        style=Style.COOPERATIVE,
        fast=fast(
            "runtime/test_runloop::test_finding_8_failed_flush_in_the_middle_of_one_consume_rewinds_everything_owned",
            "TRANSACTION_ABORTABLE",
        ),
    ),
    Mutant(
        "rewinds-nothing-kept",
        "after a failure on revoke rewinds what is given back, which nobody may seek, and not what is kept",
        ("V01: rewind only revoked partitions",),
        Parts(controller=workers.RewindsNothingKept),
        style=Style.COOPERATIVE,
        fast=fast("runtime/test_controller::test_discard_on_revoke_rewinds_only_what_is_kept"),
    ),
    Mutant(
        "records-what-is-not-owned",
        "writes every record that it is handed",
        ("V01: no stale-record filter",),
        Parts(recorder=workers.RecordsWhatIsNotOwned),
        fast=fast("runtime/test_runloop::test_records_of_a_topic_partition_not_owned_are_refused_and_counted"),
    ),
    Mutant(
        "accepts-stale-records",
        "takes records from before a TopicPartition was given back for those after it came again",
        ("V01: no stale-record filter, within one consume",),
        Parts(controller=workers.AcceptsStaleRecords),
        style=Style.COOPERATIVE,
        swarm=BACK_AT_ONCE,
        fast=fast(
            "runtime/test_runloop::test_finding_1_given_away_and_got_back_in_one_consume_loses_no_record",
            "cooperative",
            "TRANSACTION_ABORTABLE",
        ),
    ),
    Mutant(
        "ignores-delivery-reports",
        "commits though a message of the transaction was not delivered",
        ("V01: ignore delivery-report errors",),
        Parts(committer=IgnoresDeliveryReports),
        adapters.IGNORES_DELIVERY_REPORTS,
        fast=FastTest(
            f"{_ADAPTERS}/test_kafka_committer.py::test_message_that_is_not_delivered_aborts",
            _committer_bench,
        ),
    ),
    Mutant(
        "announces-outside",
        "produces references outside the transaction",
        ("V01: emit references outside the transaction",),
        Parts(committer=AnnouncesOutsideTheTransaction),
        adapters.ANNOUNCES_OUTSIDE,
        fast=fast(
            "runtime/test_controller::test_unknown_outcome_goes_on_from_what_was_really_committed",
            "cooperative",
            Outcome.UNKNOWN_OPEN,
            False,  # noqa: FBT003 - a case
        ),
        real=RealRun("kills"),
    ),
    Mutant(
        "uses-its-spool-again",
        "begins a batch with the rows of the one that was given up",
        ("V01: reuse spool after restart; a process that begins anew has no rows here",),
        Parts(recorder=workers.UsesItsSpoolAgain),
        fast=fast("runtime/test_runloop::test_disk_that_fails_four_times_does_not_stop_the_worker", "finish"),
    ),
    Mutant(
        "repeats-unknown-commits",
        "commits the same messages again if the outcome is unknown",
        ("V01: retry unknown commit by re-emitting",),
        Parts(flusher=workers.RepeatsUnknownCommits),
        fast=fast("runtime/test_flusher::test_unknown_outcome_is_told_apart_from_an_abort", Outcome.UNKNOWN_COMMITTED),
    ),
    Mutant(
        "trusts-any-membership",
        "takes whatever group metadata there is for that of the batch",
        ("the broker does not fence metadata without generation and member id",),
        Parts(controller=workers.IgnoresMemberIds, committer=TrustsAnyMembership),
        style=Style.COOPERATIVE,
        swarm=ZOMBIES,
        fast=fast("runtime/test_controller::test_finding_6_revoked_instead_of_lost_commits_nothing"),
    ),
    Mutant(
        "forgets-unknown-outcomes",
        "takes an unknown outcome for an abort, and goes on where the batch began",
        ("the answer to a commit was lost",),
        Parts(controller=workers.ForgetsUnknownOutcomes),
        fast=fast(
            "runtime/test_controller::test_unknown_outcome_goes_on_from_what_was_really_committed",
            "cooperative",
            Outcome.UNKNOWN_COMMITTED,
            False,  # noqa: FBT003 - a case
        ),
    ),
    Mutant(
        "shares-its-progress",
        "closes a batch without a copy of its progress, and begins the next before the flush has ended",
        ("what an overlap of upload and recording would do",),
        Parts(recorder=workers.SharesItsProgress),
        fast=fast("runtime/test_flusher::test_flush_gives_what_it_has_announced"),
    ),
)
