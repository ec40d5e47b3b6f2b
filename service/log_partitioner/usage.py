"""The text that `--help` shows around a command's options is the docstring of the command."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable

_BELOW = "\n\nExample:"


def describe(parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]) -> None:
    """Let a parser run this command, and show its docstring: options stand before its example."""
    about, below, rest = (inspect.getdoc(command) or "").partition(_BELOW)
    parser.description, parser.epilog = about, below.lstrip() + rest
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(command=command)


def argument_of(parse: Callable[[object], object]) -> Callable[[str], object]:
    """Return the `type` of an argument whose refusals argparse tells in the words of `parse`."""

    def argument(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: it {error}") from error

    return argument
