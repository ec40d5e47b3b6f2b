"""A test's own access to S3: make buckets, list and read objects.

It uses the endpoint directly, never through a fault proxy.
"""

from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from tools.local.s3 import S3Endpoint
from tools.local.topics import create_bucket

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Helper:
    """An S3 of the test run, and who provides it."""

    def __init__(self, endpoint: S3Endpoint, *, provider: str) -> None:
        self.endpoint = endpoint
        self.provider = provider

    @cached_property
    def client(self) -> "S3Client":
        """A client without retries."""
        return self.endpoint.client()

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its name."""
        create_bucket(self.endpoint, name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return all keys, sorted."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return sorted(item["Key"] for page in pages for item in page.get("Contents", []))

    def read(self, bucket: str, key: str) -> bytes:
        """Return an object's bytes."""
        # `with body` would enter the raw stream, which does not verify the checksum.
        with closing(self.client.get_object(Bucket=bucket, Key=key)["Body"]) as body:
            return body.read()

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()
