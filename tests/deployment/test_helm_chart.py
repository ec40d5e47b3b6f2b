"""The chart as helm renders it: needs helm, no cluster and no network."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from log_partitioner.cli import main
from log_partitioner.config.checks import load
from log_partitioner.config.flush_settings import ABORT_S
from log_partitioner.config.kafka_properties import SECRET
from log_partitioner.config.settings import PREFIX, Settings
from log_partitioner.patience import LEAVE_S_MAX
from log_partitioner_pipeline import cli as pipeline_cli
from tests.deployment.tools import (
    CHART,
    ROOT,
    Manifests,
    manifests_of,
    parse,
    pod_of,
    render,
    run,
    worker_of,
)

CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture
def chart(tmp_path: Path) -> Manifests:
    """The chart with nothing but what it requires."""
    return manifests_of(tmp_path)


def _settings(manifests: Manifests, monkeypatch: pytest.MonkeyPatch, *, pod: str) -> Settings:
    """Load the settings from the environment that the pod would have."""
    for name, value in manifests["ConfigMap"]["data"].items():
        monkeypatch.setenv(name, value)
    for variable in worker_of(manifests)["env"]:
        value = pod if variable.get("valueFrom") else variable["value"]
        monkeypatch.setenv(variable["name"], value)
    return load()


@pytest.mark.parametrize("values", sorted((CHART / "ci").glob("*-values.yaml")), ids=lambda file: file.name)
@pytest.mark.parametrize("replicas", [1, 3])
def test_chart_passes_lint(replicas: int, values: Path) -> None:
    """`helm lint --strict` finds nothing."""
    done = run("helm", "lint", "--strict", CHART, "--values", values, "--set", f"replicaCount={replicas}")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("replicas", [1, 3])
def test_chart_renders_replicas(tmp_path: Path, replicas: int) -> None:
    """A StatefulSet of that many workers, all at once, each named by its pod."""
    manifests = manifests_of(tmp_path, f"replicaCount={replicas}")

    stateful_set = manifests["StatefulSet"]["spec"]
    assert stateful_set["replicas"] == replicas
    assert stateful_set["podManagementPolicy"] == "Parallel"
    assert worker_of(manifests)["env"] == [
        {"name": "LOGP_WORKER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    ]
    assert set(manifests) == {
        *("StatefulSet", "ConfigMap", "Service", "PodDisruptionBudget", "ServiceAccount", "Pod", "CronJob")
    }


def test_chart_settings_are_accepted_by_the_service(chart: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod's environment gives the service's defaults, its own name, those of the release, and the volume."""
    settings = _settings(chart, monkeypatch, pod="logs-log-partitioner-2")

    expected = Settings.model_validate(
        {
            "worker": "logs-log-partitioner-2",
            "kafka": {
                "bootstrap_servers": "kafka-0.example:9092,kafka-1.example:9092",
                "source_topics": ["app-logs"],
                "group_id": "default.logs.log-partitioner",
                "references_topic": "default.logs.log-partitioner.references",
                "flushes_topic": "default.logs.log-partitioner.flushes",
                "dead_letters_topic": "default.logs.log-partitioner.dead-letters",
                "backfills_topic": "default.logs.log-partitioner.backfills",
            },
            "s3": {"bucket": "example-logs", "prefix": "default.logs.log-partitioner"},
            "spool": {"directory": "/var/spool/log-partitioner"},
        }
    )
    assert settings == expected
    assert settings.transactional_id.endswith(".logs-log-partitioner-2")


