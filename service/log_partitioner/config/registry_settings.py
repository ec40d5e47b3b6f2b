"""The section of settings about the schema registry."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from log_partitioner.config.section import Section


class RegistrySettings(Section):
    """The schema registry, and how to reach it; no proxy is used."""

    url: str | None = None
    """Address of the API: https://registry:8081, for Apicurio with /apis/ccompat/v7 behind it, or /apis/registry/v2 if framing is apicurio8."""
    user: str | None = None
    """User, for basic authentication."""
    password: SecretStr | None = None
    """Password of the user."""
    token: SecretStr | None = None
    """Bearer token, in place of user and password."""
    ca_file: Path | None = None
    """File with the certificates (PEM) that the registry's is checked by; by default the system's."""
    certificate_file: Path | None = None
    """File with the worker's own certificate (PEM), for a registry that asks for one."""
    key_file: Path | None = None
    """File with the certificate's key (PEM), not encrypted."""
