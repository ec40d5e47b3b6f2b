"""A store on its bad days: whatever it answers, an object counts only if a reference names it."""

import pytest

from tests.integration.flow import some_records
from tests.integration.harness import Deploy, Deployment
from tests.stack.s3_helper import S3Helper
from tools.local.s3_fault_rules import Action, Rule, access_denied, internal_error, lost_answer, slow_down
from tools.local.s3_faults import S3FaultProxy

DATA = "/user="  # part of the key of every object with data
ALWAYS = 1_000_000
DAMAGES = (Action.DROP_REQUEST, Action.ERROR_BODY, Action.CORRUPT_REQUEST)
QUICK = {"LOGP_FLUSH__INTERVAL_S": "0.5", "LOGP_KAFKA__SESSION_TIMEOUT_S": "4"}


@pytest.fixture
def deployment(s3_faults: S3FaultProxy, deploy: Deploy) -> Deployment:
    """A deployment whose workers reach the store through the fault proxy."""
    return deploy(endpoint=s3_faults.endpoint, settings=QUICK)


def _write(deployment: Deployment, count: int = 120) -> list[tuple[int, int]]:
    return deployment.kafka.produce(deployment.source, some_records(count, partitions=6))


def _data_keys(deployment: Deployment) -> set[str]:
    return {key for key in deployment.s3.keys(deployment.bucket) if DATA in f"/{key}"}


def _require_no_orphans(deployment: Deployment) -> None:
    """Each object with data is named by exactly one reference."""
    named = [reference.location.object for reference in deployment.references()]
    assert sorted(named) == sorted(_data_keys(deployment))


def test_burst_is_retried_within_the_flush(deployment: Deployment, s3_faults: S3FaultProxy) -> None:
    """503, 500, a closed connection, 200 with an error as body, a body damaged on its way: no batch is discarded."""
    s3_faults.add(
        slow_down(times=2, key=DATA),  # these are not counted; of the others there are fewer than attempts per object
        internal_error(times=1, key=DATA),
        *(Rule(action, "PUT", DATA, times=1) for action in DAMAGES),
    )
    written = _write(deployment)
    deployment.start("w1")
    deployment.wait_drained(written)

    assert s3_faults.done == {Action.STATUS: 3, **dict.fromkeys(DAMAGES, 1)}
    problems = [event["problem"] for event in deployment.require_event("upload_repeated", "w1", times=4)]
    for problem in ("503 SlowDown", "500 InternalError", "it closes the connection", "400 "):  # a line for each cause
        assert any(problem in one for one in problems), problems
    assert all(f"bucket {deployment.bucket} at {s3_faults.endpoint.url}" in one for one in problems)
    assert deployment.count("batch_discarded") == 0
    _require_no_orphans(deployment)
    deployment.require_clean()


def test_refused_for_long_discards_backs_off_and_goes_on(deployment: Deployment, s3_faults: S3FaultProxy) -> None:
    """The batch is discarded, its records are read again, each pause is longer, and in the end all is committed."""
    s3_faults.add(internal_error(times=ALWAYS, key=DATA))
    written = _write(deployment)
    deployment.start("w1")
    deployment.require_event("batch_discarded", "w1", times=2, cause="UploadError")
    assert deployment.committed() == 0
    s3_faults.clear()
    deployment.wait_drained(written)

    story = [
        event["event"]
        for event in deployment.events("w1")
        if event["event"] in ("batch_discarded", "paused", "resumed", "flush_committed")
    ]
    assert story[:4] == ["batch_discarded", "paused", "resumed", "batch_discarded"]
    assert [event["seconds"] for event in deployment.require_event("paused", "w1", times=2)][:2] == [1, 2]
    assert len(deployment.rewinds("w1")) >= 12
    # If the store came back amid the uploads of a batch, the store has some objects of a discarded batch.
    discarded = tuple(event["batch_id"] for event in deployment.events("w1") if event["event"] == "batch_discarded")
    named = {reference.location.object for reference in deployment.references()}
    orphans = set(_data_keys(deployment)) - named
    assert not [key for key in orphans if not key.rpartition("/")[2].startswith(discarded)]
    deployment.require_clean()


