"""The compiled fast lane where it is installed (`make native`), else None: then Python does everything."""

from __future__ import annotations

from types import ModuleType

module: ModuleType | None
try:
    import log_partitioner_native as module
except ImportError:
    module = None

IS_INSTALLED = module is not None
