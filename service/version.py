"""Which version of the product runs."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """Give the version of the package; of a source tree that is not installed say that."""
    try:
        return version("log-partitioner")
    except PackageNotFoundError:
        return f"source tree, Python {sys.version.split()[0]}"
