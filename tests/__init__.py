"""Tests; a package, so that shared helpers can be imported as `tests.stack...`."""
