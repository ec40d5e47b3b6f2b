"""The errors of the local stack, each with one sentence for a person.

StackError
├── MissingPrerequisiteError   Java or Maven is missing or too old
├── PortInUseError             something else listens where we want to
└── ProcessDiedError           a server ended or did not get ready; carries its last log lines
"""


class StackError(Exception):
    """The local stack cannot do what was asked; the message says what to do."""


class MissingPrerequisiteError(StackError):
    """A program that the local stack needs is missing or too old."""


class PortInUseError(StackError):
    """A port that was asked for is taken."""

    def __init__(self, port: int, *, wanted_by: str, remedy: str) -> None:
        self.port = port
        super().__init__(
            f"Port {port} on 127.0.0.1 is in use, but {wanted_by} needs it: {remedy} "
            f"(`ss -ltnp 'sport = :{port}'` names the process)."
        )


class ProcessDiedError(StackError):
    """A server process ended, or was not ready in time."""

    def __init__(self, what: str, *, last_lines: str) -> None:
        self.last_lines = last_lines
        super().__init__(f"{what}. Its last log lines:\n{last_lines}")
