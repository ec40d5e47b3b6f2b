"""helm and promtool, where `make chart-tools` puts them or on the PATH."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "log-partitioner"
REQUIRED_VALUES = CHART / "ci" / "required-values.yaml"
RULES = ROOT / "deploy" / "alerts" / "log-partitioner.rules.yaml"
_PATH = os.pathsep.join([str(ROOT / ".local" / "bin"), os.environ.get("PATH", "")])


def find(tool: str) -> str | None:
    """Path of a tool; None where it is absent."""
    return shutil.which(tool, path=_PATH)


def run(tool: str, *arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool that is present; the caller judges the exit code."""
    path = find(tool)
    assert path is not None, f"{tool} is absent: this test should not have been collected"
    return subprocess.run([path, *map(str, arguments)], input=text, capture_output=True, text=True, check=False)


def render(
    *, values: Sequence[str] = (), values_json: Sequence[str] = (), files: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Render the chart with the required values and more: files, and values as `--set` and `--set-json` take them."""
    more = [argument for file in files for argument in ("--values", str(file))]
    more += [argument for value in values for argument in ("--set", value)]
    more += [argument for value in values_json for argument in ("--set-json", value)]
    return run("helm", "template", "logs", CHART, "--values", REQUIRED_VALUES, *more)


def parse(manifests: str, scratch: Path) -> dict[str, dict[str, Any]]:
    """Parse what was rendered: kind -> object. By helm itself, in a chart of its own: no YAML library is needed."""
    templates = scratch / "templates"
    templates.mkdir(parents=True)
    (scratch / "Chart.yaml").write_text("{apiVersion: v2, name: parse, version: 0.0.0}")
    for number, manifest in enumerate(manifests.split("\n---\n")):
        (scratch / f"{number}.yaml").write_text(manifest)
    (templates / "all.yaml").write_text(
        '{{ range $path, $_ := .Files.Glob "*.yaml" }}\n---\n{{ $.Files.Get $path | fromYaml | toJson }}\n{{ end }}'
    )
    done = run("helm", "template", "parse", scratch)
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    kinds = {thing["kind"]: thing for thing in objects if thing}
    assert len(kinds) == sum(bool(thing) for thing in objects), "the chart has one object of each kind"
    return kinds
