"""The walls of the house: import contracts, one reader of the environment, sizes of modules and functions."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVICE = ROOT / "service" / "log_partitioner"
MODULES = sorted(SERVICE.rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
FOLDERS = ("service", "pipeline", "tests", "tools", "bench")
SENTENCE_WITHOUT_SUBJECT = re.compile(r"(?:\A|\n\s*\n|[.;]\s|:\s(?=\s*[A-Z]))\s*((?i:what|where|of)\b[^.;]*)")


def name_of(path: Path) -> str:
    """Name a module as `room/name`."""
    return path.relative_to(SERVICE).with_suffix("").as_posix()


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


@pytest.mark.slow
def test_import_contracts_hold() -> None:
    """The contracts in pyproject.toml: rooms, purity, one owner per client library."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@every_module
def test_environment_is_read_by_settings_only(path: Path) -> None:
    """A setting that is not declared cannot be read."""
    if name_of(path) != "config/sources":
        mentioned = {*attributes_of(path), *imports_of(path)}
        assert not mentioned & {"os.environ", "os.getenv", "os.putenv", "os.environb", "os.unsetenv"}


@every_module
def test_nobody_asks_for_the_offsets_of_a_group_by_a_client_without_one(path: Path) -> None:
    """The process may end of it (KAFKA_FACTS L12)."""
    assert not [one for one in attributes_of(path) if one.endswith("list_consumer_group_offsets")]


@every_module
def test_no_group_of_a_pattern_is_possessive(path: Path) -> None:
    """Python 3.11.2, which Debian 12 has, reads `(...)?+` and its like wrongly; an atomic group says the same."""
    assert not re.search(r"(?<!\\)\)[?*+]\+", path.read_text(encoding="utf-8"))


@every_module
def test_logging_is_configured_in_one_place(path: Path) -> None:
    """All other modules ask for a logger."""
    if name_of(path) != "adapters/logs":
        assert not {"structlog.configure", "logging.basicConfig"} & {*attributes_of(path), *imports_of(path)}


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


def sentences_without_subject(path: Path) -> Iterator[str]:
    """Yield the sentences in a module's docstrings that begin with What, Where or Of; also behind `;`."""
    for node in nodes_of(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for sentence in SENTENCE_WITHOUT_SUBJECT.findall(node.value.value):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {' '.join(sentence.split())}"


def test_sentence_of_a_docstring_begins_with_its_subject() -> None:
    """A named thing, then the verb; `if` for conditions: not What, Where or Of."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    found = [sentence for path in paths for sentence in sentences_without_subject(path)]
    assert not found, "\n".join(found)


def public_classes() -> dict[str, list[str]]:
    """Return the modules of the worker and of the pipeline that have a public class of each name."""
    by_name: dict[str, list[str]] = {}
    for path in sorted([*MODULES, *(ROOT / "pipeline").rglob("*.py")]):
        module = nodes_of(path)[0]
        assert isinstance(module, ast.Module)
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    return by_name


TWINS = {
    # An Avro container, read by the oracle for itself and by the pipeline by the worker's rules.
    "Container": ["pipeline/log_partitioner_pipeline/rows.py", "service/log_partitioner/proof/oracle/container.py"],
    # A format, as the worker reads it and as the second opinion does.
    "Format": ["service/log_partitioner/input/format.py", "service/log_partitioner/proof/oracle/format.py"],
    # The request to a command; each is its module's own.
    "Options": [
        "pipeline/log_partitioner_pipeline/audit/auditor.py",
        "pipeline/log_partitioner_pipeline/jobs/backfill.py",
        "service/log_partitioner/proof/audit/audit.py",
    ],
}


def test_name_of_a_class_means_one_thing() -> None:
    """No two public classes share a name, but for those that are meant to."""
    shared = {name: paths for name, paths in public_classes().items() if len(paths) > 1}
    assert shared == TWINS
