"""Workflows of the hosted CI."""

from __future__ import annotations

import re

from tests.deployment.tools import ROOT, run

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_workflows_are_what_the_hosted_ci_understands() -> None:
    """Their syntax, their expressions, the inputs of well-known actions; their shell if shellcheck is installed."""
    done = run("actionlint", *WORKFLOWS)
    assert (done.returncode, done.stdout) == (0, "")


def test_workflows_take_actions_by_one_version_and_make_targets_that_exist() -> None:
    """`@v6` or a branch would be another action tomorrow."""
    text = "\n".join(path.read_text() for path in WORKFLOWS)
    makefiles = "\n".join(path.read_text() for path in (ROOT / "Makefile", *(ROOT / "tools").glob("*.mk")))

    actions = re.findall(r"uses: (\S+)", text)
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", action)] == []
    targets = set(re.findall(r"run: make (\S+)", text))
    assert {target for target in targets if not re.search(rf"^{target}:", makefiles, re.MULTILINE)} == set()
