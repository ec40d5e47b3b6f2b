"""An S3 server (S3Proxy on a directory) as a local process, and how a client reaches one.

Owns its directory, configuration and process under `root`; objects survive kill and restart.
The credentials are made up at construction and stand only in a file with mode 0600.
"""

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import boto3
from botocore.config import Config

from tools.local.errors import StackError
from tools.local.jars import Jars
from tools.local.ports import LOOPBACK, find_free_ports, require_free
from tools.local.processes import ServerProcess

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# S3Proxy 4.1.0 with filesystem-nio2 does the following, as experiments have shown:
# - A wrong SHA256, SHA1, CRC32, CRC32C, CRC64NVME or Content-MD5 is refused (400 BadDigest) and nothing is
#   stored; a right one is returned by PUT, by HEAD with ChecksumMode=ENABLED and by GetObjectAttributes.
# - If-None-Match: * is atomic: of several concurrent writers one wins and the others get 412
#   PreconditionFailed, never 409. After SIGKILL a written object is there as a whole, or not at all.
# - Wrong credentials: 403 SignatureDoesNotMatch or InvalidAccessKeyId. Metadata and content type are kept.
# - There are no versions (501, and no VersionId in answers), lifecycle rules, tags or encryption (501).
# - Keys with % = + & ? # : \ * spaces and any unicode (not normalised) come back as they were. But keys are
#   paths of the file system: a segment of more than 218 bytes is a 500 (S3 limits only the whole key, to
#   1024), `a//b` and `a/./b` are `a/b`, and after `d` a key `d/x` is a 500.
_READY_LINE = "Started ogsoejs.Server@"  # Jetty's, by the name it has inside this jar
# A signed body is held in memory until its hash is known, and one over 128 MiB is refused (400). With less
# heap a few large uploads at the same time become OutOfMemoryError and 500; unused heap costs nothing.
_HEAP_MAX = "-Xmx1g"
_READY_TIMEOUT_S = 300  # bounds a server that hangs, even if others have most of the machine
_STOP_GRACE_S = 10


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """Address and credentials of an S3 API."""

    url: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"

    def variables(self, bucket: str | None = None) -> dict[str, str]:
        """Return the settings by which a worker finds the store, and `bucket`, if given."""
        return {
            "LOGP_S3__ENDPOINT_URL": self.url,
            "LOGP_S3__REGION": self.region,
            "LOGP_S3__ACCESS_KEY": self.access_key,
            "LOGP_S3__SECRET_KEY": self.secret_key,
        } | ({} if bucket is None else {"LOGP_S3__BUCKET": bucket})

    def client(self, config: Config | None = None) -> "S3Client":
        """Return a boto3 client; without retries, so that a test sees the server's answer."""
        plain = Config(
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=5,
            read_timeout=20,
            proxies={},  # loopback never goes through a proxy of the environment
        )
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=plain.merge(config) if config else plain,
        )


class S3Server:
    """S3Proxy on 127.0.0.1; a context manager that leaves no process behind.

    With `leashed=False` it outlives us.
    """

    def __init__(self, *, jars: Jars, root: Path, port: int | None = None, leashed: bool = True) -> None:
        self.root = root
        self._jars = jars
        self._port_is_chosen = port is not None
        self.port = find_free_ports(1)[0] if port is None else port
        self._leashed = leashed
        self._server: ServerProcess | None = None
        self.endpoint = S3Endpoint(
            url=f"http://{LOOPBACK}:{self.port}",
            access_key=f"local-{secrets.token_hex(6)}",
            secret_key=secrets.token_urlsafe(24),
        )

    @property
    def process(self) -> ServerProcess:
        """The server's process; only after start()."""
        if self._server is None:
            raise StackError("The S3 server was not started.")
        return self._server

    def start(self) -> None:
        """Start and wait until requests are answered (1-3 s); also after stop() or kill().

        Raises:
            PortInUseError: the port that was asked for is taken.
            ProcessDiedError: the server ended or was not ready in time; none is left running.
        """
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Start and do not wait.

        Raises:
            PortInUseError: the port that was asked for is taken.
        """
        if self._port_is_chosen:
            require_free(self.port, wanted_by="S3", remedy="stop what listens there or choose another port")
        command = [
            *self._jars.server,
            _HEAP_MAX,
            "-jar",
            str(self._jars.s3proxy_jar),
            "--properties",
            str(self._write_config()),
        ]
        self._server = ServerProcess("S3", command, log=self.root / "server.log", leashed=self._leashed)

    def wait_until_ready(self) -> None:
        """Wait until requests are answered.

        Raises:
            ProcessDiedError: the server ended or was not ready in time; none is left running.
        """
        try:
            self.process.wait_for_line(_READY_LINE, timeout_s=_READY_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server: SIGTERM, then SIGKILL if it is still there after some seconds."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait(grace_s=_STOP_GRACE_S)

    def kill(self) -> None:
        """End the server by SIGKILL; stored objects stay."""
        if self._server is not None:
            self._server.kill()

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the server; its files stay until someone removes `root`."""
        self.kill()

    def _write_config(self) -> Path:
        objects = self.root / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        settings = {
            "s3proxy.endpoint": self.endpoint.url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.endpoint.access_key,
            "s3proxy.credential": self.endpoint.secret_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": objects.resolve(),
        }
        config = self.root / "s3proxy.properties"
        config.touch(mode=0o600)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return config
