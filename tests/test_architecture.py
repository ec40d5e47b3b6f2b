"""The walls of the house: import contracts, one owner per library, sizes of modules and functions, names."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "service").rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
OWNERS = {
    "confluent_kafka": {
        *("adapters/kafka_committer", "adapters/kafka_consumer", "adapters/kafka_log", "adapters/kafka_topic_ids"),
        *("adapters/kafka_errors", "adapters/kafka_flush_records", "adapters/kafka_offsets", "adapters/kafka_search"),
        *("adapters/kafka_values", "audit/collect"),
    },
    "boto3": {"adapters/object_store", "audit/collect"},
    "botocore": {"adapters/object_store", "audit/collect"},
    "prometheus_client": {"adapters/metrics"},
    "pydantic_settings": {"config", "config_sources"},
    "msgspec": None,  # anywhere: it is how bytes become values
}
AUDIT_MAY_SEE = {
    "service.audit",
    "service.config",
    "service.core.dead_letter",
    "service.core.flush_record",
    "service.core.model",
    "service.core.projection",
    "service.core.reference",
    "service.errors",
}


def name_of(path: Path) -> str:
    """Name a module as `room/name`."""
    return path.relative_to(ROOT / "service").with_suffix("").as_posix()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Parse a module, once for all tests; the first node is the module."""
    return list(ast.walk(ast.parse(path.read_text(), str(path))))


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, also inside functions and for type checkers only."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes_of(path: Path) -> Iterator[str]:
    """Yield every `a.b` that a module mentions."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


every_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


def test_import_contracts_hold() -> None:
    """The contracts in pyproject.toml: rooms, purity of core, one owner per client library."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@every_module
def test_client_library_is_used_by_its_owner_only(path: Path) -> None:
    """One door to each outside world."""
    for imported in imports_of(path):
        owners = OWNERS.get(imported.partition(".")[0])
        assert owners is None or name_of(path) in owners, imported


@every_module
def test_environment_is_read_by_settings_only(path: Path) -> None:
    """A setting that nobody declared cannot be read."""
    if name_of(path) != "config_sources":
        mentioned = {*attributes_of(path), *imports_of(path)}
        assert not mentioned & {"os.environ", "os.getenv", "os.putenv", "os.environb", "os.unsetenv"}


@every_module
def test_logging_is_configured_in_one_place(path: Path) -> None:
    """Everybody else asks for a logger."""
    if name_of(path) != "adapters/logs":
        assert not {"structlog.configure", "logging.basicConfig"} & {*attributes_of(path), *imports_of(path)}


@pytest.mark.parametrize("path", [path for path in MODULES if "audit" in path.parts], ids=name_of)
def test_audit_shares_message_formats_with_the_worker_and_nothing_else(path: Path) -> None:
    """An auditor that ran the worker's code would make the worker's mistakes."""
    for imported in imports_of(path):
        if imported.partition(".")[0] == "service":
            seen = {imported, imported.rpartition(".")[0]}
            assert seen & AUDIT_MAY_SEE or imported.startswith("service.audit."), imported


@every_module
def test_module_can_be_read_at_a_sitting(path: Path) -> None:
    """At most four hundred lines, and a docstring that says what the module owns."""
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX
    module = nodes_of(path)[0]
    assert isinstance(module, ast.Module)
    assert ast.get_docstring(module)


@every_module
def test_function_fits_on_a_page(path: Path) -> None:
    """At most seventy lines, decorators and docstring included."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


@every_module
def test_module_does_not_shadow_the_standard_library(path: Path) -> None:
    """`import queue` means one thing."""
    assert path.stem.startswith("__") or path.stem not in sys.stdlib_module_names


@every_module
def test_core_catches_nothing_it_cannot_name(path: Path) -> None:
    """No bare except, and nothing swallowed by `except Exception` outside the command line."""
    for node in nodes_of(path):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}"
            swallows = isinstance(node.type, ast.Name) and node.type.id == "Exception"
            assert not swallows or name_of(path) == "cli", f"line {node.lineno}"


def test_each_contract_names_modules_that_exist() -> None:
    """A wall around a room that was renamed protects nobody."""
    names = {name_of(path) for path in MODULES}
    for owners in OWNERS.values():
        assert (owners or set()) <= names