def test_chart_values_for_development_verify_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry, and a difference ends the worker."""
    done = render(files=[CHART / "values-development.yaml"])
    assert done.returncode == 0, done.stderr
    verify = _settings(parse(done.stdout, tmp_path / "parsed"), monkeypatch, pod="logs-0").verify
    assert (verify.share, verify.on_difference) == (1.0, "stop")


def test_chart_settings_of_every_type_arrive_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, maps, large integers, fractions, booleans and awkward text survive values -> variable -> setting."""
    awkward = "a \"quote\", a 'quote', $(VAR), {{ braces }}, ü, \\ # : - "
    values = {
        "config.transactional_id_prefix": "team-a",
        "config.kafka.client_properties": {
            "security.protocol": "SSL",
            "fetch.max.bytes": 104_857_600,
            "debug": "cgrp",
            "socket.keepalive.enable": True,
        },
        "config.kafka.group_id": awkward,
        "config.user.paths": ["user.name", "header:x-user"],
        "config.user.no_values": ["", "-", "null"],
        "config.spool.bytes_max": 9_000_000_000_000,
        "config.flush.interval_s": 7.5,
        "config.flush.bytes_max": "64MiB",
        "config.time.future_max_s": "1m",
        "config.s3.conditional": False,
        "config.s3.endpoint_url": None,
        "config.topics": {"app-logs": {"input": {"record_bytes_max": "1MiB"}, "user": {"paths": ["client"]}}},
    }
    json_values = tuple(f"{path}={json.dumps(value)}" for path, value in values.items())

    settings = _settings(manifests_of(tmp_path, values_json=json_values), monkeypatch, pod="w-0")

    assert settings.transactional_id_prefix == "team-a"
    assert settings.kafka.group_id == awkward
    assert settings.user.paths == ("user.name", "header:x-user")
    assert settings.user.no_values == ("", "-", "null")
    assert settings.spool.bytes_max == 9_000_000_000_000
    assert settings.flush.interval_s == 7.5
    assert (settings.flush.bytes_max, settings.time.future_max_s) == (67_108_864, 60)
    assert settings.kafka.client_properties == {
        "security.protocol": "SSL", "fetch.max.bytes": "104857600", "debug": "cgrp", "socket.keepalive.enable": "true",
    }  # fmt: skip
    of_topic = settings.of_topic("app-logs")
    assert (of_topic.input.record_bytes_max, of_topic.user.paths) == (1_048_576, ("client",))
    assert settings.s3.conditional is False
    assert settings.s3.endpoint_url is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("config.flush.interval=3", "'interval' not allowed"),
        ("config.flush.interval_s=soon", "does not match pattern"),
        ("config.topics.app-logs.input.form=x", "'form' not allowed"),
        ("config.s3.secret_key=x", "'secret_key' not allowed"),
        ("config.http.port=0", "minimum"),
        ("config.kafka.group_protocol=eager", "value must be one of"),
        ("replicas=3", "'replicas' not allowed"),
        ("config.s3.bucket=", "minLength"),
        ("config.flush.budget_s=null", "missing property 'budget_s'"),
        ("terminationGracePeriodSeconds=150", "'terminationGracePeriodSeconds' not allowed"),
    ],
)
def test_chart_value_that_is_no_setting_is_refused(value: str, message: str) -> None:
    """A typo, a secret in the open, a port without a probe: refused by the values' schema, not by the pod."""
    done = render(values=[value])

    assert done.returncode != 0
    assert message in done.stderr


def test_chart_property_that_is_secret_or_may_not_be_set_is_refused() -> None:
    """It would stand in the ConfigMap before the worker could refuse it; the value is not repeated."""
    names = [*sorted(SECRET), "SASL.Password", " sasl.password", "ssl.truststore.passwd", "isolation.level"]

    done = render(values_json=[f"config.kafka.client_properties={json.dumps(dict.fromkeys(names, CANARY))}"])

    assert done.returncode != 0
    assert "at '/config/kafka/client_properties': additional properties" in done.stderr
    assert [name for name in names if f"'{name}'" not in done.stderr] == []
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("missing", ["kafka.bootstrap_servers", "kafka.source_topics", "s3.bucket"])
def test_chart_without_a_required_value_is_refused(missing: str) -> None:
    """The chart refuses values without a source or a bucket, and says so."""
    required = {"kafka.bootstrap_servers": "kafka:9092", "kafka.source_topics[0]": "logs", "s3.bucket": "logs"}
    given = [f"config.{path}={value}" for path, value in required.items() if not path.startswith(missing)]

    done = run("helm", "template", "logs", CHART, "--set", ",".join(given))

    assert done.returncode != 0
    assert f"config.{missing} is not set" in done.stderr


