"""A listener takes the callbacks of a consumer, without a worker behind it."""

from log_partitioner.formats.model import TopicPartition


class Listener:
    """Remembers what it heard, and what it owns; `new` is to be sought."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.new: set[TopicPartition] = set()
        self.heard: list[str] = []

    def on_assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Own."""
        self.heard.append("assigned")
        self.owned |= tps
        self.new |= tps

    def on_revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Give back."""
        self.heard.append("revoked")
        self.owned -= tps
        self.new -= tps

    def on_lost(self, tps: frozenset[TopicPartition]) -> None:
        """Forget."""
        self.heard.append("lost")
        self.owned -= tps
        self.new -= tps
