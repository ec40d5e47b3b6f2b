"""The text that `--help` shows around a command's options is the docstring of the command."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable
from functools import partial

_BELOW = "\n\nExample:"


class _Help(argparse.HelpFormatter):
    """Fills paragraphs to the width of the terminal, and leaves those with indented lines, as examples, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = inspect.cleandoc(text).split("\n\n")
        fill = partial(textwrap.fill, width=width, initial_indent=indent, subsequent_indent=indent)
        return "\n\n".join(one if "\n " in one else fill(one) for one in paragraphs)


def describe(parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]) -> None:
    """Let a parser run this command, and show its docstring: options stand before its example.

    Parsers within it, as of `offsets show`, have the same example and exit codes, and its text if they have none.
    """
    about, below, rest = (inspect.getdoc(command) or "").partition(_BELOW)
    parser.description, parser.epilog = about, below.lstrip() + rest
    parser.formatter_class = _Help
    parser.set_defaults(command=command)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask for them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                inner.description, inner.epilog = inner.description or about, parser.epilog
                inner.formatter_class = _Help


def argument_of(parse: Callable[[object], object]) -> Callable[[str], object]:
    """Return the `type` of an argument whose refusals argparse tells in the words of `parse`."""

    def argument(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: it {error}") from error

    return argument
