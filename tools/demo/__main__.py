"""`python -m tools.demo`: start everything, break things, audit; `--help` lists the options.

Exit code: `tools.demo.verdict.ExitCode`, or 128 + signal.
"""

import signal
import sys
import traceback
from types import FrameType

try:
    from tools.demo.environment import Environment, mark_disposable, start_environment
    from tools.demo.options import DemoOptions, parse_options
    from tools.demo.screen import make_screen
    from tools.demo.story import Story
    from tools.demo.verdict import MEANINGS, ExitCode, Verdict
    from tools.demo.writer import ProduceError
    from tools.local.errors import StackError
except ModuleNotFoundError as missing:
    sys.exit(
        f"demo: the Python package {missing.name} is missing: use `make demo`, or `make setup` and .venv/bin/python."
    )


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _SignalledError(BaseException):
    """A signal asks us to end; not an Exception, so that no code on the way takes it for an error."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; on return nothing that it started is left."""
    options = parse_options(arguments, epilog=describe_exit_codes())
    for number in _SIGNALS:
        signal.signal(number, _on_signal)
    try:
        return _run(options)
    except (StackError, ProduceError) as error:
        print("\n".join([f"demo: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return ExitCode.NOT_RUN
    except Exception:  # noqa: BLE001 - Python would exit with 1, which says that the audit has findings
        traceback.print_exc()
        return ExitCode.NOT_RUN
    except _SignalledError as signalled:
        print("demo: interrupted, everything is stopped", file=sys.stderr)
        return 128 + signalled.number


def _run(options: DemoOptions) -> int:
    _require_files(options)
    screen = make_screen()
    with start_environment(options, screen.tell) as environment:
        try:
            verdict = Story(options, environment, screen).run()
        except _SignalledError:
            mark_disposable(environment.directory)
            raise
        except Exception as error:
            error.add_note(f"Data and logs are kept in {environment.directory}")
            raise
        finally:
            screen.leave()
    _tell_verdict(environment, verdict)
    return verdict.code


def describe_exit_codes() -> str:
    """Return the table of exit codes for the help."""
    lines = [f"  {code.value:<5}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(["exit codes:", *lines, "  128+n  ended by signal n"])


def _tell_verdict(environment: Environment, verdict: Verdict) -> None:
    if verdict.is_disposable:
        mark_disposable(environment.directory)
    kept = "Until the next demo:" if verdict.is_disposable else "Everything is kept:"
    places = [f"  {line}" for line in environment.describe()]
    output = sys.stdout if verdict.code is ExitCode.CLEAN else sys.stderr
    print(*verdict.lines, kept, *places, sep="\n", file=output)


def _require_files(options: DemoOptions) -> None:
    for path in options.input:
        if not path.is_file():
            raise StackError(f"There is no file {path}: --input wants files of log lines.")


def _on_signal(number: int, _: FrameType | None) -> None:
    for later in _SIGNALS:  # nothing may interrupt the cleaning up, which takes a few seconds
        signal.signal(later, lambda *_: None)
    raise _SignalledError(number)


if __name__ == "__main__":
    sys.exit(main())
