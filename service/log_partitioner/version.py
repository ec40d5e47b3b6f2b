"""Which version of the product runs."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """Return the version of the package, or "source tree" with Python's version if the package is not installed."""
    try:
        return version("log-partitioner")
    except PackageNotFoundError:
        return f"source tree, Python {sys.version.split()[0]}"
