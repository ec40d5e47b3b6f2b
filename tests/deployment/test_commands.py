"""Commands that pages name exist, with the options shown; labels that they select by are the chart's."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import log_partitioner_pipeline.cli
from log_partitioner import cli
from tests.deployment.tools import CHART, RULES

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), RULES, CHART / "templates" / "NOTES.txt"])
PIPELINE = "python -m log_partitioner_pipeline"
PROGRAMS = {"log-partitioner": cli._parser, PIPELINE: log_partitioner_pipeline.cli._parser}
COMMAND = re.compile(r"(?<![\w./=\"-])(log-partitioner|python -m [\w.]+) ([^`\n#|;&]*)")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")
TARGET = re.compile(r"^make ([a-z][a-z-]*)", re.MULTILINE)


def code_of(page: Path) -> list[str]:
    """Return the code blocks and code spans of a page."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [*blocks, *(span.replace("\n", " ") for span in spans)]


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield page, program and arguments of each command."""
    for page in PAGES:
        for code in code_of(page):
            yield from ((page.name, program, arguments) for program, arguments in COMMAND.findall(code))


def parser_of(program: str, words: list[str]) -> argparse.ArgumentParser | None:
    """Follow the words that are sub-commands; None if one is none."""
    parser = PROGRAMS[program]()
    for word in words:
        inner = next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)
        if inner is None or word.startswith("-") or word.isupper():
            break
        if word not in inner.choices:
            return None
        parser = inner.choices[word]
    return parser


def is_known(program: str, arguments: str) -> bool:
    """Say whether there is such a command with such options; `log-partitioner pipeline` hands both on."""
    if program == "log-partitioner" and arguments.startswith("pipeline "):
        return is_known(PIPELINE, arguments.removeprefix("pipeline "))
    if program in PROGRAMS:
        parser = parser_of(program, arguments.split())
        known = set() if parser is None else {option for one in parser._actions for option in one.option_strings}
        return parser is not None and set(OPTION.findall(arguments)) <= known
    module = program.removeprefix("python -m ")
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return False
    file = Path(found.origin)
    source = "".join(one.read_text() for one in (file.parent.glob("*.py") if file.stem == "__init__" else [file]))
    return all(f'"{option}"' in source for option in OPTION.findall(arguments))


def test_command_of_a_page_exists_with_its_options() -> None:
    """A user who copies it gets no usage message."""
    unknown = [
        (page, f"{program} {arguments}") for page, program, arguments in commands() if not is_known(program, arguments)
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("log-partitioner", "replay"), ("log-partitioner", "audit --list-objects"), ("log-partitioner", "offsets undo"),
     ("log-partitioner", "pipeline replay"), ("log-partitioner", "pipeline compact --show"),
     ("python -m log_partitioner_pipeline", "audit --hourly"), ("python -m log_partitioner.none", ""),
     ("python -m tools.local", "--never")],
)  # fmt: skip
def test_command_that_is_none_is_noticed(program: str, arguments: str) -> None:
    """A sub-command, an option of another command, a module."""
    assert not is_known(program, arguments)


def test_target_of_make_exists() -> None:
    """In README and docs."""
    makefiles = "\n".join(file.read_text() for file in (ROOT / "Makefile", *(ROOT / "tools").glob("*.mk")))
    targets = {name for names in re.findall(r"^([a-z][a-z -]*):", makefiles, re.MULTILINE) for name in names.split()}
    named = {name for page in PAGES for code in code_of(page) for name in TARGET.findall(code)}
    assert {"demo", "test"} <= named
    assert named - targets == set()


def test_label_of_a_selector_is_one_of_the_chart() -> None:
    """`kubectl -l` with another key selects nothing, and says so by silence."""
    labels = (CHART / "templates" / "_helpers.tpl").read_text()
    used = {key for page in PAGES for key in re.findall(r"kubectl[^\n`]* -l ([\w./-]+)=", page.read_text())}
    assert used, "pages select by label"
    assert {key for key in used if f"{key}:" not in labels} == set()


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield name and help of each command below a parser, and of each command of that."""
    for action in parser._actions:
        for command in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield command.prog, command.format_help()
            yield from helps(command)


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_help_of_every_command_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """It has example and exit codes. An example is one line, to be copied; argparse breaks no choice of two options."""
    monkeypatch.setenv("COLUMNS", "80")

    told = dict(helps(PROGRAMS[program]()))

    lines = [(name, line) for name, text in told.items() for line in text.splitlines() if len(line) > 80]
    assert [(name, line) for name, line in lines if not COMMAND.search(line) and " | --no-" not in line] == []
    assert [name for name, text in told.items() if "Example" not in text or "Exit codes:" not in text] == []


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_help_of_every_command_has_an_example_that_exists_and_its_exit_codes(program: str) -> None:
    """It also says what the command does, and names a page to read on."""
    parser = PROGRAMS[program]()
    (inner,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    bare = [name for name, command in inner.choices.items() if not (command.description and command.epilog)]
    assert bare == []
    for name, command in inner.choices.items():
        assert "Exit codes:" in str(command.epilog)
        examples = COMMAND.findall(str(command.epilog))
        assert examples, name
        assert [example for example in examples if not is_known(*example)] == []
        (page,) = re.findall(r"More: docs/([\w.]+)", str(command.epilog))
        assert (ROOT / "docs" / page).is_file()
