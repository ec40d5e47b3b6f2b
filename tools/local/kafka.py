"""A Kafka cluster of one or three combined nodes (KRaft) as local processes.

Owns their directories, ports and processes under `root`; data survive kill and restart.
Creates no topics (topics.py does).
"""

import signal
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tools.local.class_archive import class_archive_of, ensure_class_archive, options_to_dump, options_to_load
from tools.local.errors import StackError
from tools.local.jars import Jars
from tools.local.kafka_config import LOG4J2_PROPERTIES, NodePorts, server_properties
from tools.local.ports import LOOPBACK, find_free_ports, require_free
from tools.local.processes import ServerProcess
from tools.local.tcp_proxy import TcpProxy

# The port opens seconds before this line, and clients then get NOT_LEADER_FOR_PARTITION.
_READY_LINE = "Kafka Server started"
# A broker that ends says so at once; these only bound one that hangs, even if others have most of the machine.
_READY_TIMEOUT_S = 300
_STOP_GRACE_S = 15
_DUMP_GRACE_S = 120  # to write an archive: 3 s, unless others have most of the machine
_FORMAT_TIMEOUT_S = 300
_TOOL_TIMEOUT_S = 120


class KafkaCluster:
    """One or three brokers on 127.0.0.1; a context manager that leaves no process behind.

    Brokers are counted from 0. With `through_proxy` each has a TcpProxy (`proxies`) that clients connect to, while
    brokers talk to each other directly. With `leashed=False` the brokers outlive us. With `class_archive` they write
    their classes there when they are stopped; without it, they load an archive that was made before. `protocols` gives
    them further listeners: names, and the security protocol of each; `properties` are theirs beside the usual ones.
    With another `advertised_host` clients come through a forward from there, as those in pods.
    """

    def __init__(
        self,
        *,
        jars: Jars,
        root: Path,
        brokers: Literal[1, 3] = 1,
        ports: Sequence[int] | None = None,
        through_proxy: bool = False,
        leashed: bool = True,
        class_archive: Path | None = None,
        protocols: Mapping[str, str] | None = None,
        properties: Mapping[str, object] | None = None,
        advertised_host: str = LOOPBACK,
    ) -> None:
        if ports is not None and len(ports) != brokers:
            raise ValueError(f"{brokers} brokers need as many ports, not {len(ports)}")
        self.root = root
        self.proxies: list[TcpProxy] = []
        self._jars = jars
        self._leashed = leashed
        self._class_archive = class_archive
        self._java_options: list[str] = []
        self._ports_are_chosen = ports is not None
        self._advertised_host = advertised_host
        self._protocols, self._properties = protocols or {}, properties or {}
        self._nodes = _assign_ports(brokers, ports, through_proxy=through_proxy, others=self._protocols)
        self._servers: dict[int, ServerProcess] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients: the proxies' if there are any, else the brokers'."""
        return ",".join(f"{self._advertised_host}:{node.advertised}" for node in self._nodes)

    @property
    def direct_bootstrap_servers(self) -> str:
        """A way to the brokers that no proxy disturbs, for checks from outside."""
        return ",".join(f"{LOOPBACK}:{node.internal}" for node in self._nodes)

    def servers_of(self, listener: str) -> str:
        """Return the addresses of one of the further listeners."""
        return ",".join(f"{LOOPBACK}:{node.others[listener]}" for node in self._nodes)

    @property
    def processes(self) -> list[ServerProcess]:
        """The brokers' processes, in order; empty before start()."""
        return [self._servers[index] for index in sorted(self._servers)]

    def start(self) -> None:
        """Format new directories, start all brokers and wait until each is ready (3-15 s; the first time twice).

        Raises:
            PortInUseError: a port that was asked for is taken.
            ProcessDiedError: a broker ended or was not ready in time; none is left running.
        """
        if self._ports_are_chosen:
            for node in self._nodes:
                require_free(node.client, wanted_by="Kafka", remedy="stop what listens there or choose another")
        if self._class_archive is None:
            archive = class_archive_of(self._jars.kafka_dir.parent, "kafka", self._jars.java, self._jars.kafka_dir)
            ensure_class_archive(archive, self._run_once)
            self._java_options = options_to_load(archive)
        try:
            self._format()
            for index, node in enumerate(self._nodes):
                if node.advertised != node.client:
                    self.proxies.append(TcpProxy(upstream_port=node.client, port=node.advertised))
                    self.proxies[-1].start()
                self._spawn(index)
            for server in self._servers.values():
                server.wait_for_line(_READY_LINE, timeout_s=_READY_TIMEOUT_S)
        except BaseException:
            self.kill_all()
            raise

    def stop(self, *, grace_s: float = _STOP_GRACE_S) -> None:
        """End all brokers: SIGTERM, then SIGKILL for those still there after the grace."""
        # All at once: the last one left would otherwise wait for a quorum that no longer exists.
        for server in self._servers.values():
            server.terminate()
        for server in self._servers.values():
            server.wait(grace_s=grace_s)
        self._stop_proxies()

    def kill_all(self) -> None:
        """End all brokers by SIGKILL: the quick way if the data are not needed any more."""
        for server in self._servers.values():
            server.kill()
        self._stop_proxies()

    def kill(self, broker_index: int) -> None:
        """SIGKILL one broker; on return it is gone, and its port refuses connections."""
        self._servers[broker_index].kill()

    def pause(self, broker_index: int) -> None:
        """SIGSTOP one broker: it keeps its connections and answers nothing."""
        self._servers[broker_index].pause()

    def resume(self, broker_index: int) -> None:
        """SIGCONT one broker."""
        self._servers[broker_index].resume()

    def restart(self, broker_index: int, *, wait: bool = True) -> None:
        """Start a broker again on its data and ports, ending it by SIGTERM first if it still runs."""
        server = self._servers[broker_index]
        server.terminate()
        server.wait(grace_s=_STOP_GRACE_S)
        self._spawn(broker_index)
        if wait:
            self.wait_until_ready(broker_index)

    def wait_until_ready(self, broker_index: int) -> None:
        """Wait until a broker that was restarted without waiting is ready (about 6 s)."""
        self._servers[broker_index].wait_for_line(_READY_LINE, timeout_s=_READY_TIMEOUT_S)

    def heal(self) -> None:
        """Undo all faults: resume and restart brokers, and let the proxies pass everything."""
        for proxy in self.proxies:
            proxy.heal()
        ended = []
        for index, server in self._servers.items():
            server.resume()
            if not server.is_alive():
                ended.append(index)
                self._spawn(index)
        for index in ended:
            self.wait_until_ready(index)

    def run_tool(self, main_class: str, *arguments: str) -> str:
        """Run one of Kafka's own programs and return its output (2 s, most of them for Java to start).

        Raises:
            StackError: it failed; its words are in the message.
        """
        command = [*self._java(main_class), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise StackError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def segments(self, broker_index: int, topic: str, partition: int) -> list[Path]:
        """Return a broker's files of records of a TopicPartition, in the order of their offsets."""
        return sorted((self._node_dir(broker_index) / "data" / f"{topic}-{partition}").glob("*.log"))

    def __enter__(self) -> Self:
        """Start the cluster."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the cluster; its files stay until someone removes `root`."""
        self.kill_all()

    def _run_once(self, archive: Path) -> None:
        """Run a broker for its classes alone.

        Raises:
            StackError: it did not start, or did not end by itself.
        """
        with (
            tempfile.TemporaryDirectory() as root,
            KafkaCluster(jars=self._jars, root=Path(root), class_archive=archive) as cluster,
        ):
            cluster.stop(grace_s=_DUMP_GRACE_S)
            if cluster.processes[0].exit_code == -signal.SIGKILL:
                raise StackError(f"a broker did not write its classes within {_DUMP_GRACE_S} s")

    def _node_dir(self, index: int) -> Path:
        return self.root / f"broker-{index + 1}"

    def _format(self) -> None:
        """Write the configuration, and format the nodes that are not formatted yet, all at the same time."""
        cluster_id = make_cluster_id()
        formatters: list[tuple[Path, subprocess.Popen[str]]] = []
        for index in range(len(self._nodes)):
            home = self._node_dir(index)
            data_dir = (home / "data").resolve()
            home.mkdir(parents=True, exist_ok=True)
            config = home / "server.properties"
            text = server_properties(
                index + 1,
                self._nodes,
                data_dir=data_dir,
                protocols=self._protocols,
                more=self._properties,
                advertised_host=self._advertised_host,
            )
            config.write_text(text, encoding="utf-8")
            (home / "log4j2.properties").write_text(LOG4J2_PROPERTIES, encoding="utf-8")
            if not (data_dir / "meta.properties").exists():
                command = self._java("kafka.tools.StorageTool")
                formatter = subprocess.Popen(
                    [*command, "format", "--ignore-formatted", "-t", cluster_id, "-c", str(config)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                formatters.append((home, formatter))
        for home, formatter in formatters:
            output, _ = formatter.communicate(timeout=_FORMAT_TIMEOUT_S)
            if formatter.returncode != 0:
                raise StackError(f"Kafka could not format {home}:\n{output.strip()}")

    def _spawn(self, index: int) -> None:
        home = self._node_dir(index)
        heap = "512m" if len(self._nodes) == 1 else "384m"
        command = self._java(
            "kafka.Kafka",
            f"-Xms{heap}",
            f"-Xmx{heap}",
            f"-Dlog4j2.configurationFile={home.resolve() / 'log4j2.properties'}",
            *([] if self._class_archive is None else options_to_dump(self._class_archive)),
        )
        self._servers[index] = ServerProcess(
            f"Kafka broker {index + 1}",
            [*command, str(home / "server.properties")],
            log=home / "server.log",
            leashed=self._leashed,
        )

    def _java(self, main_class: str, *options: str) -> list[str]:
        # As it is known to the archive, whatever the working directory.
        class_path = f"{self._jars.kafka_dir.resolve()}/*"
        return [*self._jars.server, *self._java_options, *options, "-cp", class_path, main_class]

    def _stop_proxies(self) -> None:
        for proxy in self.proxies:
            proxy.stop()
        self.proxies.clear()


def make_cluster_id() -> str:
    """Return a new id in Kafka's form; never one that begins with a dash, which the tool takes for an option."""
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return cluster_id


def _assign_ports(
    brokers: int, ports: Sequence[int] | None, *, through_proxy: bool, others: Iterable[str]
) -> list[NodePorts]:
    """Give each broker its ports; the ports asked for are those that clients connect to."""
    names = list(others)
    free = iter(find_free_ports((4 + len(names)) * brokers))
    nodes = []
    for index in range(brokers):
        advertised = ports[index] if ports is not None else next(free)
        client = next(free) if through_proxy else advertised
        further = {name: next(free) for name in names}
        nodes.append(NodePorts(client, advertised, internal=next(free), controller=next(free), others=further))
    return nodes
