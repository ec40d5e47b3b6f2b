"""Ports on 127.0.0.1: find free ones, and say clearly when a wanted one is taken.

Owns nothing; a port that is free here may be taken a moment later, and the server then says so in its log.
"""

import random
import socket

from tools.local.errors import PortInUseError, StackError

LOOPBACK = "127.0.0.1"

# Below the range from which Linux takes source ports (32768-60999). A server that is killed and restarted
# on a port of that range may find it taken by some client's outgoing connection; and a client that retries
# its connection to the dead server may even get connected to itself.
_FIRST_PORT = 20_000
_LAST_PORT = 32_000


def find_free_ports(count: int) -> list[int]:
    """Choose `count` different ports on which nothing listens now."""
    # By the system's chance: processes of one test run have the same seed, and would take the same ports at once.
    candidates = random.SystemRandom().sample(
        range(_FIRST_PORT, _LAST_PORT), k=min(50 * count, _LAST_PORT - _FIRST_PORT)
    )
    found = [port for port in candidates if is_free(port)][:count]
    if len(found) < count:
        raise StackError(f"Only {len(found)} of {count} ports are free between {_FIRST_PORT} and {_LAST_PORT}.")
    return found


def require_free(port: int, *, wanted_by: str, remedy: str) -> None:
    """Check that nothing listens on the port.

    Raises:
        PortInUseError: something does; the message names the port, who wanted it and the remedy.
    """
    if not is_free(port):
        raise PortInUseError(port, wanted_by=wanted_by, remedy=remedy)


def is_free(port: int) -> bool:
    """Say whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do it: connections of a predecessor in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
