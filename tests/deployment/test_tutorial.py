"""docs/TUTORIAL.md: what its reader copies runs, and shows what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment.tools import ROOT
from tests.stack.providers import REPOSITORY, jars
from tools.local.__main__ import main
from tools.local.ports import find_free_ports
from tools.local.stack import StackHome, environment_of

PAGE = ROOT / "docs" / "TUTORIAL.md"
OF_THE_STACK = re.compile(r"make |\. \.venv|eval ")  # up and down, with ports and a directory of the test's own


@pytest.mark.slow
@pytest.mark.integration
def test_tutorial_runs_from_a_sample_to_its_rows(tmp_path: Path) -> None:
    """All blocks in one shell, which stops at the first command that fails."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    (source,) = re.findall(r"^make up SOURCE=(\S+)$", text, re.MULTILINE)
    script = "\n".join(line for block in blocks for line in block.splitlines() if not OF_THE_STACK.match(line))
    jars()
    (tmp_path / "jars").symlink_to(REPOSITORY / ".local" / "jars")
    kafka_port, s3_port, http_port = find_free_ports(3)
    try:
        ports = ["--kafka-port", str(kafka_port), "--s3-port", str(s3_port)]
        assert main(["up", *ports, "--source", source], home=tmp_path) == 0
        stack = StackHome(tmp_path).load()
        assert stack is not None
        paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["/usr/bin/env", "bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=os.environ | environment_of(stack) | {"PATH": paths, "LOGP_HTTP__PORT": str(http_port)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        main(["down"], home=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r'"entries": ?4\b', done.stdout), done.stdout
    assert re.search(r"\n  missing +0\n  duplicated +0\n", done.stdout)
    assert (
        len(
            re.findall(
                r"^PartitionKey\(user='(?:ann|bob)', date='2026-03-04', hour=[56]\) \{", done.stdout, re.MULTILINE
            )
        )
        == 3
    )
