"""librdkafka properties that settings may not pass through, and those that are secrets.

Owns the list; `service.config_checks` says it to the user, `service.adapters.kafka_options` leaves out what is on it.
"""

from __future__ import annotations

from collections.abc import Mapping

# Properties that would break the promise, and why; `check-config` refuses them however they are spelled.
REFUSED: Mapping[str, str] = {
    "enable.auto.commit": "offsets are committed by the flush's transaction only",
    "enable.auto.offset.store": "offsets are committed by the flush's transaction only",
    "auto.commit.interval.ms": "offsets are committed by the flush's transaction only",
    "auto.commit.enable": "offsets are committed by the flush's transaction only",
    "offset.store.method": "offsets are committed by the flush's transaction only",
    "isolation.level": "only read_committed reads stable offsets and committed records",
    "auto.offset.reset": "a jump would lose or double records; kafka.bootstrap says where to start",
    "enable.idempotence": "the transaction needs it",
    "acks": "a reference must be on all in-sync replicas",
    "request.required.acks": "a reference must be on all in-sync replicas",
    "retries": "the idempotent producer retries",
    "message.send.max.retries": "the idempotent producer retries",
    "max.in.flight": "the idempotent producer decides",
    "max.in.flight.requests.per.connection": "the idempotent producer decides",
    "queuing.strategy": "the idempotent producer needs fifo",
    "enable.gapless.guarantee": "the transaction decides",
    "transactional.id": "made of transactional_id_prefix, group and worker",
    "transaction.timeout.ms": "set kafka.transaction_timeout_s",
    "message.timeout.ms": "adjusted to the transaction time-out by librdkafka",
    "delivery.timeout.ms": "adjusted to the transaction time-out by librdkafka",
    "partition.assignment.strategy": "set kafka.assignment_strategy",
    "group.id": "set kafka.group_id",
    "group.protocol": "set kafka.group_protocol",
    "group.remote.assignor": "set kafka.group_protocol",
    "bootstrap.servers": "set kafka.bootstrap_servers",
    "metadata.broker.list": "set kafka.bootstrap_servers",
    "session.timeout.ms": "set kafka.session_timeout_s",
    "max.poll.interval.ms": "set kafka.max_poll_interval_s",
    "allow.auto.create.topics": "a topic that is missing is an error, not a new topic",
    "check.crcs": "records are checked",
    "enable.partition.eof": "the lag is measured by it",
    "ssl.endpoint.identification.algorithm": "set it to https or leave it: certificates are for a host",
    "enable.ssl.certificate.verification": "certificates are verified",
}
# Properties that are secrets: they belong where they are not shown.
SECRET = frozenset(
    {
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    }
)
_HARMLESS_VALUES = {
    ("ssl.endpoint.identification.algorithm", "https"),
    ("enable.ssl.certificate.verification", "true"),
}


def refused(name: str, value: str) -> str | None:
    """Tell why a passed-through property is refused; None where it is not."""
    if (name, value) in _HARMLESS_VALUES:
        return None
    return REFUSED.get(name)
