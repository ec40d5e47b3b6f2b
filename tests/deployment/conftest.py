"""Leaves out the tests whose tool is absent, `test_helm_*.py` as one, and says so."""

from pathlib import Path

from tests.deployment import tools

TOOLS = ("actionlint", "helm", "promtool")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of an absent tool."""
    absent = [tool for tool in TOOLS if collection_path.name.startswith(f"test_{tool}_") and tools.find(tool) is None]
    return True if absent else None


def pytest_report_collectionfinish() -> list[str]:
    """Say which tools check workflows, chart and alerts; a header line would come before this file is read."""
    return [
        f"{tool}: {tools.find(tool) or 'absent: its tests are not collected; `make chart-tools` installs it'}"
        for tool in TOOLS
    ]
