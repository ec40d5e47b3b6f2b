"""`python -m tools.local up|down|status|env|lock`: the local stack from the command line.

Prints for people, except `env`, which prints shell lines: `eval "$(python -m tools.local env)"`.
The secret key is printed by `env` alone.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

from tools.local.errors import StackError
from tools.local.jars import write_lock
from tools.local.stack import Stack, StackHome, StackOptions, environment_of

HOME = Path(__file__).parents[2] / ".local"


def main(arguments: list[str] | None = None, *, home: Path = HOME) -> int:
    """Run one command; return the exit code: 0 done, 1 could not, 3 `status` or `env` without a stack."""
    chosen = _parse(arguments)
    stack_home = StackHome(home)
    try:
        match chosen.command:
            case "up":
                return _up(stack_home, chosen)
            case "down":
                stopped = stack_home.down(wipe=chosen.wipe)
                print(f"Stopped {stopped} processes." if stopped else "Nothing was running.")
            case "lock":
                print(f"Wrote {write_lock()}.")
            case command:
                return _tell(stack_home, command)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def describe(stack: Stack) -> str:
    """Return, in a few lines, the addresses of the servers and how to point a worker at them."""
    processes = "\n".join(
        f"  {process.name}: pid {process.pid}{'' if process.is_running() else ' (ended)'}"
        for process in stack.processes
    )
    return (
        f"Kafka  {stack.bootstrap_servers}  source topic {stack.source}\n"
        f"S3     {stack.s3.url}  bucket {stack.bucket}  access key {stack.s3.access_key}\n"
        f"Data and logs are under {stack.directory}. Processes:\n"
        f"{processes}\n"
        "A worker on it:\n"
        f'  eval "$({_program("python")} -m tools.local env)"\n'
        f"  {_program('log-partitioner')} check-config && {_program('log-partitioner')} run\n"
        "`make down` stops it and keeps the data, `make down WIPE=1` removes them."
    )


def _program(name: str) -> str:
    """Return how a shell calls a program of the virtual environment, from the directory that it stands in."""
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        return name
    return shlex.quote(str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program))


def _up(stack_home: StackHome, chosen: argparse.Namespace) -> int:
    stack, started_now = stack_home.up(
        StackOptions(
            kafka_port=chosen.kafka_port,
            s3_port=chosen.s3_port,
            brokers=chosen.brokers,
            source=chosen.source,
            partitions=chosen.partitions,
            bucket=chosen.bucket,
        )
    )
    print("Started." if started_now else "It is already up.")
    print(describe(stack))
    return 0


def _tell(stack_home: StackHome, command: str) -> int:
    stack = stack_home.load()
    if stack is None or (command == "env" and not stack.is_running()):
        print("The local stack is not up: `make up` starts it.", file=sys.stderr)
        return 3
    if command == "status":
        print(describe(stack))
        return 0 if stack.is_running() else 3
    for name, value in environment_of(stack).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.local", description="Real Kafka and S3 on 127.0.0.1.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start Kafka and S3, create topics and bucket, keep them running")
    defaults = StackOptions()
    up.add_argument("--kafka-port", type=int, default=defaults.kafka_port, help="default: %(default)s")
    up.add_argument("--s3-port", type=int, default=defaults.s3_port, help="default: %(default)s")
    up.add_argument("--brokers", type=int, choices=(1, 3), default=defaults.brokers, help="default: %(default)s")
    up.add_argument(
        "--source", default=defaults.source, help="source topic, which a running stack gets, too; default: %(default)s"
    )
    up.add_argument("--partitions", type=int, default=defaults.partitions, help="of it; default: %(default)s")
    up.add_argument("--bucket", default=defaults.bucket, help="default: %(default)s")
    down = commands.add_parser("down", help="stop what `up` started")
    down.add_argument("--wipe", action="store_true", help="remove topics and objects too")
    commands.add_parser("status", help="say what runs and where")
    commands.add_parser("env", help="print the environment of a worker as shell lines")
    commands.add_parser("lock", help="write jars.lock anew, after a change of pom.xml")
    return parser.parse_args(arguments)


def run(arguments: list[str] | None = None, *, home: Path = HOME) -> int:
    """Run one command for a shell: a reader that has seen enough, such as `head`, is no error."""
    try:
        code = main(arguments, home=home)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return 0
    return code


if __name__ == "__main__":
    sys.exit(run())
