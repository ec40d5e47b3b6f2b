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
RULES = CHART / "files" / "log-partitioner.rules.yaml"
Manifests = dict[str, dict[str, Any]]
_PATH = os.pathsep.join([str(ROOT / ".local" / "bin"), os.environ.get("PATH", "")])


def find(tool: str) -> str | None:
    """Path of a tool, or None if it is absent."""
    return shutil.which(tool, path=_PATH)


def run(tool: str, *arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool that is present; the caller judges the exit code."""
    path = find(tool)
    assert path is not None, f"{tool} is absent: this test should not have been collected"
    return subprocess.run([path, *map(str, arguments)], input=text, capture_output=True, text=True, check=False)


def has_docker_compose() -> bool:
    """Say whether a Docker engine answers that `docker compose` can talk to."""
    return find("docker") is not None and not any(
        run("docker", *command).returncode for command in (("info",), ("compose", "version"))
    )


def render(
    *,
    release: str = "logs",
    namespace: str = "default",
    values: Sequence[str] = (),
    values_json: Sequence[str] = (),
    files: Sequence[Path] = (),
) -> subprocess.CompletedProcess[str]:
    """Render the chart with the required values and more: files, and values as `--set` and `--set-json` take them."""
    more = [argument for file in files for argument in ("--values", str(file))]
    more += [argument for value in values for argument in ("--set", value)]
    more += [argument for value in values_json for argument in ("--set-json", value)]
    return run("helm", "template", release, CHART, "--namespace", namespace, "--values", REQUIRED_VALUES, *more)


def manifests_of(scratch: Path, *values: str, **rendered: Any) -> Manifests:
    """Render and parse the chart with more `--set` values, and what else `render` takes."""
    done = render(values=values, **rendered)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout, scratch / "parse")


def pod_of(manifests: Manifests) -> dict[str, Any]:
    """Return the spec of the workers' pods."""
    pod: dict[str, Any] = manifests["StatefulSet"]["spec"]["template"]["spec"]
    return pod


def worker_of(manifests: Manifests) -> dict[str, Any]:
    """Return the worker's container."""
    worker: dict[str, Any] = pod_of(manifests)["containers"][0]
    return worker


def parse(manifests: str, scratch: Path) -> Manifests:
    """Parse what was rendered: kind -> object, of more of a kind those behind the first as kind/name.

    By helm itself, in a chart of its own: no YAML library is needed.
    """
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
    kinds: Manifests = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"'):
            thing = json.loads(line)
            kind = thing["kind"]
            kinds[f"{kind}/{thing['metadata']['name']}" if kind in kinds else kind] = thing
    return kinds
