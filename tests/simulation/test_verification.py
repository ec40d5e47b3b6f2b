"""Verification mode over whole workers: silent where nothing is wrong, and loud about what it is made for.

It is on in some seeds of every other test here; in these it ends the worker that it finds wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.boundary import StoredObject
from service.formats.model import SourceRecord
from service.input.decode import Decoded, RecordDecoder
from service.runtime.flusher import Flusher
from service.runtime.verification import VerifyRules
from tests.fakes.check import InvariantError
from tests.fakes.consumer import FakeConsumer
from tests.fakes.store import FakeObjectStore
from tests.fakes.worker import DEAD_LETTERS, Parts
from tests.simulation import mutants
from tests.simulation.conftest import Run
from tests.simulation.swarm import Style, Swarm
from tests.simulation.test_mutants import EVERYTHING

ALL = VerifyRules(1.0, 10**7, is_stopping=True)
SEEDS_MAX = 100
FOUND = "VerificationError: verification: committed flushes differ from what was consumed: "


def differences_found(run_seed: Run, *, parts: Parts | None = None, style: Style | None = None) -> str:
    """Give what the first seed says in which verification mode finds a difference."""
    for seed in range(0, 2 * SEEDS_MAX, 2):  # the fast lane is in the others, which Python's code does not change
        try:
            run_seed(seed, style=style, swarm=EVERYTHING, parts=parts, verify=ALL)
        except (InvariantError, AssertionError) as error:
            _, found, differences = str(error).partition(FOUND)
            if found:
                return differences
    pytest.fail(f"{SEEDS_MAX} seeds find nothing")


_decode = RecordDecoder.decode
_put = FakeObjectStore.put
_pop = FakeConsumer._pop
_messages = Flusher._messages


def _leaves_one_out(own: RecordDecoder, value: bytes | None) -> Decoded:
    decoded = _decode(own, value)
    return decoded._replace(entries=decoded.entries[:-1]) if len(decoded.entries) > 1 else decoded


def _writes_one_twice(own: RecordDecoder, value: bytes | None) -> Decoded:
    decoded = _decode(own, value)
    return decoded._replace(entries=[*decoded.entries, *decoded.entries[-1:]]) if len(decoded.entries) > 1 else decoded


def _overwrites(own: FakeObjectStore, key: str, body: bytes, **more: Any) -> StoredObject:
    stored = _put(own, key, body, **more)
    if key.endswith(".avro"):
        own._bucket.objects[key] = bytes(len(body))
    return stored


def _sends_no_letters(own: Flusher, *arguments: Any) -> Any:
    return (one for one in _messages(own, *arguments) if one.topic != DEAD_LETTERS)


def _drops_before_the_tap(own: FakeConsumer, records_max: int) -> list[SourceRecord]:
    """Lose records as a client library might: never the last one, or the lag would tell."""
    ends = {tp: log.records[-1].offset for tp, log in own._broker.logs.items() if log.records}
    return [one for one in _pop(own, records_max) if one.offset % 17 != 5 or one.offset == ends[one.tp]]


@pytest.mark.parametrize("style", [Style.COOPERATIVE, Style.KIP848])
def test_records_dropped_at_a_rebalance_are_lost(style: Style, run_seed: Run) -> None:
    """Consumed, behind the position, and in no batch: what this mode is for."""
    found = differences_found(run_seed, parts=Parts(runloop=mutants.DropsBufferedRecords), style=style)
    assert "lost" in found


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Parts(controller=mutants.NeverRewinds), id="never-rewinds"),
        pytest.param(Parts(controller=mutants.RewindsNothingKept), id="rewinds-nothing-kept"),
        pytest.param(Parts(controller=mutants.AcceptsStaleRecords), id="accepts-stale-records"),
    ],
)
def test_records_of_a_discarded_batch_that_do_not_come_again_are_lost(wrong: Parts, run_seed: Run) -> None:
    """Forgotten is only what is sought, or assigned anew."""
    style = Style.EAGER if wrong.controller is mutants.AcceptsStaleRecords else Style.COOPERATIVE
    assert "lost" in differences_found(run_seed, parts=wrong, style=style)


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "kind"),
    [
        pytest.param(RecordDecoder, "decode", _leaves_one_out, "missing", id="row-left-out"),
        pytest.param(RecordDecoder, "decode", _writes_one_twice, "duplicated", id="row-twice"),
        pytest.param(FakeObjectStore, "put", _overwrites, "object_altered", id="object-overwritten"),
        pytest.param(Flusher, "_messages", _sends_no_letters, "lost", id="dead-letter-not-sent"),
    ],
)
def test_wrong_flush_is_found(
    owner: Any, name: str, wrong: Callable[..., Any], kind: str, run_seed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what leaves the worker, and of what lies in the store."""
    monkeypatch.setattr(owner, name, wrong)
    assert kind in differences_found(run_seed)


def test_records_dropped_before_the_tap_are_for_the_audit(run_seed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client library never handed over was not consumed: only who reads the source anew misses it."""
    monkeypatch.setattr(FakeConsumer, "_pop", _drops_before_the_tap)
    for seed in range(4):
        with pytest.raises(InvariantError, match=r"^I1: "):
            run_seed(seed, swarm=Swarm().healed(), verify=ALL)


def test_unverified_entries_and_differences_stay_none_where_nothing_goes_wrong(run_seed: Run) -> None:
    """Without faults every entry that is committed is verified."""
    for style in Style:
        world = run_seed(1, style=style, swarm=Swarm().healed(), verify=ALL)
        told = "\n".join(world.trace)
        assert "flush_verified" in told
        assert "entries_not_verified" not in told
