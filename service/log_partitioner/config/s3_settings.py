"""The section of settings about the object store."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from log_partitioner.config.section import Section
from log_partitioner.config.sources import aws_region

CONNECT_TIMEOUT_S = 5.0
UPLOAD_THREADS = 32
ATTEMPTS = 5  # per object, within the deadline; a store that says SlowDown is not counted
READ_TIMEOUT_S = 60.0  # without an answer once a body is sent; what is buffered on the way counts as sent


class S3Settings(Section):
    """The bucket for the objects, and how to reach it."""

    bucket: str = Field(min_length=1, max_length=255, examples=["my-logs"])
    """Bucket of objects and schemas."""
    prefix: str = Field("logs", max_length=512)
    """Key prefix of everything this service writes."""
    endpoint_url: str | None = None
    """Endpoint of an S3 that is not AWS."""
    region: str | None = None
    """Region; by default AWS_REGION, AWS_DEFAULT_REGION or the profile's, and us-east-1 if none is set and s3.endpoint_url is."""
    addressing_style: Literal["auto", "path", "virtual"] = "auto"
    """Whether the bucket is in the path or in the host's name; auto: in the path with s3.endpoint_url, else as AWS wants it."""
    access_key: SecretStr | None = None
    """Access key; without one boto3 uses its usual sources."""
    secret_key: SecretStr | None = None
    """Secret key."""
    conditional: bool = True
    """Send If-None-Match: * with every PUT."""
    checksum: Literal["sha256", "crc32"] = "sha256"
    """Checksum sent with every PUT, verified by the store."""

    def region_or(self, found: str | None) -> str | None:
        """Return the region to sign for: the setting's, the environment's, else the one `found` by boto3 in a profile.

        Other stores do not care.
        """
        return self.region or aws_region() or found or (None if self.endpoint_url is None else "us-east-1")

    @property
    def addressing(self) -> Literal["auto", "path", "virtual"]:
        """The addressing style to pass to an S3 client."""
        is_path = self.addressing_style == "auto" and self.endpoint_url is not None
        return "path" if is_path else self.addressing_style

    @property
    def place(self) -> str:
        """The bucket and its endpoint, as messages name them."""
        return f"bucket {self.bucket} at {self.endpoint_url or 'AWS'}"
