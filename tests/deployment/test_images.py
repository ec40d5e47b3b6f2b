"""Both images: one base, lock files, what the chart demands; the version, and how `make` builds and pushes them."""

import fnmatch
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.deployment.tools import CHART, ROOT
from tools.demo.fleet import AS_IN_THE_IMAGE
from tools.docs.chart_values import values_of

DOCKERFILE = re.sub(r" \\\n +", " ", re.sub(r"^ *#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
STAGES = dict(re.findall(r"^FROM \S+ AS (\w\S*)\n((?:(?!FROM ).*\n)*)", DOCKERFILE, re.MULTILINE))
IMAGES = ("worker", "pipeline")


@pytest.fixture
def answers() -> Iterator[list[int]]:
    """A server's answers to GET /livez: the status of each, and the port, which comes first."""
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop() if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        statuses.append(server.server_port)
        yield statuses
        server.shutdown()


def test_images_are_made_from_lock_files() -> None:
    """Each package has a hash or is our own; crates and jars are held against theirs by Cargo.lock and jars.lock."""
    installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) ([^&\n]*)", DOCKERFILE)

    assert len(installs) >= 7
    assert [one for one in installs if "--require-hashes" not in one and "--no-deps" not in one] == []
    assert tomllib.loads((ROOT / "native" / "pyproject.toml").read_text())["tool"]["maturin"]["locked"]
    assert "cmp /build/fetched.lock /build/jars.lock" in STAGES["jars"]


def test_images_have_one_base_that_a_build_can_replace() -> None:
    """A mirror or a digest is given from outside; a pin or a syntax line would need a registry that it names."""
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))

    assert bases == {"${BASE}", "builder"}
    assert re.findall(r"^ARG BASE=(.+)$", DOCKERFILE, re.MULTILINE) == ["python:3.12-slim-trixie"]
    assert not re.search(r"^# *syntax", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert list(STAGES)[-1] == "worker", "`docker build .` makes the worker's image"


def test_build_context_has_what_is_copied_and_nothing_else() -> None:
    """An allow-list: a secret or a local tree cannot slip in by accident."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        source
        for sources in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for source in sources.split()
    }

    assert rules[0] == "*"
    assert {one for one in allowed if not any(fnmatch.fnmatch(one, source.split("/")[0]) for source in copied)} == set()
    assert {one for one in copied if not any(fnmatch.fnmatch(name, one.split("/")[0]) for name in allowed)} == set()


@pytest.mark.parametrize("image", IMAGES)
def test_image_has_number_of_its_user_licences_sbom_and_labels(image: str) -> None:
    """Kubernetes can see that a number is not root; scanners find what is inside."""
    stage = STAGES[image]
    (user,) = (value.scalar for value in values_of() if value.path == ("podSecurityContext", "runAsUser"))

    assert re.findall(r"^USER (.+)$", stage, re.MULTILINE) == [f"{user}:{user}"]
    assert "/build/python.cdx.json /usr/share/doc/log-partitioner/" in stage
    assert "/build/licenses /usr/share/doc/log-partitioner/crates" in stage
    assert {"title", "licenses", "version", "revision", "source"} == set(
        re.findall(r"opencontainers\.image\.(\w+)=", stage)
    )


def test_worker_image_starts_a_worker_as_the_demo_does() -> None:
    """`docker run` without arguments; with variables that were measured."""
    assert {'ENTRYPOINT ["log-partitioner"]', 'CMD ["run"]'} <= set(STAGES["worker"].splitlines())
    assert all(f"{name}={value}" in STAGES["worker"] for name, value in AS_IN_THE_IMAGE.items())


def test_worker_image_is_healthy_while_livez_says_so(answers: list[int]) -> None:
    """The health check itself, run: 200 is healthy; 503, or a closed port, is not."""
    (command,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", STAGES["worker"], re.MULTILINE)
    port = answers.pop()
    answers += [503, 200]

    codes = [
        subprocess.run(json.loads(command), env={"LOGP_HTTP__PORT": one}, capture_output=True, check=False).returncode
        for one in (str(port), str(port), "1")
    ]

    assert codes == [0, 1, 1]


def test_version_is_typed_once_and_repeated_only_for_tools_that_must_read_it() -> None:
    """pyproject.toml has it; the others, which cannot ask there, say the same."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    crate = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())["package"]
    locked = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text())["package"]
    chart = {value.path[0]: value.text for value in values_of(CHART / "Chart.yaml")}
    repeated = {
        "native/Cargo.toml": crate["version"],
        "native/Cargo.lock": next(one["version"] for one in locked if one["name"] == crate["name"]),
        "Chart.yaml, version": chart["version"],
        "Chart.yaml, appVersion": chart["appVersion"],
    }
    for page in (ROOT / "docs").glob("*.md"):
        for tag in re.findall(r"\blog-partitioner(?:-pipeline)?:(\d[\w.]*\d)", page.read_text()):
            repeated[page.name] = tag

    assert {place: other for place, other in repeated.items() if other != version} == {}


def test_make_builds_and_pushes_both_images_by_version_and_commit() -> None:
    """By the registry and base that are given; without a registry nothing is built in vain."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    done = _make(
        "image-push",
        "REGISTRY=registry.example/team",
        "BASE=mirror.example/python@sha256:0a",
        "SOURCE=https://a.example",
    )

    builds = [line for line in done.stdout.splitlines() if "docker build" in line]
    assert [re.findall(r"--target (\S+) --tag (\S+)", line) for line in builds] == [
        [("worker", f"registry.example/team/log-partitioner:{version}")],
        [("pipeline", f"registry.example/team/log-partitioner-pipeline:{version}")],
    ]
    for line in builds:
        assert {*re.findall(r"--build-arg (\w+)=\S", line)} == {"VERSION", "REVISION", "SOURCE", "BASE"}
    assert done.stdout.splitlines()[-2:] == [
        f"docker push registry.example/team/log-partitioner:{version}",
        f"docker push registry.example/team/log-partitioner-pipeline:{version}",
    ]
    assert "Set REGISTRY=" in _make("image-push").stderr


@pytest.mark.parametrize(("packages", "crates"), [(0, 0), (1, 0), (0, 1)])
def test_make_advisories_fails_if_packages_or_crates_are_not_clean_or_were_not_looked_at(
    tmp_path: Path, packages: int, crates: int
) -> None:
    """Both are asked in any case; pip-audit alone would pass over what its database does not know."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / ".installed").touch()
    for name, code in (("pip-audit", packages), ("cargo", crates), ("cargo-audit", 0)):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@"\nexit {code}\n')
        (programs / name).chmod(0o755)

    done = _make("advisories", f"VENV={tmp_path}", f"TOOLS_BIN={programs}", dry_run=False)

    assert (done.returncode != 0) == (packages + crates > 0) == ("NOT CLEAN, or not looked at" in done.stderr)
    assert "pip-audit --strict " in done.stdout
    assert "cargo audit " in done.stdout


def _make(*arguments: str, dry_run: bool = True) -> subprocess.CompletedProcess[str]:
    # Below `make test` it would say in which folder it is.
    command = ["/usr/bin/env", "make", "--no-print-directory", *(["--dry-run"] if dry_run else []), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
