"""The section of settings about the object store."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlencode

from pydantic import Field, SecretStr

from log_partitioner.config.section import Properties, Section
from log_partitioner.config.sources import aws_region

SHA256_METADATA = "lp-sha256"
CONNECT_TIMEOUT_S = 5.0
UPLOAD_THREADS = 32
ATTEMPTS = 5  # per object, within the deadline; a store that says SlowDown is not counted
READ_TIMEOUT_S = 60.0  # without an answer once a body is sent; what is buffered on the way counts as sent


def expecting(owner: str | None) -> Callable[..., Any]:
    """Return a handler of botocore's event `provide-client-params`: each request names the owner of its bucket."""
    more = {} if owner is None else {"ExpectedBucketOwner": owner}
    return lambda params, **_: {**params, **more}


class S3Settings(Section):
    """The bucket for the objects, and how to reach it."""

    bucket: str = Field(min_length=1, max_length=255, examples=["my-logs"])
    """Bucket of objects and schemas."""
    prefix: str = Field("logs", max_length=512)
    """Key prefix of everything this service writes."""
    endpoint_url: str | None = None
    """Endpoint of an S3 that is not AWS."""
    puts_per_s_max: float | None = Field(None, gt=0)
    """PUTs that a worker sends a second at most, so that other users of the store have room; by default as many as it takes."""
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
    encryption: Literal["bucket", "AES256", "aws:kms", "aws:kms:dsse"] = "bucket"
    """Encryption that every PUT asks for: AES256 is SSE-S3, the others are SSE-KMS; bucket: none, so that the bucket's default counts."""
    kms_key_id: str | None = None
    """Key of SSE-KMS, by id, ARN or alias; by default AWS's own."""
    bucket_key: bool | None = None
    """Whether SSE-KMS goes by a key of the bucket, with fewer requests to KMS; by default as the bucket has it."""
    storage_class: Literal["STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"] | None = None
    """Storage class of objects; by default the store's. Objects are read again, so no archive is among them."""
    tags: Properties = Field({})
    """Tags of every object, at most ten (JSON object)."""
    bucket_owner: str | None = Field(None, pattern=r"^[0-9]{12}$")
    """Account of AWS that must own the bucket; the store refuses every request otherwise."""

    def region_or(self, found: str | None) -> str | None:
        """Return the region to sign for: the setting's, the environment's, else the one `found` by boto3 in a profile.

        Other stores do not care.
        """
        return self.region or aws_region() or found or (None if self.endpoint_url is None else "us-east-1")

    def put_arguments(self, *, sha256: bytes, crc32: int, metadata: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of a PUT beside bucket, key and body; the checksums are those of the body."""
        is_sha256 = self.checksum == "sha256"
        checksum = sha256 if is_sha256 else crc32.to_bytes(4, "big")
        optional = {
            "IfNoneMatch": "*" if self.conditional else None,
            "ServerSideEncryption": None if self.encryption == "bucket" else self.encryption,
            "SSEKMSKeyId": self.kms_key_id,
            "BucketKeyEnabled": self.bucket_key,
            "StorageClass": self.storage_class,
            "Tagging": urlencode(self.tags) or None,
        }
        return {
            "ChecksumSHA256" if is_sha256 else "ChecksumCRC32": base64.b64encode(checksum).decode(),
            "Metadata": {**metadata, SHA256_METADATA: sha256.hex()},
            **{name: value for name, value in optional.items() if value is not None},
        }

    @property
    def addressing(self) -> Literal["auto", "path", "virtual"]:
        """The addressing style to pass to an S3 client."""
        is_path = self.addressing_style == "auto" and self.endpoint_url is not None
        return "path" if is_path else self.addressing_style

    @property
    def place(self) -> str:
        """The bucket and its endpoint, as messages name them."""
        return f"bucket {self.bucket} at {self.endpoint_url or 'AWS'}"
