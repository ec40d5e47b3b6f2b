"""The pipeline of the chart: its jobs, their settings and rights; needs helm, no cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from log_partitioner_pipeline import cli
from log_partitioner_pipeline.config import JobSettings, load_all
from tests.deployment.tools import CHART, Manifests, manifests_of, parse, pod_of, render, worker_of

VALUES = CHART / "ci" / "pipeline-values.yaml"
NAME = "logs-log-partitioner"
AS_DEPLOYMENTS = ("pipeline.audit.as=Deployment", "pipeline.userActivity.as=Deployment")
AS_CRON_JOBS = ("pipeline.table.as=CronJob",)
EXECUTORS = ("pipeline.executors.enabled=true",)
ADDRESS = {"POD_IP": "10.0.0.7", "POD_NAME": "logs-audit-1"}


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("LOGP_", "PIPELINE_")):
            monkeypatch.delenv(name)


def _chart(scratch: Path, *values: str, **rendered: Any) -> Manifests:
    return manifests_of(scratch, *values, files=[VALUES], **rendered)


def _named(manifests: Manifests, kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in manifests.values() if one["kind"] == kind and one["metadata"]["name"] == name)
    return found


def _jobs(manifests: Manifests) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield component, object and pod's spec of each job."""
    for one in manifests.values():
        component = one["metadata"]["labels"].get("app.kubernetes.io/component")
        if component and one["kind"] == "Deployment":
            yield component, one, one["spec"]["template"]["spec"]
        elif component and one["kind"] == "CronJob":
            yield component, one, one["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def _job(manifests: Manifests, component: str) -> tuple[dict[str, Any], dict[str, Any]]:
    ((thing, pod),) = ((thing, pod) for name, thing, pod in _jobs(manifests) if name == component)
    return thing, pod


def _settings(manifests: Manifests, pod: dict[str, Any]) -> JobSettings:
    """Load the settings from the environment that a pod of the job would have."""
    (container,) = pod["containers"]
    given: dict[str, str] = {}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            given |= _named(manifests, "ConfigMap", source["configMapRef"]["name"])["data"]
    for variable in container["env"]:
        text = variable.get("value") or ADDRESS[variable["name"]]
        for name, value in ADDRESS.items():
            text = text.replace(f"$({name})", value)
        given[variable["name"]] = text
    with pytest.MonkeyPatch.context() as environment:
        for name, value in given.items():
            environment.setenv(name, value)
        return load_all()


@pytest.mark.parametrize("forms", [(), AS_DEPLOYMENTS, AS_CRON_JOBS, EXECUTORS])
def test_pipeline_jobs_are_commands_whose_settings_are_accepted(tmp_path: Path, forms: tuple[str, ...]) -> None:
    """The jobs share topics, bucket and group with the workers; one that runs on is a Deployment."""
    manifests = _chart(tmp_path, *forms)
    worker = manifests[f"ConfigMap/{NAME}"] if f"ConfigMap/{NAME}" in manifests else manifests["ConfigMap"]

    names = set()
    for component, thing, pod in _jobs(manifests):
        (container,) = pod["containers"]
        settings = _settings(manifests, pod)
        assert (
            settings.worker.kafka.group_id == worker["data"]["LOGP_KAFKA__GROUP_ID"] == "default.logs.log-partitioner"
        )
        assert settings.warehouse == "s3://example-logs/_tables/default.logs.log-partitioner"
        assert settings.pipeline.spark.master == (
            "k8s://https://kubernetes.default.svc" if forms is EXECUTORS else "local[2]"
        )
        names.add(component)
        if component == "job":
            continue
        options = cli._parser().parse_args(container["args"])
        is_endless = bool(getattr(options, "continuous", False) or getattr(options, "every", None))
        assert is_endless == (thing["kind"] == "Deployment"), container["args"]
        assert pod["restartPolicy"] == ("Always" if is_endless else "Never")
    assert names == {"table", "audit", "compact", "user-activity", "job"}


def test_pipeline_cron_jobs_never_overlap_and_never_hang(tmp_path: Path) -> None:
    """A Job that fails is not tried again, since its exit code says why; Deployments replace their only pod."""
    manifests = _chart(tmp_path, "pipeline.compact.suspend=true", "pipeline.table.suspend=true")

    audit, compact, table = (_job(manifests, name)[0]["spec"] for name in ("audit", "compact", "table"))
    assert (audit["schedule"], audit["timeZone"], audit["suspend"]) == ("7 * * * *", "Etc/UTC", False)
    assert audit["concurrencyPolicy"] == "Forbid"
    assert (audit["startingDeadlineSeconds"], audit["jobTemplate"]["spec"]["activeDeadlineSeconds"]) == (600, 21_600)
    assert audit["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert compact["suspend"] is True
    assert (table["replicas"], table["strategy"]) == (0, {"type": "Recreate"})


def test_pipeline_template_of_any_job_never_runs_by_itself(tmp_path: Path) -> None:
    """It has no deadline, which a backfill of days would meet."""
    manifests = _chart(tmp_path)
    thing, pod = _job(manifests, "job")

    assert (thing["spec"]["suspend"], thing["metadata"]["name"]) == (True, f"{NAME}-job")
    assert "activeDeadlineSeconds" not in thing["spec"]["jobTemplate"]["spec"]
    with pytest.raises(SystemExit) as ended:
        cli._parser().parse_args(pod["containers"][0]["args"])
    assert ended.value.code == 0


def test_pipeline_pods_have_what_workers_have_and_write_to_scratch_alone(tmp_path: Path) -> None:
    """Secret, certificates and files at the same places, and the same security context."""
    values = (
        "secret.as=files",
        "certificates={registry}",
        "files.a=b",
        "extraEnv[0].name=HTTPS_PROXY",
        "extraEnv[0].value=p",
    )
    manifests = _chart(tmp_path, *values, "pipeline.extraEnv[0].name=MORE", "pipeline.extraEnv[0].value=m")
    workers, worker = pod_of(manifests), worker_of(manifests)

    for _, _, pod in _jobs(manifests):
        (container,) = pod["containers"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert mounts == {"/work", "/tmp"}  # noqa: S108
        read_only = [mount for mount in worker["volumeMounts"] if mount.get("readOnly")]
        assert len(read_only) == 3
        assert [mount for mount in container["volumeMounts"] if mount.get("readOnly")] == read_only
        assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
        assert container["securityContext"] == worker["securityContext"]
        assert pod["securityContext"] == workers["securityContext"]
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert (variables["HTTPS_PROXY"], variables["MORE"], variables["SPARK_LOCAL_DIRS"]) == ("p", "m", "/work")
        assert variables["PIPELINE_SECRETS_DIR"] == variables["LOGP_SECRETS_DIR"] == "/etc/log-partitioner/secrets"
        assert worker["env"][0]["name"] not in variables, "a job is no worker"


def test_pipeline_is_selected_by_nothing_of_the_workers(tmp_path: Path) -> None:
    """Service and budget count workers; each Deployment selects its own pods."""
    manifests = _chart(tmp_path, *AS_DEPLOYMENTS, "pipeline.podLabels.team=a")

    services = manifests["Service"]["spec"]["selector"]
    for _, thing, _ in _jobs(manifests):
        template = thing["spec"].get("template") or thing["spec"]["jobTemplate"]["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert labels["team"] == "a"
        assert not services.items() <= labels.items()
        if thing["kind"] == "Deployment":
            assert thing["spec"]["selector"]["matchLabels"].items() <= labels.items()
    selectors = [
        json.dumps(thing["spec"]["selector"]) for _, thing, _ in _jobs(manifests) if "selector" in thing["spec"]
    ]
    assert len(set(selectors)) == len(selectors) == 3


def test_pipeline_makes_pods_only_where_executors_are_on(tmp_path: Path) -> None:
    """The account of drivers may make pods and configmaps in its namespace, nothing else; executors get no token."""
    plain, spread = _chart(tmp_path / "plain"), _chart(tmp_path / "spread", *EXECUTORS)
    account = f"{NAME}-pipeline"

    assert not {"Role", "RoleBinding"} & {one["kind"] for one in plain.values()}
    (rule,) = spread["Role"]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods", "configmaps"])
    assert spread["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "default"}]
    assert spread["RoleBinding"]["roleRef"]["name"] == spread["Role"]["metadata"]["name"]
    for _, _, pod in _jobs(spread):
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (account, True)
    assert pod_of(spread)["serviceAccountName"] == NAME

    text = _named(spread, "ConfigMap", f"{NAME}-executor")["data"]["pod.yaml"]
    executor = parse(text.replace("metadata:", "metadata:\n  name: x", 1), tmp_path / "executor")["Pod"]["spec"]
    assert (executor["serviceAccountName"], executor["automountServiceAccountToken"]) == (account, False)
    assert executor["securityContext"] == pod_of(spread)["securityContext"]
    assert executor["containers"][0]["securityContext"] == worker_of(spread)["securityContext"]
    assert "args" not in executor["containers"][0]


def test_pipeline_driver_says_where_it_is_and_what_executors_are(tmp_path: Path) -> None:
    """By the address of its own pod; properties of one's own win, and stay beside the chart's."""
    own = 'pipeline.config.spark.properties={"spark.executor.memory":"5g","spark.eventLog.enabled":"false"}'
    manifests = _chart(
        tmp_path, *EXECUTORS, "pipeline.executors.instances=7", "pipeline.image.tag=v9", values_json=[own]
    )
    _, pod = _job(manifests, "audit")
    properties = _settings(manifests, pod).pipeline.spark.properties

    assert properties["spark.driver.host"] == "10.0.0.7"
    assert properties["spark.kubernetes.driver.pod.name"] == "logs-audit-1"
    assert (
        properties["spark.kubernetes.container.image"] == pod["containers"][0]["image"] == "log-partitioner-pipeline:v9"
    )
    assert (properties["spark.executor.instances"], properties["spark.executor.memory"]) == ("7", "5g")
    assert properties["spark.eventLog.enabled"] == "false"
    template = Path(properties["spark.kubernetes.executor.podTemplateFile"])
    mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    held = volumes[mounted[str(template.parent)]]["configMap"]["name"]
    assert template.name in _named(manifests, "ConfigMap", held)["data"]


def test_pipeline_job_may_have_settings_and_resources_of_its_own(tmp_path: Path) -> None:
    """The others keep those of all."""
    own = {"config": {"spark": {"driver_memory": "6g"}}, "resources": {"limits": {"memory": "8Gi"}}}
    manifests = _chart(tmp_path, values_json=[f"pipeline.audit={json.dumps(own)}"])
    (_, audit), (_, table) = _job(manifests, "audit"), _job(manifests, "table")

    assert _settings(manifests, audit).pipeline.spark.driver_memory == "6g"
    assert _settings(manifests, table).pipeline.spark.driver_memory == "2g"
    assert audit["containers"][0]["resources"]["limits"] == {"memory": "8Gi"}
    assert table["containers"][0]["resources"]["limits"] == {"memory": "4Gi"}


@pytest.mark.parametrize(
    ("catalog", "uri"),
    [
        ({"type": "rest", "uri": "https://catalogue.example"}, "https://catalogue.example"),
        ({"type": "postgres", "uri": "db.example:5432/iceberg", "user": "a"}, "db.example:5432/iceberg"),
        ({"type": "glue"}, None),
    ],
)
def test_pipeline_catalogue_is_the_one_that_is_named(tmp_path: Path, catalog: dict[str, Any], uri: str | None) -> None:
    """Its password stands in the Secret alone."""
    manifests = _chart(tmp_path, values_json=[f"pipeline.config.catalog={json.dumps(catalog)}"])
    _, pod = _job(manifests, "table")

    settings = _settings(manifests, pod).pipeline.catalog
    assert settings.type == catalog["type"]
    assert uri in (None, settings.uri)
    assert {"secretRef": {"name": "logs-secrets"}} in pod["containers"][0]["envFrom"]


def test_pipeline_catalogue_in_a_file_is_on_a_claim(tmp_path: Path) -> None:
    """All jobs have the one file."""
    given = 'pipeline.config.catalog={"type":"sqlite"}'
    manifests = _chart(tmp_path, "pipeline.catalogClaim=trial", values_json=[given])

    for _, _, pod in _jobs(manifests):
        directory = Path(_settings(manifests, pod).pipeline.catalog.uri).parent
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes[mounts[str(directory)]]["persistentVolumeClaim"] == {"claimName": "trial"}


def test_pipeline_of_two_releases_share_no_files(tmp_path: Path) -> None:
    """One would remove the other's as orphans; results of audits are told apart by where they are."""
    releases = [
        _settings(manifests, _job(manifests, "table")[1])
        for manifests in (_chart(tmp_path / "a", namespace="a"), _chart(tmp_path / "b", namespace="b"))
    ]
    assert len({one.warehouse for one in releases}) == 2
    assert [one.pipeline.audit.results_prefix for one in releases] == [
        *("_audits/a.logs.log-partitioner", "_audits/b.logs.log-partitioner")
    ]


def test_pipeline_metrics_are_scraped_where_jobs_serve_them(tmp_path: Path) -> None:
    """The port is the setting's; a job that ends has none."""
    given = ("podMonitor.enabled=true", "podMonitor.labels.team=a", "pipeline.config.audit.metrics_port=9100")
    manifests = _chart(tmp_path, *given, *AS_DEPLOYMENTS, "networkPolicy.enabled=true")
    _, pod = _job(manifests, "audit")
    (container,) = pod["containers"]
    monitor, workers = (_named(manifests, "PodMonitor", name) for name in (f"{NAME}-pipeline", NAME))

    assert container["ports"] == [{"name": "metrics", "containerPort": 9100}]
    assert _settings(manifests, pod).pipeline.audit.metrics_port == 9100
    assert container["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": "metrics"}
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "30s"}]
    assert monitor["metadata"]["labels"]["team"] == workers["metadata"]["labels"]["team"] == "a"
    assert workers["metadata"]["labels"]["app.kubernetes.io/name"] == "log-partitioner"
    assert "ports" not in _job(manifests, "compact")[1]["containers"][0]
    assert "ports" not in _job(_chart(tmp_path / "ends"), "audit")[1]["containers"][0]


def test_pipeline_network_policy_lets_scrapes_and_executors_in(tmp_path: Path) -> None:
    """Jobs go where workers go, to the catalogue, and drivers to executors."""
    brokers, catalogue = {"ports": [{"port": 9092}]}, {"ports": [{"port": 5432}]}
    closed = (f"networkPolicy.egress=[{json.dumps(brokers)}]", f"pipeline.egress=[{json.dumps(catalogue)}]")
    manifests = _chart(tmp_path, "networkPolicy.enabled=true", *EXECUTORS, values_json=closed)
    policy = _named(manifests, "NetworkPolicy", f"{NAME}-pipeline")["spec"]

    pods = {"podSelector": policy["podSelector"]}
    assert policy["ingress"] == [{"ports": [{"port": "metrics"}]}, {"from": [pods]}]
    assert policy["egress"] == [brokers, catalogue, {"to": [pods]}]
    labels = _job(manifests, "table")[0]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["config.catalog=null"], "pipeline.config.catalog.type is not set: postgres, rest or glue"),
        (["config.catalog.type=sqlite"], "pipeline.config.catalog.type is sqlite, a file that pods lose"),
        (["config.catalog.type=sqlite", "catalogClaim=a", "executors.enabled=true"], "for a trial without executors"),
        (["config.catalog.uri="], "pipeline.config.catalog.uri is not set: host:port/database."),
        (["config.catalog.properties.token=x"], "put PIPELINE_CATALOG__PROPERTIES, a JSON object of all of them"),
        (["table.enabled=false"], "pipeline.audit.args has --table, and pipeline.table.enabled is false"),
        (["table.enabled=false"], "pipeline.compact.enabled is true, and pipeline.table.enabled is false"),
        (["audit.enabled=false"], "rewrites only hours that an audit has passed"),
        (["config.spark.driver_memory=3500m"], "resources.limits.memory of pipeline's table (4Gi) must hold the heap"),
        (["audit.config.spark.driver_memory=4g"], "resources.limits.memory of pipeline's audit (4Gi) must hold"),
        (["executors.enabled=true", "serviceAccount.create=false"], "pipeline.serviceAccount.name is not set"),
        (["config.spark.masters=x"], "'masters' not allowed"),
        (["config.catalog.password=x"], "'password' not allowed"),
        (["audit.config.audit.every=1h"], "'every' not allowed"),
        (["tables.enabled=true"], "'tables' not allowed"),
        (["compact.as=Deployment"], "'as' not allowed"),
        (["table.as=StatefulSet"], "value must be one of"),
    ],
)  # fmt: skip
def test_pipeline_value_that_cannot_work_is_refused_with_a_sentence(values: list[str], sentence: str) -> None:
    """Before a pod has to fail by it; a secret is not repeated."""
    done = render(files=[VALUES], values=[f"pipeline.{value}" for value in values])

    assert done.returncode != 0
    assert sentence in done.stderr


def test_names_of_jobs_are_short_enough_for_a_release_with_a_long_name(tmp_path: Path) -> None:
    """52 characters: Kubernetes puts a time behind those of a CronJob."""
    manifests = _chart(tmp_path, release="l" * 53)

    names = [(one["kind"], one["metadata"]["name"]) for one in manifests.values()]
    assert len(set(names)) == len(names)
    assert [name for kind, name in names if kind == "CronJob" and len(name) > 52] == []
    assert pod_of(manifests)["serviceAccountName"] in {name for kind, name in names if kind == "ServiceAccount"}
