"""Workers that die, come and go while records flow: nothing is missing, doubled, or read again without need."""

from tests.integration.flow import Flow
from tests.integration.harness import Deploy, Deployment

QUICK = {"LOGP_KAFKA__SESSION_TIMEOUT_S": "4", "LOGP_FLUSH__INTERVAL_S": "1"}
NEVER = "600"


def test_all_killed_at_once(deploy: Deploy) -> None:
    """The same workers come back, whatever transactions and memberships their last lives have left open."""
    deployment = deploy(settings=QUICK)
    with Flow(deployment) as flow:
        workers = ["w1", "w2", "w3"]
        for name in workers:
            deployment.start(name)
        for name in workers:
            deployment.require_event("flush_committed", name, times=2)
        for name in workers:
            deployment.workers[name].kill()
        written = flow.stop()
    for name in workers:
        deployment.start(name)
    deployment.wait_drained(written)

    assert set(deployment.stop_all().values()) == {0}
    deployment.require_clean()


def test_rolling_restart_rereads_nothing(deploy: Deploy) -> None:
    """Each worker flushes before it leaves, so that its successors start where it has stopped."""
    settings = QUICK | {"LOGP_FLUSH__INTERVAL_S": NEVER}
    deployment = deploy(settings=settings)
    with Flow(deployment) as flow:
        workers = ["w1", "w2"]
        for name in workers:
            deployment.start(name)
        for name in workers:
            _wait_open_batch(deployment, name)
        for name in workers:
            deployment.workers[name].terminate()
            assert deployment.exit_code(name) == 0
            deployment.start(name)
            _wait_open_batch(deployment, name)
        written = flow.stop()
    assert set(deployment.stop_all().values()) == {0}

    reasons = {flush.reason for flush in deployment.flush_records()}
    assert "stopping" in reasons
    assert reasons <= {"stopping", "revoked", "assigned"}
    assert deployment.rewinds() == []
    for unwanted in ("batch_discarded", "partitions_lost"):
        assert deployment.count(unwanted) == 0, unwanted
    deployment.start("w1", LOGP_FLUSH__INTERVAL_S="1")
    deployment.wait_drained(written)
    deployment.require_clean()


def _wait_open_batch(deployment: Deployment, name: str) -> None:
    deployment.kafka.wait_for(
        f"an open batch of {name}", lambda: deployment.metric(name, "batch_entries") > 0, timeout_s=60
    )
