"""`python -m deploy.demo`: start everything, break things, audit; `--help` lists the options.

Exit code: the audit's (0 clean, 1 findings, 2 could not tell), 1 for what prevents the demo, 128 + signal.
"""

import signal
import sys
from types import FrameType

try:
    from deploy.demo.environment import Environment, mark_disposable, start_environment
    from deploy.demo.options import DemoOptions, parse_options
    from deploy.demo.screen import make_screen
    from deploy.demo.story import Story
    from deploy.demo.writer import ProduceError
    from deploy.local.errors import StackError
except ModuleNotFoundError as missing:
    sys.exit(
        f"demo: the Python package {missing.name} is missing: use `make demo`, or `make setup` and .venv/bin/python."
    )


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _SignalledError(BaseException):
    """A signal asks us to end; not an Exception, so that nobody on the way takes it for an error."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; on return nothing that it started is left."""
    options = parse_options(arguments)
    for number in _SIGNALS:
        signal.signal(number, _on_signal)
    try:
        return _run(options)
    except (StackError, ProduceError) as error:
        print("\n".join([f"demo: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 1
    except _SignalledError as signalled:
        print("demo: interrupted, everything is stopped", file=sys.stderr)
        return 128 + signalled.number


def _run(options: DemoOptions) -> int:
    _require_files(options)
    screen = make_screen()
    with start_environment(options, screen.tell) as environment:
        try:
            code = Story(options, environment, screen).run()
        except _SignalledError:
            mark_disposable(environment.directory)
            raise
        except Exception as error:
            error.add_note(f"Data and logs are kept in {environment.directory}")
            raise
        finally:
            screen.leave()
    _tell_verdict(environment, code)
    return code


def _tell_verdict(environment: Environment, code: int) -> None:
    places = "\n".join(f"  {line}" for line in environment.describe())
    if code == 0:
        mark_disposable(environment.directory)
        print(f"The audit is clean. Until the next demo:\n{places}")
    else:
        what = "found something" if code == 1 else f"could not tell (exit code {code})"
        print(f"The audit {what}. Everything is kept:\n{places}", file=sys.stderr)


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
