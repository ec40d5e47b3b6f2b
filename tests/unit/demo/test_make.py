"""What `make demo` hands to the demo, by a real make and shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.demo.options import parse_options

ROOT = Path(__file__).parents[3]
AWKWARD = [
    r"id\.orig_h",
    "user name",
    "it's",
    'say "so"',
    "$ref $(shell false) ${HOME} `false`",
    "a;b|c&d>e*?[f]~",
    "-rf",
    "--seed",
    "a,b=c#d%e",
    "trailing\\",
    "'",
    "Müller",
]


def make_demo(tmp_path: Path, *variables: str) -> list[str]:
    """Run `make demo`; return the demo's arguments."""
    arguments = make(tmp_path, "demo", *variables)
    assert arguments[:2] == ["-m", "tools.demo"]
    return arguments[2:]


def make(tmp_path: Path, target: str, *variables: str) -> list[str]:
    """Run make with a Python that only writes down how it was called; return its arguments."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    called = tmp_path / "called.json"
    python = bin_directory / "python"
    python.write_text(f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open({str(called)!r}, 'w'))\n")
    python.chmod(0o700)
    (tmp_path / ".installed").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", target, f"VENV={tmp_path}", *variables]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=60)
    arguments: list[str] = json.loads(called.read_text())
    return arguments


@pytest.mark.parametrize("value", AWKWARD)
def test_make_demo_hands_on_every_path_as_it_was_given(tmp_path: Path, value: str) -> None:
    """Backslashes, quotes, spaces, dollars and dashes survive make and shell, in each of the four variables."""
    names = ("INPUT", "USER_PATH", "TIME_PATH", "ID_PATH")
    options = parse_options(make_demo(tmp_path, *(f"{name}={value}" for name in names)))

    assert options.input == (Path(value),)
    assert (options.user_paths, options.time_paths, options.id_paths) == ((value,), (value,), (value,))


def test_make_demo_without_variables_has_no_arguments(tmp_path: Path) -> None:
    """What is not given is left to the demo."""
    assert make_demo(tmp_path) == []


def test_make_demo_args_are_several_arguments(tmp_path: Path) -> None:
    """ARGS is for the shell to split: that is where several files and paths go."""
    options = parse_options(make_demo(tmp_path, r"ARGS=--layout pack --user-path user 'id\.orig_h' --audit small"))

    assert (options.layout, options.user_paths, options.audit) == ("pack", ("user", r"id\.orig_h"), "small")


def test_make_down_keeps_data_unless_it_is_told_to_wipe(tmp_path: Path) -> None:
    """`make down WIPE=1` is the way to a clean stack."""
    (tmp_path / "wipe").mkdir()
    assert make(tmp_path, "down") == ["-m", "tools.local", "down"]
    assert make(tmp_path / "wipe", "down", "WIPE=1") == ["-m", "tools.local", "down", "--wipe"]
