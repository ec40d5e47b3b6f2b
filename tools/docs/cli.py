"""docs/CLI.md: every command with its example, exit codes and options, as its parser has them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import log_partitioner_pipeline.cli
from log_partitioner import cli
from tools.docs.tables import code, table

_HEAD = """\
# Commands

Made by `python -m tools.docs` from what `--help` says; do not edit. `log-partitioner pipeline JOB` is the same as
`python -m log_partitioner_pipeline JOB`.
"""


def cli_page() -> str:
    """Write the page."""
    parsers = (cli._parser(), log_partitioner_pipeline.cli._parser())  # noqa: SLF001 - it is private to run them
    return "\n".join([_HEAD, *(part for parser in parsers for part in _commands(parser, depth=2))])


def _commands(parser: argparse.ArgumentParser, *, depth: int) -> Iterator[str]:
    """Yield a part for each command below the parser, and for each command of that."""
    for inner in parser._actions:  # noqa: SLF001 - argparse has no other way to ask for them
        if isinstance(inner, argparse._SubParsersAction):  # noqa: SLF001
            for command in inner.choices.values():
                yield _part(command, parser, depth=depth)
                yield from _commands(command, depth=depth + 1)


def _part(command: argparse.ArgumentParser, above: argparse.ArgumentParser, *, depth: int) -> str:
    text = [
        f"{'#' * depth} {command.prog}",
        "" if command.description == above.description else command.description or "",
        "" if command.epilog == above.epilog else _epilog(command.epilog or ""),
    ]
    rows = [_row(action) for action in command._actions if _is_shown(action)]  # noqa: SLF001
    return "\n\n".join(filter(None, [*text, table(("argument", "meaning"), rows).rstrip() if rows else ""])) + "\n"


def _epilog(epilog: str) -> str:
    """Return example and exit codes as one block, without the pointer to a page, which is for a terminal."""
    text = epilog.partition("\n\nMore: ")[0]
    return f"```\n{text}\n```" if text else ""


def _row(action: argparse.Action) -> tuple[str, str]:
    words = [action.metavar] if isinstance(action.metavar, str) else list(action.metavar or ())
    if not words and action.choices is not None:
        words = ["|".join(map(str, action.choices))]
    if not words and action.nargs != 0:
        words = [action.dest.upper()]
    names = ", ".join(action.option_strings)
    return code(" ".join([*filter(None, [names]), *words])), (action.help or "") % vars(action)


def _is_shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)  # noqa: SLF001
