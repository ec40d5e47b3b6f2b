"""Certificates of an authority of our own, made by openssl."""

import subprocess
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    """An authority, and what it has signed: PEM files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = directory / "ca.pem"
        self._run("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")

    def sign(self, name: str) -> tuple[Path, Path]:
        """Make a certificate for a name at 127.0.0.1; returns it and its key."""
        key, made = f"{name}.key", f"{name}.pem"
        san = "subjectAltName=IP:127.0.0.1"
        self._run("req", *_NEW_KEY, "-subj", f"/CN={name}", "-addext", san, "-keyout", key, "-out", "request")
        ca = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy"]
        self._run("x509", "-req", "-in", "request", *ca, "-days", "2", "-out", made)
        return self._directory / made, self._directory / key

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._directory, check=True, capture_output=True)  # noqa: S607
