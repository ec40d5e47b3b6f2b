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
