"""`make release`: it refuses if something is missing, and does nothing unless told to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deployment.tools import ROOT

CHANGES = "# Changelog\n\n## [1.2.3] - 2027-01-31\n"


def _git(tree: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=ann", "-c", "user.email=ann@a.example", *arguments]
    return subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a repository that may be released as 1.2.3; its Python and its make say yes to all."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "release.sh").write_text((ROOT / "tools" / "release.sh").read_text())
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    for name in ("python", "make", "helm"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $@" >>"$0.asked"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".gitignore").write_text("*.asked\n")
    _git(tmp_path, "init")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-m", "all")
    return tmp_path


def _release(tree: Path, yes: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"VERSION": "1.2.3", "YES": yes, "BIN": str(tree), "PATH": f"{tree}:/usr/local/bin:/usr/bin:/bin"}
    environment |= {"GIT_COMMITTER_NAME": "ann", "GIT_COMMITTER_EMAIL": "ann@a.example"}
    command = ["bash", tree / "tools" / "release.sh"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("yes", "tags"), [("", ""), ("1", "v1.2.3\n")])
def test_release_says_its_steps_and_does_them_only_if_told_to(tree: Path, yes: str, tags: str) -> None:
    done = _release(tree, yes)

    steps = [line.removeprefix("+ ") for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert [step.split()[:2] for step in steps] == [
        ["make", "lint"],
        ["make", "image"],
        ["helm", "package"],
        ["git", "tag"],
    ]
    assert _git(tree, "tag") == tags
    assert (tree / "make.asked").exists() == bool(yes)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda tree: (tree / "a").touch(), "in no commit"),
        (lambda tree: _git(tree, "tag", "v1.2.3"), "there is a tag"),
        (lambda tree: _commit(tree, "CHANGELOG.md", "## [1.2.2] - 2027-01-30\n"), "no heading"),
        (lambda tree: _commit(tree, "CHANGELOG.md", f"## [Unreleased]\n\n{CHANGES}"), "part Unreleased"),
        (lambda tree: _commit(tree, "python", "#!/bin/sh\nexit 1\n"), "make docs"),
    ],
)
def test_release_of_what_is_not_ready_is_refused(tree: Path, spoil: Callable[[Path], None], reason: str) -> None:
    """Before anything is built, with the reason."""
    spoil(tree)

    done = _release(tree, "1")

    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr


def _commit(tree: Path, name: str, text: str) -> None:
    (tree / name).write_text(text)
    _git(tree, "commit", "--all", "-m", "another")