def test_answer_lost_after_storing_is_recognised_as_ours(deployment: Deployment, s3_faults: S3FaultProxy) -> None:
    """The retry is refused with 412; the object is compared, found to be ours, and referenced: it exists once."""
    s3_faults.add(lost_answer(times=3, key=DATA))
    written = _write(deployment)
    deployment.start("w1")
    deployment.wait_drained(written)

    deployment.require_event("upload_confirmed", "w1", times=3)
    assert deployment.count("batch_discarded") == 0
    _require_no_orphans(deployment)
    deployment.require_clean()


@pytest.mark.parametrize("action", [Action.STALL_ANSWER, Action.TRICKLE])
def test_stalled_store_is_left_at_the_deadline(deployment: Deployment, s3_faults: S3FaultProxy, action: Action) -> None:
    """An answer that never comes although all is stored, and one that never ends, which no read time-out sees."""
    s3_faults.add(Rule(action, "PUT", DATA, times=ALWAYS, delay_s=0.5 if action is Action.TRICKLE else 0))
    written = _write(deployment)
    deployment.start("w1", LOGP_FLUSH__BUDGET_S="20")
    deployment.require_event("batch_discarded", "w1", cause="UploadError")
    assert deployment.committed() == 0
    s3_faults.clear()
    deployment.wait_drained(written)

    named = {reference.location.object for reference in deployment.references()}
    assert named <= _data_keys(deployment), "orphans are allowed here, missing objects are not"
    assert deployment.stop_all() == {"w1": 0}
    deployment.require_clean()


def test_access_denied_ends_the_worker_with_one_line(deployment: Deployment, s3_faults: S3FaultProxy) -> None:
    """No storm of retries: it stops at once, says why, and has committed nothing."""
    s3_faults.add(access_denied(times=ALWAYS, key=DATA))
    written = _write(deployment)
    deployment.start("w1")

    assert deployment.exit_code("w1") == 1
    (line,) = deployment.complaints("w1")
    assert line.startswith(f"StoreRefusedError: bucket {deployment.bucket} at {s3_faults.endpoint.url}: 403")
    assert f"allow s3:PutObject on arn:aws:s3:::{deployment.bucket}/logs/*" in line
    assert deployment.committed() == 0
    s3_faults.clear()
    deployment.start("w1")
    deployment.wait_drained(written)
    deployment.require_clean()


def test_slow_store_at_a_revoke_releases_when_the_budget_is_spent(
    s3: S3Helper, s3_faults: S3FaultProxy, deploy: Deploy
) -> None:
    """The batch is discarded, the partitions are given back, and the new owner reads the records again."""
    settings = QUICK | {
        "LOGP_FLUSH__BUDGET_S": "20",
    }
    deployment = deploy(endpoint=s3_faults.endpoint, settings=settings)
    s3_faults.add(Rule(Action.STALL, "PUT", DATA, times=ALWAYS))
    written = _write(deployment)
    deployment.start("w1", LOGP_FLUSH__INTERVAL_S="600")
    deployment.wait_metric("w1", "batch_entries", 144)
    deployment.start("w2", LOGP_S3__ENDPOINT_URL=s3.endpoint.url)

    (discarded,) = deployment.require_event("batch_discarded", "w1", cause="UploadError")
    assert discarded["reason"] == "revoked"
    deployment.require_event("partitions_revoked", "w1")
    deployment.require_event("flush_committed", "w2")
    assert 0 < deployment.committed() < len(written)
    s3_faults.clear()
    deployment.workers["w1"].terminate()
    assert deployment.exit_code("w1") == 0
    deployment.wait_drained(written)

    assert deployment.stop_all() == {"w1": 0, "w2": 0}
    deployment.require_clean()
