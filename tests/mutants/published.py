"""The published bugs of the service that this one is built after, in the form that they can take here."""

from __future__ import annotations

from log_partitioner.runtime.controller import Controller
from tests.fakes.consumer import FakeConsumer
from tests.fakes.worker import Parts
from tests.mutants import adapters, patches, read_ahead, workers
from tests.mutants.mutant import ZOMBIES, Mutant, Patch, RealRun, fast
from tests.mutants.read_ahead import ReadAhead
from tests.mutants.transactions import TrustsAnyMembership
from tests.simulation.swarm import Style

BLOG = "zio-kafka story"


def over_fakes(layer: type[ReadAhead]) -> type[FakeConsumer]:
    """Return a fake consumer under a layer."""
    return type(f"Fake{layer.__name__}", (layer, FakeConsumer), {})


def _layered(name: str, wrong: str, layer: type[ReadAhead], *stories: str) -> Mutant:
    return Mutant(
        name,
        wrong,
        stories,
        Parts(consumer=over_fakes(layer)),
        style=Style.COOPERATIVE,
        real=RealRun("rebalances", lambda: adapters.layer(layer)),
    )


PUBLISHED = (
    Mutant(
        "spans-generations",
        "goes on with the open batch over an assignment, and commits it in the old generation",
        (f"{BLOG}: #427, why streams are restarted",),
        Parts(controller=workers.SpansGenerations),
        style=Style.COOPERATIVE,
        fast=fast("runtime/test_controller::test_assignment_flushes_the_open_batch_first"),
        blind="its commits are refused; what they had is read again, and nothing is lost or doubled",
    ),
    Mutant(
        "flushes-what-is-lost",
        "treats lost like revoked, and looks at no member id",
        (f"{BLOG}: #427, onLost was onRevoked", "V01: flush in on_lost"),
        Parts(controller=workers.FlushesWhatIsLost, committer=TrustsAnyMembership),
        style=Style.COOPERATIVE,
        swarm=ZOMBIES,
        fast=fast("runtime/test_controller::test_lost_discards_everything_and_rewinds_the_rest"),
    ),
    Mutant(
        "flushes-on-lost",
        "treats lost like revoked, every other rule in force",
        ("V01: flush in on_lost",),
        patches=(Patch(Controller, "on_lost", patches.flush_on_lost),),
        fast=fast("runtime/test_controller::test_lost_discards_everything_and_rewinds_the_rest"),
        blind="the commit of what is lost is refused as that of another member, twice: by the worker and by the broker",
    ),
    _layered(
        "drops-its-buffer",
        "a layer over the client library ends its streams at a rebalance, with records that wait for those that stay",
        read_ahead.DropsItsBuffer,
        f"{BLOG}: #469, fix attempts 1 and 2",
    ),
    _layered(
        "keeps-nothing-unasked",
        "such a layer does not keep what the poll of a rebalance returned of streams that had not asked",
        read_ahead.KeepsNothingUnasked,
        f"{BLOG}: #473, fix attempt 3",
    ),
    _layered(
        "answers-ended-streams",
        "such a layer answers requests of streams that are ended with what the poll of the rebalance returned",
        read_ahead.AnswersEndedStreams,
        f"{BLOG}: #473, fix attempt 4",
    ),
    _layered(
        "expects-both-callbacks",
        "such a layer takes a rebalance for one only if revoke and assignment come in one poll",
        read_ahead.ExpectsBothCallbacks,
        f"{BLOG}: #473, fix attempt 5",
    ),
    _layered(
        "answers-late-requests",
        "such a layer takes requests that ended streams make between revoke and assignment for those of the new ones",
        read_ahead.AnswersLateRequests,
        f"{BLOG}: #473 and #500, fix attempt 6",
    ),
    _layered(
        "keeps-what-is-revoked",
        "such a layer keeps records of what was given back, and hands them over when it comes again",
        read_ahead.KeepsWhatIsRevoked,
        "the remedy of attempt 2, one step too far",
    ),
    Mutant(
        "drops-polled-records",
        "the worker drops what one consume handed over when a rebalance came in the middle of it",
        (f"{BLOG}: fix attempt 4, behind the tap", "V01: drop buffered records on rebalance"),
        Parts(runloop=workers.DropsBufferedRecords),
        style=Style.COOPERATIVE,
        fast=fast(
            "runtime/test_runloop::test_finding_1_rebalance_in_the_middle_of_one_consume_drops_no_record",
            "cooperative",
            "TRANSACTION_ABORTABLE",
            False,  # noqa: FBT003 - a case
        ),
        real=RealRun("rebalances"),
    ),
    Mutant(
        "commits-the-position",
        "takes the client's position for what is recorded",
        (f"{BLOG}: the position had moved past what was dropped",),
        Parts(controller=workers.CommitsThePosition),
        style=Style.COOPERATIVE,
        fast=fast("runtime/test_runloop::test_finding_5_ledger_and_not_the_position_says_what_is_committed"),
    ),
)
