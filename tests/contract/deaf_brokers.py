"""Addresses at which no Kafka broker answers, each in a way of its own; servers on 127.0.0.1."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_REQUEST = struct.Struct(">ihhi")  # length, API key, version, correlation id
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36
_AUTHENTICATION_FAILED = 58


def closed_port() -> str:
    """Return an address that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def serve(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Give the address of a server that lets `answer` deal with each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    links: list[socket.socket] = []

    def deal(link: socket.socket) -> None:
        with suppress(OSError, ssl.SSLError):
            answer(link)
        link.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                links.append(link)
                threading.Thread(target=deal, args=(link,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for link in [listener, *links]:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()


def silent(link: socket.socket) -> None:
    """Take everything, say nothing."""
    while link.recv(65_536):
        pass


def http(link: socket.socket) -> None:
    """Answer as a web server does."""
    link.recv(65_536)
    link.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def noise(link: socket.socket) -> None:
    """Answer with bytes that mean nothing, and stay."""
    link.recv(65_536)
    link.sendall(b"\xff" * 400)
    silent(link)


def hang_up(link: socket.socket) -> None:
    """Close the connection, as a listener of another security protocol does."""
    link.recv(65_536)


def tls(directory: Path) -> Callable[[socket.socket], None]:
    """Make a server with a self-signed certificate."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def answer(link: socket.socket) -> None:
        with context.wrap_socket(link, server_side=True) as secure:
            silent(secure)

    return answer


def wrong_password(link: socket.socket) -> None:
    """Speak enough of Kafka's protocol to refuse a SASL password: ApiVersions, SaslHandshake, SaslAuthenticate."""
    while head := link.recv(_REQUEST.size, socket.MSG_WAITALL):
        length, kind, version, correlation = _REQUEST.unpack(head)
        link.recv(length + 4 - _REQUEST.size, socket.MSG_WAITALL)
        link.sendall(_framed(correlation, _ANSWERS[kind](version)))


def _framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def _api_versions(_version: int) -> bytes:
    """Answer in version 0: of another the client learns by an error that it should ask so."""
    kinds = [
        (_API_VERSIONS, 0, 0),
        (_SASL_HANDSHAKE, 0, 1),
        (_SASL_AUTHENTICATE, 0, 0),
        (0, 3, 8),
        (1, 4, 11),
        (3, 0, 4),
    ]
    if _version:
        return struct.pack(">hi", 35, 1) + struct.pack(">hhh", _API_VERSIONS, 0, 0)
    return struct.pack(">hi", 0, len(kinds)) + b"".join(struct.pack(">hhh", *kind) for kind in kinds)


def _handshake(_version: int) -> bytes:
    return struct.pack(">hi", 0, 1) + struct.pack(">h", 5) + b"PLAIN"


def _authenticate(_version: int) -> bytes:
    text = b"Authentication failed: Invalid username or password"
    return struct.pack(">hh", _AUTHENTICATION_FAILED, len(text)) + text + struct.pack(">i", 0)


_ANSWERS = {_API_VERSIONS: _api_versions, _SASL_HANDSHAKE: _handshake, _SASL_AUTHENTICATE: _authenticate}
