"""The entrypoint of the pipeline's image: jobs, drivers and executors."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.deployment.tools import ROOT

ENTRYPOINT = ROOT / "pipeline" / "entrypoint.sh"
PYTHON_RUNNER = "org.apache.spark.deploy.PythonRunner"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "audit-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_1": "-Dname=with a space",
    "SPARK_JAVA_OPT_10": "-Dlast",
    "PIPELINE_SPARK__JARS_DIRECTORY": "/jars",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with a `java`, a `python` and a `spark-submit` that say how they were called, an argument a line."""
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    home = f'case "$1" in -c) echo {tmp_path}/spark; exit;; esac; '
    jars = 'printf "%s\\n" "$SPARK_DIST_CLASSPATH"; '
    for program, answer in ((tmp_path / "java", ""), (tmp_path / "python", home), (submit, jars)):
        program.write_text(f'#!/bin/sh\n{answer}printf "%s\\n" {program.name} "$@"\n', encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def test_entrypoint_runs_jobs(programs: Path) -> None:
    """Arguments are those of the command line, unchanged."""
    assert _run(programs, ["audit", "--every", "1 h"], {}) == [
        "python",
        "-m",
        "log_partitioner_pipeline",
        "audit",
        "--every",
        "1 h",
    ]


def test_entrypoint_runs_executors(programs: Path) -> None:
    """As Spark's own image does: options in the order of their numbers, then the backend with what the driver says."""
    said = _run(programs, ["executor"], EXECUTOR)
    assert said[:6] == ["java", "-Dspark.driver.port=7078", "-Dname=with a space", "-Dlast", "-Xms2g", "-Xmx2g"]
    backend = said.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert said[backend - 2 : backend] == ["-cp", f"{programs}/spark/jars/*:/jars/*:{programs}"]
    assert dict(zip(said[backend + 1 :: 2], said[backend + 2 :: 2], strict=True)) == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "audit-exec-1",
    }


def test_entrypoint_runs_drivers_of_spark_operators(programs: Path) -> None:
    """Arguments are those of the pod that spark-submit makes in cluster mode, for kubeflow's operator and Apache's.

    Jars are on the class path from the start: the catalogue's classes are not found in those that a session adds later.
    """
    submitted = ["--properties-file", "/opt/spark/conf/spark.properties", "--class", PYTHON_RUNNER]
    job = ["local:///opt/log-partitioner/pipeline.py", "audit", "--every", "1 h"]
    environment = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.6", "PIPELINE_SPARK__JARS_DIRECTORY": "/jars"}
    assert _run(programs, ["driver", *submitted, *job], environment) == [
        "/jars/*",
        "spark-submit",
        "--deploy-mode",
        "client",
        "--conf",
        "spark.driver.bindAddress=10.0.0.6",
        "--conf",
        "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.6",
        *submitted,
        *job,
    ]


def test_entrypoint_names_what_an_executor_lacks(programs: Path) -> None:
    """Started by hand without Spark's variables it says which is absent."""
    answer = subprocess.run(
        [ENTRYPOINT, "executor"],
        env=_environment(programs, {}),
        cwd=programs,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode != 0
    assert "SPARK_EXECUTOR_MEMORY" in answer.stderr


def _run(programs: Path, arguments: list[str], variables: dict[str, str]) -> list[str]:
    answer = subprocess.run(
        [ENTRYPOINT, *arguments],
        env=_environment(programs, variables),
        cwd=programs,
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()


def _environment(programs: Path, variables: dict[str, str]) -> dict[str, str]:
    return {**variables, "PATH": f"{programs}:{os.environ['PATH']}"}
