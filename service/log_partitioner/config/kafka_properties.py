"""librdkafka properties that settings may pass through, by client, and those that are secrets.

All other properties are refused: offsets, transactions and time-outs are the worker's. A test asks the library whether
any listed property changes one that the promise needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal

Role = Literal["consumer", "producer"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SECRET = _names(
    """
    sasl.password ssl.key.password ssl.key.pem ssl.keystore.password sasl.oauthbearer.client.secret
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    """
)
_BOTH = SECRET | _names(
    """
    security.protocol ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.key.location ssl.keystore.location
    ssl.sigalgs.list enable.ssl.certificate.verification https.ca.location https.ca.pem
    sasl.mechanism sasl.mechanisms sasl.username sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.client.id sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms broker.address.family broker.address.ttl
    client.dns.lookup connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms
    retry.backoff.max.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    topic.metadata.refresh.interval.ms topic.metadata.refresh.fast.interval.ms api.version.request.timeout.ms
    receive.message.max.bytes client.rack debug log.connection.close log_level enable.metrics.push
    statistics.interval.ms
    """
)
ALLOWED: Mapping[Role, frozenset[str]] = {
    "consumer": _BOTH
    | _names(
        """
        coordinator.query.interval.ms fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
        fetch.queue.backoff.ms fetch.wait.max.ms max.partition.fetch.bytes queued.max.messages.kbytes
        queued.min.messages
        """
    ),
    "producer": _BOTH
    | _names(
        """
        batch.num.messages compression.codec compression.level compression.type linger.ms
        queue.buffering.max.messages queue.buffering.max.ms
        """
    ),
}
_NAMES = ALLOWED["consumer"] | ALLOWED["producer"]
_KINDS = "security, sasl.*, ssl.*, socket.*, reconnect.*, retry.*, metadata.*, fetch.*, compression.*, debug and more"
_ONLY = {"ssl.endpoint.identification.algorithm": "https", "enable.ssl.certificate.verification": "true"}
_SETTINGS = {
    "auto.offset.reset": "kafka.start_at",
    "bootstrap.servers": "kafka.bootstrap_servers",
    "group.id": "kafka.group_id",
    "group.protocol": "kafka.group_protocol",
    "max.poll.interval.ms": "flush.budget_s",
    "message.max.bytes": "kafka.message_bytes_max",
    "session.timeout.ms": "kafka.session_timeout_s",
    "transaction.timeout.ms": "flush.budget_s",
    "transactional.id": "transactional_id_prefix",
}


def is_allowed(name: str, value: str) -> bool:
    """Return whether a property may be passed through."""
    return name in _NAMES and value == _ONLY.get(name, value)


def why_not(name: str) -> str:
    """Say how to do without a property that may not be passed through."""
    if name in _ONLY:
        return f"only as {_ONLY[name]}: a certificate is verified, and is for a host"
    if name in _SETTINGS:
        return f"set {_SETTINGS[name]}"
    like = get_close_matches(name, _NAMES, n=1, cutoff=0.8)
    return f"did you mean {like[0]}?" if like else f"docs/CONFIGURATION.md lists those that may: {_KINDS}"
