"""Small rules taken out one at a time: start positions, conservation, liveness, and bugs that tests once let pass."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from log_partitioner.control import state
from log_partitioner.control.flush_policy import FlushCost
from log_partitioner.input import json_text
from log_partitioner.input.decode import RecordDecoder
from log_partitioner.runtime import recorder
from log_partitioner.runtime.controller import Controller
from log_partitioner.runtime.flusher import Flusher
from log_partitioner.runtime.positions import Positions
from log_partitioner.runtime.refetch import Refetcher
from log_partitioner.runtime.runloop import Runloop
from tests.fakes.committer import Outcome
from tests.fakes.consumer import FakeConsumer
from tests.fakes.member import HastyMember848
from tests.fakes.store import FakeObjectStore
from tests.fakes.worker import Parts
from tests.mutants import adapters, patches, workers
from tests.mutants.mutant import QUIET, FastTest, Mutant, Patch, RealRun, fast
from tests.mutants.transactions import GoesPastDamage, TakesZeroForNone
from tests.simulation.swarm import Style, Swarm
from tests.unit.adapters import test_kafka_consumer
from tests.unit.adapters.scripted_kafka import fresh_consumer_class
from tests.unit.runtime.test_replays import two_hops

_ADAPTERS = "tests/unit/adapters"
THROTTLED = Swarm(throttle=1.0)
DAMAGED = Swarm(damage=0.05)
STOPPED = replace(QUIET, at_zombie=0.02, members=0.08, outcome=0.6, at_interleave=0.06)
FAILING = replace(QUIET, outcome=0.5, members=0.05)
LOADING = replace(QUIET, coordinator=0.08, outcome=0.3, members=0.08, at_interleave=0.06)
LIVENESS = "found in the first slice: the same files were uploaded and discarded for ever at 50 PUT/s"
SURVIVOR = "survived all fast tests once"
FAULT = "faults that nobody injected: an error event in the place of a record"


def _consumer_bench(monkeypatch: pytest.MonkeyPatch) -> tuple[test_kafka_consumer.Bench]:
    consumers = fresh_consumer_class()
    monkeypatch.setattr(confluent_kafka, "Consumer", consumers)
    return (test_kafka_consumer.Bench(consumers),)


SURVIVORS = (
    Mutant(
        "takes-zero-for-none",
        "takes a committed offset of 0 for none",
        (SURVIVOR,),
        Parts(consumer=TakesZeroForNone),
        adapters.TAKES_ZERO_FOR_NONE,
        fast=FastTest(
            f"{_ADAPTERS}/test_kafka_consumer.py::test_committed_offsets_are_numbers_or_none", _consumer_bench
        ),
    ),
    Mutant(
        "repeats-as-another-member",
        "repeats a commit that met a new generation as whichever member it is by now",
        (SURVIVOR,),
        Parts(flusher=workers.RepeatsAsAnotherMember, member848=HastyMember848),
        style=Style.KIP848,
        swarm=STOPPED,
        fast=fast("runtime/test_flusher::test_illegal_generation_of_another_member_is_a_discard"),
        is_rare=True,
    ),
    Mutant(
        "one-digit-too-many",
        "takes a decimal of sixteen digits and a point for one that a double holds",
        (SURVIVOR,),
        patches=(Patch(json_text, "_EXACT_CHARS", 17),),
        fast=fast(
            "input/test_json_text::test_number_that_a_double_does_not_hold_is_rounded_and_counted_or_kept",
            b"9.291417776317066",
        ),
        blind="it has no such numbers: which literal a double holds is for the tests of values",
    ),
)

BEFORE_THE_TAP = (
    Mutant(
        "drops-before-the-tap",
        "the client library loses records before anybody of ours has seen them",
        ("what the verification step of the zio-kafka story could not see",),
        patches=(Patch(FakeConsumer, "_pop", patches.drops_before_the_tap),),
        swarm=QUIET,
        real=RealRun("rebalances", lambda: adapters.DROPS_BEFORE_THE_TAP),
    ),
)

LIVE = (
    Mutant(
        "never-smaller",
        "follows a batch that was discarded for lack of time by one as large, and learns nothing from it",
        (LIVENESS,),
        patches=(
            Patch(state, "shrunk", patches.shrinks_nothing),
            Patch(FlushCost, "after", patches.learns_from_commits_alone),
        ),
        swarm=THROTTLED,
        fast=fast(
            "runtime/test_liveness::test_store_in_proportion_to_objects_makes_flushes_smaller_and_one_is_discarded_at_most",
            300,
            2.0,
        ),
    ),
    Mutant(
        "goes-on-behind-damage",
        "goes on at the next offset that can be read, without a dead letter for those before it",
        (FAULT,),
        patches=(Patch(Refetcher, "turn", patches.goes_on_behind_damage),),
        swarm=DAMAGED,
        fast=fast("runtime/test_refetch::test_nothing_behind_an_unreadable_record_is_committed"),
        real=RealRun("damage"),
    ),
    Mutant(
        "takes-error-events-for-nothing",
        "takes an error event of the client library for nothing, and what follows it for the next record",
        (FAULT,),
        Parts(consumer=GoesPastDamage),
        adapters.GOES_PAST_DAMAGE,
        swarm=DAMAGED,
        fast=FastTest(
            f"{_ADAPTERS}/test_kafka_consumer.py::"
            "test_nothing_behind_what_cannot_be_read_is_handed_over_until_it_is_sought",
            _consumer_bench,
        ),
        real=RealRun("damage"),
    ),
)

CONSERVATION = (
    Mutant(
        "by-the-root-alone",
        "discards a record whose root is not beyond the highest one recorded, whatever way it came",
        ("an earlier design: the highest offset by the root's TopicPartition",),
        patches=(Patch(recorder, "place_of", patches.by_the_root_alone),),
        fast=fast("runtime/test_replays::test_replays_along_ways_without_order_between_them_are_told_apart", two_hops),
        blind="no republisher is in the worlds of the other mutants",
    ),
    Mutant(
        "leaves-an-entry-out",
        "forgets the last entry of a record that has several",
        ("a record holds several entries, and one is missing",),
        patches=(Patch(RecordDecoder, "decode", patches.leaves_one_out),),
        fast=fast("runtime/test_recorder::test_one_bad_entry_costs_its_neighbours_nothing"),
    ),
    Mutant(
        "writes-an-entry-twice",
        "takes the last entry of a record that has several twice",
        ("the opposite of the one above",),
        patches=(Patch(RecordDecoder, "decode", patches.writes_one_twice),),
        fast=fast("runtime/test_recorder::test_one_bad_entry_costs_its_neighbours_nothing"),
    ),
    Mutant(
        "overwrites-objects",
        "writes other bytes over an object once it is stored",
        ("objects are immutable",),
        patches=(Patch(FakeObjectStore, "put", patches.overwrites),),
    ),
    Mutant(
        "sends-no-dead-letters",
        "leaves dead letters out of the transaction",
        ("one bad entry in a record",),
        patches=(Patch(Flusher, "_messages", patches.sends_no_letters),),
        fast=fast("runtime/test_verification::test_dead_letters_and_ids_are_verified"),
    ),
    Mutant(
        "records-past-a-failed-flush",
        "takes a record that did not fit for the first of the next batch, whatever became of the flush before it",
        ("a large record beside a batch that was discarded",),
        patches=(Patch(Runloop, "_make_room", patches.record_past_a_failed_flush),),
        swarm=FAILING,
        fast=fast(
            "runtime/test_liveness::test_large_record_is_read_again_where_the_flush_before_it_fails",
            Outcome.UNKNOWN_OPEN,
        ),
    ),
    Mutant(
        "settles-before-init",
        "asks for the committed offsets before the last transaction is ended",
        ("a transaction whose outcome is unknown is ended by the next producer's init",),
        patches=(Patch(Controller, "prepare", patches.settle_before_init),),
        swarm=FAILING,
        fast=fast("runtime/test_controller::test_settle_asks_for_committed_offsets_after_the_next_producer_is_ready"),
        blind="the answer waits for stable offsets, whoever ends the transaction: a time-out, in place of an init",
    ),
)

_ONE_TOPIC = "its topics are never made anew, and lose no offsets"

STARTS = (
    Mutant(
        "asks-no-flush-records",
        "starts where the policy or the coordinator says, whatever the group has flushed",
        ("offsets expire", "a coordinator that has just loaded answers with offsets of long ago"),
        patches=(Patch(Positions, "_read_flush_records", patches.nothing),),
        swarm=LOADING,
        fast=fast(
            "runtime/test_positions::test_lost_offset_is_refused_with_the_offset_to_go_on_from", "kip848", "beginning"
        ),
    ),
    Mutant(
        "rewinds-to-long-ago",
        "rewinds to before what it has committed itself",
        ("a coordinator that has just loaded answers with offsets of long ago",),
        patches=(Patch(Positions, "_require_continued", patches.nothing),),
        swarm=LOADING,
        fast=fast("runtime/test_positions::test_rewind_that_stays_before_what_is_known_to_be_committed_is_refused"),
    ),
    Mutant(
        "takes-unknown-for-aborted",
        "does not ask the flush records whether a commit without an answer was made",
        ("a coordinator that has just loaded answers with offsets of long ago",),
        patches=(Patch(Positions, "forget", patches.nothing),),
        swarm=LOADING,
        fast=fast("runtime/test_positions::test_commit_without_an_answer_is_looked_for_in_the_flush_records"),
        is_rare=True,
    ),
    Mutant(
        "compares-no-ids",
        "takes an offset of a topic that was deleted for one of the topic that has its name",
        ("a committed offset is a number, not a place",),
        patches=(Patch(Positions, "_require_same_topics", patches.nothing),),
        fast=fast("runtime/test_positions::test_committed_offset_of_a_topic_that_was_made_anew_is_refused", "kip848"),
        blind=_ONE_TOPIC,
    ),
    Mutant(
        "does-not-watch",
        "goes on when a topic is made anew while it runs",
        ("a committed offset is a number, not a place",),
        patches=(Patch(Positions, "watch", patches.nothing),),
        fast=fast("runtime/test_positions::test_topic_made_anew_while_a_worker_runs_stops_it", "cooperative"),
        blind=_ONE_TOPIC,
    ),
)
