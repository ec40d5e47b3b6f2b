"""The files of one Kafka node: server.properties and the log4j2 configuration.

Pure text from values; starts nothing. Time-outs are short, so that tests see a failure, a rebalance or an
abort within seconds; all else is as in a careful production cluster (RF 3, min ISR 2, no unclean election).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.local.ports import LOOPBACK

LOG4J2_PROPERTIES = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p [%t] %c{1}: %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node.

    Clients connect to `client`, or to `advertised` if a proxy stands in front. Brokers talk to each other
    through `internal`, which no proxy disturbs; a client may use it too, to look past the proxy. `others` are further
    listeners by name.
    """

    client: int
    advertised: int
    internal: int
    controller: int
    others: Mapping[str, int] = field(default_factory=dict)


def server_properties(
    node_id: int,
    nodes: Sequence[NodePorts],
    *,
    data_dir: Path,
    protocols: Mapping[str, str] | None = None,
    more: Mapping[str, object] | None = None,
    advertised_host: str = LOOPBACK,
) -> str:
    """Return server.properties of node `node_id` (from 1) of the cluster.

    `protocols` are the security protocols of its other listeners, `more` are further properties. Clients are sent to
    `advertised_host`, which need not be an address of this machine.
    """
    ports = nodes[node_id - 1]
    others = [f"{name}://{LOOPBACK}:{port}" for name, port in ports.others.items()]
    known = {"CLIENT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(protocols or {})}
    voters = ",".join(f"{i}@{LOOPBACK}:{node.controller}" for i, node in enumerate(nodes, start=1))
    settings = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": voters,
        "listeners": ",".join(
            [
                f"CLIENT://{LOOPBACK}:{ports.client}",
                f"INTERNAL://{LOOPBACK}:{ports.internal}",
                f"CONTROLLER://{LOOPBACK}:{ports.controller}",
                *others,
            ]
        ),
        "advertised.listeners": ",".join(
            [f"CLIENT://{advertised_host}:{ports.advertised}", f"INTERNAL://{LOOPBACK}:{ports.internal}", *others]
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in known.items()),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data_dir,
        **broker_settings(replicas=min(3, len(nodes))),
        **(more or {}),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def broker_settings(*, replicas: int) -> dict[str, int | str]:
    """Return the settings that do not depend on addresses; a broker in a container gets the same."""
    in_sync_min = max(1, replicas - 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync_min,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync_min,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync_min,
        **_QUICK,
    }


_QUICK: dict[str, int | str] = {
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    # Groups: the first member need not wait for others, and a dead one is noticed within seconds.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 500,
    # Transactions: an overdue one is aborted about a second after its time-out, not ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    # A dead broker is fenced after three seconds (default nine), a dead controller replaced after one (two).
    "broker.session.timeout.ms": 3000,
    "controller.quorum.fetch.timeout.ms": 1000,
    # A paused node answers nothing: others give up on it after seconds, not after thirty. Without the first,
    # pausing the controller stops producer ids, commits and heartbeats of the other brokers for that long.
    "controller.socket.timeout.ms": 2000,
    "replica.socket.timeout.ms": 3000,
    # No record into the metadata log each half second if nothing happens: a broker alone idles at half the CPU.
    "metadata.max.idle.interval.ms": 0,
    # Few partitions of the internal topics and a small cleaner buffer: quick to create, light to run.
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    "log.cleaner.dedupe.buffer.size": 4194304,
    # A restart after SIGKILL reads the logs again; a graceful stop must not wait for leaders to move.
    "num.recovery.threads.per.data.dir": 2,
    "controlled.shutdown.max.retries": 1,
    "controlled.shutdown.retry.backoff.ms": 500,
}
