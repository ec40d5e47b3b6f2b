"""Pointers of code and pages: each leads to a place in this repository, and none out of it."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs"
SUFFIXES = {"", ".java", ".j2", ".md", ".mk", ".py", ".sh", ".toml", ".tpl", ".xml", ".yaml", ".yml"}
SECTION = r"\d+(?:\.\d+)?"
# Each kind of pointer: its pattern, the page with its places, the pattern of a place.
KINDS = {
    "DESIGN": (rf"\bDESIGN\s+({SECTION}(?:(?:,\s+|-){SECTION})*)", "DESIGN.md", rf"^#+ ({SECTION})\.? "),
    "KAFKA_FACTS": (r"\bKAFKA_FACTS\s+([A-Z]\d+(?:,\s+[A-Z]\d+)*)", "KAFKA_FACTS.md", r"^\*\*([A-Z]\d+)\. "),
    "INVARIANTS": (r"\b([WI]\d{1,2})\b", "INVARIANTS.md", r"^\| ([WI]\d+) \|"),
    "ADR": (r"\bADR\s+(\d+)", "adr", r"^# (\d+)\. "),
}
FINDING = re.compile(r"finding[_ ]([a-z]?\d+)")
FILE = re.compile(r"`((?:bench|deploy|docs|helm|native|pipeline|service|tests|tools)/[\w./-]+\.\w+)[`:]")
NAMED_TEST = re.compile(r"\b(tests/[\w/]+\.py)::(\w+)")
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)#?([^)\s]*)\)")
PACKAGES = ("service/log_partitioner", "pipeline/log_partitioner_pipeline", "tools", "bench")
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)`")
# First parts of dotted names that are no code of ours: libraries; properties of Kafka, Spark, Avro, the chart, Ivy;
# sections of settings; a parameter.
NOT_OURS = {
    *("Producer", "confluent_kafka", "msgspec", "py4j", "pyspark"),
    *("jars", "lp", "max", "properties", "spark"),
    *("kafka", "limits"),
    "settings",
}
OUTSIDE = re.compile(r"\b(?:TESTING|STYLE)\b|\b(?:reviews|shared)/| \[M\]")


@cache
def places(kind: str) -> frozenset[str]:
    """Return what pointers of a kind may name."""
    _, page, pattern = KINDS[kind]
    pages = PAGES.glob(f"{page}/*.md") if kind == "ADR" else [PAGES / page]
    return frozenset(name for one in pages for name in re.findall(pattern, one.read_text(), re.MULTILINE))


def texts() -> Iterator[tuple[Path, str]]:
    """Yield what people have written here, tracked or about to be, but for this file."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = (ROOT / name for name in names)
    for path in paths:
        if path.suffix in SUFFIXES and path != Path(__file__) and path.is_file():
            with suppress(UnicodeDecodeError):  # what a tool has left, not a person
                yield path, path.read_text()


def lost_in(text: str) -> Iterator[str]:
    """Yield the pointers of a text that lead nowhere, or out of the repository."""
    for kind, (pattern, _, _) in KINDS.items():
        for found in re.findall(pattern, text):
            yield from (f"{kind} {name}" for name in re.findall(r"[A-Z]?[\d.]+\b", found) if name not in places(kind))
    yield from (f"finding {name}" for name in FINDING.findall(text) if f"F{name}" not in places("KAFKA_FACTS"))
    for name, test in NAMED_TEST.findall(text):
        if not (ROOT / name).is_file() or f"def {test}(" not in (ROOT / name).read_text():
            yield f"{name}::{test}"
    yield from OUTSIDE.findall(text)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made where it is read."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pointer_leads_to_a_place_of_this_repository() -> None:
    """Sections, facts, decisions, invariants and tests that are named exist; pages outside are not named."""
    lost = [f"{path.relative_to(ROOT)}: {pointer}" for path, text in texts() for pointer in lost_in(text)]
    assert not lost, "\n".join(lost)


def test_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    """The test follows relative links; others belong to other people."""
    lost = []
    for page, text in texts():
        for name, anchor in LINK.findall(text) if page.suffix == ".md" else []:
            target = (page.parent / name) if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                lost.append(f"{page.relative_to(ROOT)}: {name}#{anchor}")
    assert not lost, "\n".join(lost)


def test_file_that_a_page_names_in_full_exists() -> None:
    """As in the lists of what to touch; one with a capital part, such as NAME.py, is to be made."""
    named = [(page, name) for page, text in texts() if page.suffix == ".md" for name in FILE.findall(text)]
    lost = [f"{page.relative_to(ROOT)}: {name}" for page, name in named if not (ROOT / name).is_file()]
    assert not [line for line in lost if "/NAME." not in line], "\n".join(lost)
    assert len(named) > 50


def names_in(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    """Yield the dotted names of what statements define, and of what its classes have; not of what they import."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield f"{prefix}.{name}"
            case ast.ClassDef(name=name):
                yield f"{prefix}.{name}"
                yield from names_in(node.body, f"{prefix}.{name}")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}.{name}"


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Return the modules of the packages by their dotted names."""
    paths = ((package, path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {
        ".".join(path.relative_to((ROOT / package).parent).with_suffix("").parts).removesuffix(".__init__"): (
            path,
            ast.parse(path.read_text(), str(path)),
        )
        for package, path in paths
    }


@cache
def dotted_names() -> frozenset[str]:
    """Return the names of modules and of what they define, in full and from each of their parts on."""
    full = [name for module, (_, tree) in modules().items() for name in (module, *names_in(tree.body, module))]
    return frozenset(".".join(parts[at:]) for name in full for parts in [name.split(".")] for at in range(len(parts)))


def dead_names_in(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names in a module's docstrings that nothing of ours has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for name in DOTTED.findall(node.value.value):
                is_file = name.endswith((".py", ".zip"))
                if not is_file and name.split(".")[0] not in NOT_OURS and name not in dotted_names():
                    yield name


def test_dotted_name_of_a_docstring_is_one_of_the_code() -> None:
    """`module.name` or `Class.member`, from any part of the full name on; the module is the one that defines it."""
    dead = [f"{path.relative_to(ROOT)}: {name}" for path, tree in modules().values() for name in dead_names_in(tree)]
    assert not dead, "\n".join(dead)


@pytest.mark.parametrize(
    "name", ["formats.model.Nobody", "model_of_old.TopicPartition", "TopicPartition.none", "formats.cache"]
)
def test_dotted_name_that_nothing_has_is_noticed(name: str) -> None:
    """Any part of it may be wrong; right names beside it are not reported."""
    tree = ast.parse(f'"""See `formats.model.TopicPartition`, `msgspec.Raw` and `{name}`."""')
    assert list(dead_names_in(tree)) == [name]


@pytest.mark.parametrize(
    "text",
    [
        "(DESIGN 4.99)", "DESIGN 3.1,\n3.99", "DESIGN 3.1-3.99", "KAFKA_FACTS F99", "KAFKA_FACTS F1, O99", "ADR 99",
        "W99: lost", "I99", "test_finding_99_is_none", "test_finding_a1_is_none", "see TESTING 2.3", "STYLE 2",
        "reviews/one.md", "so it is [M].", "`tests/test_pointers.py::test_none`",
    ],
)  # fmt: skip
def test_pointer_that_leads_nowhere_is_noticed(text: str) -> None:
    """It may be of any kind; right pointers beside it are not reported."""
    assert len(list(lost_in(f"DESIGN 3.1, KAFKA_FACTS F1, ADR 1, W3: {text}"))) == 1
