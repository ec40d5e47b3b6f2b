"""The text that `--help` shows around a command's options: purpose, an example, exit codes, further reading."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from textwrap import fill
from typing import NamedTuple


class Usage(NamedTuple):
    """The help of one command; `codes` by exit code, `page` below docs/."""

    about: str
    example: str
    codes: Mapping[str, str]
    page: str

    @property
    def epilog(self) -> str:
        """The lines below the options."""
        codes = [f"  {code:<4}{meaning}" for code, meaning in self.codes.items()]
        return "\n".join(["example:", f"  {self.example}", "", "exit codes:", *codes, "", f"more: docs/{self.page}"])


_COLUMNS = 100
_SETTINGS = "Settings come from the environment (LOGP_...), LOGP_CONFIG_FILE and LOGP_SECRETS_DIR."
_REFUSED = {"2": "settings or arguments are wrong; nothing was started"}
COMMANDS: Mapping[str, Usage] = {
    "run": Usage(
        "Run one worker until SIGTERM or SIGINT: it flushes and leaves; a second signal abandons the flush. "
        f"{_SETTINGS}",
        "log-partitioner check-config && log-partitioner run",
        {"0": "asked to leave, and did", "1": "it could not go on; the last line says why"} | _REFUSED,
        "RUNBOOK.md",
    ),
    "check-config": Usage(
        "Check names and values of all settings, and what they come to together; nothing is asked without --connect. "
        f"{_SETTINGS}",
        "log-partitioner check-config --connect",
        {"0": "the settings are good, nothing is missing", "1": "with --connect: something is missing"} | _REFUSED,
        "CONFIGURATION.md",
    ),
    "try": Usage(
        "Take a sample apart as a worker would, and show user, time, id, PartitionKey and schema of its entries, and "
        "why some are dead. Nothing is written, no group is joined. It prints values of the sample. A line of a file "
        f"is a record of now. {_SETTINGS} None has to be set but, for --topic, the brokers'.",
        "LOGP_USER__PATHS=user.id log-partitioner try sample.ndjson",
        {
            "0": "most entries are in files",
            "1": "most are dead letters",
            "2": "no sample, or wrong settings or arguments",
        },
        "CONFIGURATION.md",
    ),
    "config-schema": Usage(
        "Print every setting with type, default and meaning, as JSON schema.",
        "log-partitioner config-schema",
        {"0": "printed"},
        "CONFIGURATION.md",
    ),
    "audit": Usage(
        f"Compare every record that the source still holds with everything that was committed of it. {_SETTINGS}",
        "log-partitioner audit --json report.json",
        {"0": "clean", "1": "findings", "2": "could not tell, or settings or arguments are wrong"},
        "AUDIT.md",
    ),
    "verify-logs": Usage(
        "Read the JSON logs of all workers as one history and hold it against nine rules; needs neither Kafka nor S3.",
        "log-partitioner verify-logs worker-*.log --json",
        {"0": "no rule is broken", "1": "one is", "2": "lines are missing, or a file cannot be read"},
        "AUDIT.md",
    ),
    "offsets": Usage(
        f"Show or set committed offsets, skip what cannot be read, or go on as another group. {_SETTINGS}",
        "log-partitioner offsets set --topic app-logs --to flushed --dry-run",
        {"0": "what was asked for holds", "1": "it does not: refused, not confirmed, not known, or left"} | _REFUSED,
        "RUNBOOK.md",
    ),
}


def add_usage(commands: Mapping[str, argparse.ArgumentParser], usages: Mapping[str, Usage]) -> None:
    """Give each command its help."""
    for name, parser in commands.items():
        if name in usages:
            parser.description, parser.epilog = fill(usages[name].about, _COLUMNS), usages[name].epilog
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
