"""librdkafka properties that settings may not pass through, and those that are secrets, under every name they have.

Owns the lists, and a test asks the library what it makes of each name that it knows. `service.config.checks` says what
is on them to the user, `service.adapters.kafka_options` leaves out what is refused.
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
    "auto.offset.reset": "a jump would lose or double records; kafka.start_at says where to start",
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
    "transaction.timeout.ms": "set flush.budget_s",
    "message.timeout.ms": "adjusted to the transaction time-out by librdkafka",
    "delivery.timeout.ms": "adjusted to the transaction time-out by librdkafka",
    "partition.assignment.strategy": "workers assign by cooperative-sticky: a rebalance takes away only what moves",
    "group.id": "set kafka.group_id",
    "group.protocol": "set kafka.group_protocol",
    "group.remote.assignor": "set kafka.group_protocol",
    "bootstrap.servers": "set kafka.bootstrap_servers",
    "metadata.broker.list": "set kafka.bootstrap_servers",
    "session.timeout.ms": "set kafka.session_timeout_s",
    "max.poll.interval.ms": "set flush.budget_s",
    "allow.auto.create.topics": "a topic that is missing is an error, not a new topic",
    "check.crcs": "records are checked",
    "enable.partition.eof": "the lag is measured by it",
    "group.instance.id": "one value for all workers: each would put out the one before it; members are dynamic",
    "plugin.library.paths": "a plugin may change every property and see every record",
    "delivery.report.only.error": "every acknowledgement is counted before a commit",
    "default.topic.config": "write its properties by their own names, so that they are judged",
    "ssl.endpoint.identification.algorithm": "set it to https or leave it: certificates are for a host",
    "enable.ssl.certificate.verification": "certificates are verified",
}
_OF_TESTS = "test."
# librdkafka takes off this prefix where a property of a topic follows: topic.auto.offset.reset is auto.offset.reset.
_TOPIC = "topic."
# Properties that the library itself never shows; they belong where they are not shown.
SECRET = frozenset(
    {
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    }
)
# Whatever has such a word in its name is taken for one, but for what is public.
OF_SECRETS = ("password", "passwd", "passphrase", "secret", "key.pem", "jaas", "credential")
PUBLIC = frozenset({"sasl.oauthbearer.client.credentials.client.id"})
_HARMLESS_VALUES = {
    ("ssl.endpoint.identification.algorithm", "https"),
    ("enable.ssl.certificate.verification", "true"),
}


def refused(name: str, value: str) -> str | None:
    """Return why a passed-through property is refused, as the library reads its name; None where it is not."""
    if (name, value) in _HARMLESS_VALUES:
        return None
    if name.startswith(_OF_TESTS):
        return "brokers of the library's own tests would stand in for yours"
    return REFUSED.get(name.removeprefix(_TOPIC))


def is_secret(name: str) -> bool:
    """Return whether a property is a secret, or is named like one: a slip in a name must not show its value."""
    plain = name.strip().lower()
    return plain not in PUBLIC and (plain in SECRET or any(word in plain for word in OF_SECRETS))
