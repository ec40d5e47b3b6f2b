"""Names of topics, groups and buckets that no other test and no other run uses.

Nothing is cleaned up between tests, because nothing is shared between them.
"""

import re
import secrets


class Names:
    """Unique names for one test, recognisable in logs."""

    def __init__(self, test_name: str) -> None:
        slug = re.sub(r"[^a-z0-9]+", "-", test_name.lower().removeprefix("test_")).strip("-")
        self._stem = f"{slug[:36].strip('-')}-{secrets.token_hex(4)}"

    def topic(self, role: str = "topic") -> str:
        """Return the name of a topic, such as `...-source`; the same for the same role."""
        return f"{self._stem}-{role}"

    def group(self, role: str = "group") -> str:
        """Return the name of a consumer group; also good as the stem of transactional ids."""
        return f"{self._stem}-{role}"

    def bucket(self, role: str = "bucket") -> str:
        """Return the name of a bucket, within the 63 characters of S3."""
        return f"{self._stem}-{role}"[:63].rstrip("-")
