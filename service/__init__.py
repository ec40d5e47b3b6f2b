"""The worker (filled in below)."""