@pytest.mark.parametrize("budget_s", [None, 20, 110.5, 1800, '"1500s"', '"0.5h"', '"25000ms"'])
def test_chart_grace_period_is_longer_than_a_flush_and_what_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget_s: float | str | None
) -> None:
    """W10: SIGKILL comes after the longest flush, an abort and leaving."""
    manifests = manifests_of(tmp_path, values_json=() if budget_s is None else (f"config.flush.budget_s={budget_s}",))

    flush = _settings(manifests, monkeypatch, pod="w-0").flush
    assert pod_of(manifests)["terminationGracePeriodSeconds"] > flush.budget_s + ABORT_S + LEAVE_S_MAX


def test_chart_probes_and_metrics_are_on_the_port_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes, Service and PodMonitor name the one port that the worker opens."""
    manifests = manifests_of(tmp_path, "config.http.port=9100", "podMonitor.enabled=true", "podMonitor.labels.team=a")
    worker = worker_of(manifests)

    assert worker["ports"] == [{"name": "http", "containerPort": 9100}]
    assert worker["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert worker["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert manifests["Service"]["spec"]["ports"] == [{"name": "http", "port": 9100, "targetPort": "http"}]
    assert manifests["Service"]["spec"]["clusterIP"] == "None"
    (endpoint,) = manifests["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "30s"}
    assert manifests["PodMonitor"]["metadata"]["labels"]["team"] == "a"
    assert _settings(manifests, monkeypatch, pod="w-0").http.port == 9100


def test_chart_selectors_match_the_pods(tmp_path: Path) -> None:
    """StatefulSet, Service, budget and monitor all select the pods that there are."""
    manifests = manifests_of(tmp_path, "podMonitor.enabled=true", "podLabels.team=a")
    labels = manifests["StatefulSet"]["spec"]["template"]["metadata"]["labels"]

    selectors = [manifests[kind]["spec"]["selector"] for kind in ("StatefulSet", "PodDisruptionBudget", "PodMonitor")]
    for selector in [*(selector["matchLabels"] for selector in selectors), manifests["Service"]["spec"]["selector"]]:
        assert selector.items() <= labels.items()
    assert manifests["StatefulSet"]["spec"]["serviceName"] == manifests["Service"]["metadata"]["name"]
    assert labels["team"] == "a"


def test_chart_pod_is_restricted(chart: Manifests) -> None:
    """The pod meets the Pod Security Standard `restricted`, and its root is read-only."""
    pod, worker = pod_of(chart), worker_of(chart)

    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert chart["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("given", ["5000000", "5MB", "5000.0kB", "4.76837158203125MiB"])
def test_chart_spool_is_bounded_and_holds_what_the_worker_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """W9: the volume is larger than the worker's own limit, or the kubelet would evict a worker that is in bounds."""
    manifests = manifests_of(tmp_path, "config.flush.bytes_max=1000", f"config.spool.bytes_max={given}")
    settings = _settings(manifests, monkeypatch, pod="w-0")
    volume, temporary = pod_of(manifests)["volumes"]
    mount, temporary_mount = worker_of(manifests)["volumeMounts"]
    resources = worker_of(manifests)["resources"]

    assert volume == {"name": "spool", "emptyDir": {"sizeLimit": 5_500_000}}
    assert volume["emptyDir"]["sizeLimit"] > settings.spool.bytes_max
    assert resources["requests"]["ephemeral-storage"] == 5_500_000
    assert resources["limits"]["ephemeral-storage"] > 5_500_000
    assert mount == {"name": "spool", "mountPath": str(settings.spool.directory)}
    assert temporary == {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}  # for the compiler of schemas
    assert temporary_mount == {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108


def test_chart_secret_as_variables(tmp_path: Path) -> None:
    """The keys of the Secret become variables; nothing is mounted."""
    manifests = manifests_of(tmp_path, "secret.name=credentials")

    assert worker_of(manifests)["envFrom"] == [
        {"configMapRef": {"name": "logs-log-partitioner"}},
        {"secretRef": {"name": "credentials"}},
    ]
    assert [volume["name"] for volume in pod_of(manifests)["volumes"]] == ["spool", "tmp"]


def test_chart_secret_as_files(tmp_path: Path) -> None:
    """The keys of the Secret become files, readable by the worker's group only, and no variable."""
    manifests = manifests_of(tmp_path, "secret.name=credentials", "secret.as=files")
    worker = worker_of(manifests)
    directory = "/etc/log-partitioner/secrets"

    assert {"name": "LOGP_SECRETS_DIR", "value": directory} in worker["env"]
    assert {"name": "secrets", "mountPath": directory, "readOnly": True} in worker["volumeMounts"]
    assert pod_of(manifests)["volumes"][2]["secret"] == {"secretName": "credentials", "defaultMode": 0o440}
    assert worker["envFrom"] == [{"configMapRef": {"name": "logs-log-partitioner"}}]


def test_chart_changed_settings_restart_the_pods(tmp_path: Path) -> None:
    """The pods carry a checksum of their settings, and of nothing else."""
    checksums = [
        manifests_of(tmp_path / str(number), value)["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
        for number, value in enumerate(("replicaCount=1", "replicaCount=3", "config.flush.interval_s=10"))
    ]

    assert checksums[0] == checksums[1] != checksums[2]


def test_chart_own_service_account_is_used(tmp_path: Path) -> None:
    """An existing account is named, and none is made; annotations go onto the chart's own."""
    role = "eks.amazonaws.com/role-arn"
    existing = manifests_of(tmp_path / "existing", "serviceAccount.name=logs-writer", "serviceAccount.create=false")
    made = manifests_of(
        tmp_path / "made", values_json=(f'serviceAccount.annotations={{"{role}": "arn:aws:iam::1:role/logs"}}',)
    )

    assert pod_of(existing)["serviceAccountName"] == "logs-writer"
    assert "ServiceAccount" not in existing
    assert made["ServiceAccount"]["metadata"]["annotations"] == {role: "arn:aws:iam::1:role/logs"}
    assert pod_of(made)["serviceAccountName"] == made["ServiceAccount"]["metadata"]["name"]


def test_chart_placement_is_passed_on(tmp_path: Path) -> None:
    """Node selector, tolerations and the like stand in the pod only if they are given."""
    placed = manifests_of(
        tmp_path / "placed", "nodeSelector.disk=ssd", values_json=('imagePullSecrets=[{"name": "r"}]',)
    )
    plain = manifests_of(tmp_path / "plain")

    assert pod_of(placed)["nodeSelector"] == {"disk": "ssd"}
    assert pod_of(placed)["imagePullSecrets"] == [{"name": "r"}]
    assert {"nodeSelector", "tolerations", "affinity", "imagePullSecrets"} & set(pod_of(plain)) == set()


def test_command_of_a_release_has_image_settings_and_permissions_of_a_worker(tmp_path: Path) -> None:
    """As a Job of a CronJob that never runs by itself."""
    manifests = manifests_of(tmp_path, "secret.name=logs-secrets", "certificates={registry}")
    cron_job = manifests["CronJob"]["spec"]
    job = cron_job["jobTemplate"]["spec"]["template"]
    (command,) = job["spec"]["containers"]
    pod, worker = pod_of(manifests), worker_of(manifests)

    assert cron_job["suspend"] is True
    for field in ("serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert job["spec"][field] == pod[field]
    for field in ("image", "envFrom", "env", "securityContext", "volumeMounts"):
        assert command[field] == worker[field]
    assert not manifests["Service"]["spec"]["selector"].items() <= job["metadata"]["labels"].items()


@pytest.mark.parametrize(("page", "run"), [("RUNBOOK.md", main), ("PIPELINE.md", pipeline_cli.main)])
def test_patch_of_a_page_gives_the_job_a_command_that_exists(
    tmp_path: Path, page: str, run: Callable[[list[str]], int]
) -> None:
    """The CronJob that it names has arguments at the place that is patched."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (name,) = re.findall(r"--from=cronjob/(\S+) --dry-run=client", text)
    ((change,),) = (json.loads(patch) for patch in re.findall(r"kubectl patch --local .*? -p '(.*?)'", text, re.DOTALL))
    manifests = manifests_of(tmp_path, files=[CHART / "ci" / "pipeline-values.yaml"])
    (spec,) = (one["spec"]["jobTemplate"] for one in manifests.values() if one["metadata"]["name"] == name)

    place = spec
    for key in change["path"].split("/")[1:]:
        place = place[int(key) if key.isdigit() else key]
    assert isinstance(place, list)
    with pytest.raises(SystemExit) as caught:
        run([*change["value"], "--help"])
    assert caught.value.code == 0
