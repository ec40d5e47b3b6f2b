"""Values that a platform team gives to any chart, and mistakes in them; needs helm, no cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.deployment.tools import (
    CHART,
    REQUIRED_VALUES,
    Manifests,
    manifests_of,
    parse,
    pod_of,
    render,
    run,
    worker_of,
)

NAMES = ("GROUP_ID", "REFERENCES_TOPIC", "FLUSHES_TOPIC", "DEAD_LETTERS_TOPIC", "BACKFILLS_TOPIC")


def _given(scratch: Path, values: dict[str, Any], **rendered: Any) -> Manifests:
    """Render the chart with a file of values."""
    scratch.mkdir(exist_ok=True)
    file = scratch / "values.yaml"
    file.write_text(json.dumps(values))
    return manifests_of(scratch, files=[file], **rendered)


def _own_names(manifests: Manifests) -> list[str]:
    data = manifests["ConfigMap"]["data"]
    return [*(data[f"LOGP_KAFKA__{name}"] for name in NAMES), data["LOGP_S3__PREFIX"]]


def test_chart_two_releases_share_no_name_unless_told(tmp_path: Path) -> None:
    """Group (and with it transactional ids), topics and prefix, of another name or in another namespace."""
    releases = [("logs", "prod"), ("logs", "staging"), ("audit", "prod")]
    names = [
        _own_names(manifests_of(tmp_path / str(number), release=release, namespace=namespace))
        for number, (release, namespace) in enumerate(releases)
    ]
    told = {"config": {"kafka": {"group_id": "g", "references_topic": "r"}, "s3": {"prefix": "p"}}}
    shared = _given(tmp_path / "told", told)["ConfigMap"]["data"]

    assert [len(set(of_all)) for of_all in zip(*names, strict=True)] == [3] * 6
    assert names[0][0] == "prod.logs.log-partitioner"
    assert [shared[f"LOGP_{name}"] for name in ("KAFKA__GROUP_ID", "KAFKA__REFERENCES_TOPIC", "S3__PREFIX")] == [
        *("g", "r", "p")
    ]
    assert shared["LOGP_KAFKA__FLUSHES_TOPIC"] == "default.logs.log-partitioner.flushes"


def test_chart_names_of_objects_may_be_overridden_and_the_group_stays(tmp_path: Path) -> None:
    """Another name for the objects of a running release does not move it to another group."""
    plain = manifests_of(tmp_path / "plain")
    named = _given(
        tmp_path / "named",
        {
            "fullnameOverride": "writer",
            "nameOverride": "partitioner",
            "commonLabels": {"team": "a"},
            "commonAnnotations": {"owner": "b"},
            "podLabels": {"tier": "c"},
        },
    )

    assert _own_names(named) == _own_names(plain)
    objects = [one for kind, one in named.items() if kind not in ("Pod", "CronJob")]
    assert {one["metadata"]["name"] for one in objects} == {"writer"}
    assert {one["metadata"]["labels"]["team"] for one in objects} == {"a"}
    assert {one["metadata"]["annotations"]["owner"] for one in objects} == {"b"}
    pod = named["StatefulSet"]["spec"]["template"]["metadata"]
    assert pod["labels"] == {
        "app.kubernetes.io/name": "partitioner", "app.kubernetes.io/instance": "logs", "team": "a", "tier": "c",
    }  # fmt: skip
    assert pod["annotations"]["owner"] == "b"
    assert named["StatefulSet"]["spec"]["selector"]["matchLabels"].items() <= pod["labels"].items()


def test_chart_pods_do_not_restart_for_the_chart_version_alone(tmp_path: Path) -> None:
    """Nothing in a pod names it."""
    newer = tmp_path / "newer"
    shutil.copytree(CHART, newer)
    file = newer / "Chart.yaml"
    file.write_text(file.read_text().replace("\nversion: ", "\nversion: 9"))
    done = run("helm", "template", "logs", newer, "--values", REQUIRED_VALUES)
    assert done.returncode == 0, done.stderr

    changed, plain = parse(done.stdout, tmp_path / "parsed"), manifests_of(tmp_path / "plain")
    assert changed["StatefulSet"]["metadata"] != plain["StatefulSet"]["metadata"]
    assert changed["StatefulSet"]["spec"] == plain["StatefulSet"]["spec"]


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({"image": {"tag": "1.2"}}, "log-partitioner:1.2"),
        ({"image": {"registry": "registry.example:5000", "tag": "1.2"}}, "registry.example:5000/log-partitioner:1.2"),
        ({"image": {"tag": "1.2", "digest": f"sha256:{'0' * 64}"}}, f"log-partitioner@sha256:{'0' * 64}"),
        ({"image": {"registry": "one", "tag": "3"}, "global": {"imageRegistry": "all"}}, "all/log-partitioner:3"),
    ],
)
def test_chart_image_is_the_one_that_is_named(tmp_path: Path, values: dict[str, Any], image: str) -> None:
    """By tag or digest, from a registry of one's own or of all charts."""
    assert worker_of(_given(tmp_path, values))["image"] == image


def test_chart_more_of_a_pod_is_passed_on(tmp_path: Path) -> None:
    """Variables, volumes, containers, priority and what else a pod may have; the worker's own stay."""
    extra = {
        "extraEnv": [{"name": "AWS_CA_BUNDLE", "value": "/etc/log-partitioner/certificates/s3-ca/ca.crt"}],
        "extraEnvFrom": [{"configMapRef": {"name": "proxies"}}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "initContainers": [{"name": "before", "image": "wait"}],
        "extraContainers": [{"name": "beside", "image": "proxy"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        "startupProbe": {"failureThreshold": 30},
        "livenessProbe": {"periodSeconds": 20},
    }
    specified = {
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "schedulerName": "own",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["kafka"]}],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["10.0.0.2"]},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    }
    pod = pod_of(_given(tmp_path, extra | specified))
    worker = pod["containers"][0]

    assert {key: pod[key] for key in specified} == specified
    assert worker["env"][0]["name"] == "LOGP_WORKER"
    assert worker["env"][1:] == extra["extraEnv"]
    assert worker["envFrom"] == [{"configMapRef": {"name": "logs-log-partitioner"}}, *extra["extraEnvFrom"]]
    assert (worker["volumeMounts"][-1], pod["volumes"][-1]) == (extra["extraVolumeMounts"][0], extra["extraVolumes"][0])
    assert (pod["initContainers"], pod["containers"][1:]) == (extra["initContainers"], extra["extraContainers"])
    assert worker["lifecycle"] == extra["lifecycle"]
    assert worker["startupProbe"] == {"failureThreshold": 30, "httpGet": {"path": "/livez", "port": "http"}}
    assert (worker["livenessProbe"]["periodSeconds"], worker["livenessProbe"]["timeoutSeconds"]) == (20, 5)


def test_chart_extra_objects_are_rendered(tmp_path: Path) -> None:
    """A map, and a text with templates."""
    text = "{apiVersion: v1, kind: Secret, metadata: {name: '{{ .Release.Name }}-extra'}}"
    more = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}}
    manifests = _given(tmp_path, {"extraObjects": [text, more]})

    assert manifests["Secret"]["metadata"]["name"] == "logs-extra"
    assert manifests["LimitRange"] == more


def test_chart_user_ids_may_be_left_to_the_cluster(tmp_path: Path) -> None:
    """OpenShift refuses a pod that names ids out of its range; a null value takes a default away, the rest stays."""
    nothing = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    pod = pod_of(_given(tmp_path, {"podSecurityContext": nothing, "securityContext": {"privileged": False}}))

    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["containers"][0]["securityContext"]["privileged"] is False
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_chart_files_and_certificates_are_where_settings_look(tmp_path: Path) -> None:
    """A schema out of the values; certificates out of Secrets; each may be read by the worker's group only."""
    schema, certificate = "/etc/log-partitioner/files/entry.avsc", "/etc/log-partitioner/certificates/registry/ca.crt"
    values = {
        "files": {"entry.avsc": '"string"'},
        "certificates": ["registry", "s3-ca"],
        "config": {"input": {"format": "avro", "schema_file": schema}, "registry": {"ca_file": certificate}},
    }
    manifests = _given(tmp_path, values)
    mounts = {mount["mountPath"]: mount["name"] for mount in worker_of(manifests)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod_of(manifests)["volumes"]}

    of_schema = volumes[mounts[str(Path(schema).parent)]]
    assert manifests[f"ConfigMap/{of_schema['configMap']['name']}"]["data"] == values["files"]
    of_certificate = volumes[mounts[str(Path(certificate).parent)]]
    assert of_certificate["secret"] == {"secretName": "registry", "defaultMode": 0o440}
    assert "/etc/log-partitioner/certificates/s3-ca" in mounts


def test_chart_rollout_waits_for_a_flush_and_drains_go_on(tmp_path: Path) -> None:
    """A pod that cannot flush stops a rollout; unready pods do not stop a drain; all by value."""
    plain = manifests_of(tmp_path / "plain")
    values = {
        "minReadySeconds": 5,
        "updateStrategy": {"type": "OnDelete"},
        "podDisruptionBudget": {"minAvailable": "50%"},
        "annotations": {"reload": "yes"},
        "revisionHistoryLimit": 3,
    }
    given = _given(tmp_path / "given", values)
    off = _given(tmp_path / "off", {"podDisruptionBudget": {"enabled": False}})

    interval_s = int(plain["ConfigMap"]["data"]["LOGP_FLUSH__INTERVAL_S"])
    assert plain["StatefulSet"]["spec"]["minReadySeconds"] > interval_s
    budget = plain["PodDisruptionBudget"]["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert given["StatefulSet"]["spec"]["minReadySeconds"] == 5
    assert given["StatefulSet"]["spec"]["updateStrategy"]["type"] == "OnDelete"
    assert given["StatefulSet"]["spec"]["revisionHistoryLimit"] == 3
    assert given["StatefulSet"]["metadata"]["annotations"] == {"reload": "yes"}
    assert given["PodDisruptionBudget"]["spec"]["minAvailable"] == "50%"
    assert "maxUnavailable" not in given["PodDisruptionBudget"]["spec"]
    assert "PodDisruptionBudget" not in off


def test_chart_spool_on_a_claim_is_no_storage_of_the_node(tmp_path: Path) -> None:
    """A claim for each pod, with room for what the worker may write."""
    manifests = _given(tmp_path, {"persistence": {"enabled": True, "storageClass": "fast"}})
    stateful_set = manifests["StatefulSet"]["spec"]
    (claim,) = stateful_set["volumeClaimTemplates"]

    assert claim["metadata"]["name"] == worker_of(manifests)["volumeMounts"][0]["name"] == "spool"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": 2_362_232_012}},
    }
    assert stateful_set["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Delete"}
    assert [volume["name"] for volume in pod_of(manifests)["volumes"]] == ["tmp"]
    assert worker_of(manifests)["resources"]["limits"]["ephemeral-storage"] == 268_435_456


def test_chart_spool_in_memory_counts_as_memory(tmp_path: Path) -> None:
    """It is bounded as the one on disk is, and not asked of the node's disk."""
    manifests = _given(tmp_path, {"emptyDir": {"medium": "Memory"}, "resources": {"limits": {"memory": "4Gi"}}})

    assert pod_of(manifests)["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": 2_362_232_012}
    assert worker_of(manifests)["resources"]["requests"]["ephemeral-storage"] == 0


def test_chart_network_policy_lets_scrapes_in_and_nothing_else(tmp_path: Path) -> None:
    """By default scrapes may come from anywhere, and workers may connect to anything."""
    prometheus = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    brokers = {"ports": [{"port": 9092}]}
    plain = _given(tmp_path / "plain", {"networkPolicy": {"enabled": True}})["NetworkPolicy"]["spec"]
    values = {"networkPolicy": {"enabled": True, "from": [prometheus], "egress": [brokers]}}
    closed = _given(tmp_path / "closed", values)["NetworkPolicy"]["spec"]

    assert (plain["policyTypes"], plain["ingress"]) == (["Ingress"], [{"ports": [{"port": "http"}]}])
    assert (closed["policyTypes"], closed["egress"]) == (["Ingress", "Egress"], [brokers])
    assert closed["ingress"] == [{"ports": [{"port": "http"}], "from": [prometheus]}]


def test_chart_test_is_a_worker_that_nothing_selects(tmp_path: Path) -> None:
    """`helm test` asks with image, settings, secrets and rights of a worker; Service and budget do not count it."""
    manifests = _given(tmp_path, {"secret": {"name": "logs-secrets", "as": "files"}, "certificates": ["registry"]})
    test, pod, worker = manifests["Pod"], pod_of(manifests), worker_of(manifests)
    (container,) = test["spec"]["containers"]

    assert container["args"] == ["check-config", "--connect"]
    for field in ("image", "envFrom", "env", "securityContext", "volumeMounts"):
        assert container[field] == worker[field]
    for field in ("serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "securityContext"):
        assert test["spec"][field] == pod[field]
    assert {volume["name"] for volume in test["spec"]["volumes"]} == {volume["name"] for volume in pod["volumes"]}
    assert not manifests["Service"]["spec"]["selector"].items() <= test["metadata"]["labels"].items()
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_chart_as_a_dependency_is_left_out_by_its_condition_and_told_apart_by_its_alias(
    tmp_path: Path, *, is_enabled: bool
) -> None:
    """A chart that has it twice, passes `global` to all, and leaves one out."""
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / "log-partitioner")
    dependency = {"name": "log-partitioner", "version": ">=1.0.0", "repository": ""}
    twice = [
        {**dependency, "condition": "log-partitioner.enabled"},
        {**dependency, "alias": "second", "condition": "second.enabled"},
    ]
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": twice}
    (parent / "Chart.yaml").write_text(json.dumps(chart))
    needed = {"kafka": {"bootstrap_servers": "kafka:9092", "source_topics": ["logs"]}, "s3": {"bucket": "logs"}}
    secrets = [{"name": "registry"}]
    values = {
        "global": {"imagePullSecrets": secrets, "team": "a"},
        "log-partitioner": {"enabled": is_enabled, "config": needed},
        "second": {"enabled": True, "config": needed, "x-anchors": {"any": "thing"}},
    }
    (parent / "values.yaml").write_text(json.dumps(values))

    done = run("helm", "template", "stack", parent)
    assert done.returncode == 0, done.stderr
    manifests = parse(done.stdout, tmp_path / "parsed")
    groups = {one["data"]["LOGP_KAFKA__GROUP_ID"] for name, one in manifests.items() if name.startswith("ConfigMap")}
    assert groups == {"default.stack.second"} | ({"default.stack.log-partitioner"} if is_enabled else set())
    assert pod_of(manifests)["imagePullSecrets"] == secrets


@contextmanager
def _cluster_with(kind: str, name: str, data: dict[str, str]) -> Iterator[list[str]]:
    """Serve as much of an API server as a look at one object takes; yield the arguments that lead helm there."""
    kinds = [
        {"name": f"{kind.lower()}s", "namespaced": True, "kind": kind, "verbs": ["get"]}
        for kind in ("ConfigMap", "Secret")
    ]
    answers = {
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds},
        f"/api/v1/namespaces/default/{kind.lower()}s/{name}": {"apiVersion": "v1", "kind": kind, "data": data},
    }

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = json.dumps(answer or {"kind": "Status", "reason": "NotFound", "code": 404}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield ["--dry-run=server", "--kube-apiserver", f"http://127.0.0.1:{server.server_port}"]
        finally:
            server.shutdown()
            thread.join()


def test_chart_changed_secret_restarts_the_pods(tmp_path: Path) -> None:
    """The cluster's Secret changes the checksum, and so does a value; a Secret that is not there yet is no error."""
    named = ["--values", str(REQUIRED_VALUES), "--set", "secret.name=credentials", "--set", "certificates={none-yet}"]
    checksums = []
    for number, (password, version) in enumerate([("old", ""), ("old", ""), ("new", ""), ("new", "2")]):
        with _cluster_with("Secret", "credentials", {"LOGP_S3__SECRET_KEY": password}) as asked:
            done = run("helm", "template", "logs", CHART, *named, *asked, "--set", f"secret.version={version}")
        assert done.returncode == 0, done.stderr
        pod = parse(done.stdout, tmp_path / str(number))["StatefulSet"]["spec"]["template"]
        checksums.append(pod["metadata"]["annotations"]["checksum/secrets"])

    assert checksums[0] == checksums[1]
    assert len(set(checksums)) == 3


@pytest.mark.parametrize(
    ("live", "values", "is_refused"),
    [
        ({}, [], True),
        ({"LOGP_KAFKA__GROUP_ID": "default.platform.second"}, [], True),
        ({"LOGP_KAFKA__GROUP_ID": "default.logs.log-partitioner"}, [], False),
        ({}, ["--set", "config.kafka.group_id=log-partitioner"], False),
    ],
)
def test_chart_upgrade_does_not_change_the_group_unless_told(
    live: dict[str, str], values: list[str], *, is_refused: bool
) -> None:
    """The chart of before derived no names, or had another alias; a group that is named is meant."""
    with _cluster_with("ConfigMap", "logs-log-partitioner", {"LOGP_HTTP__PORT": "8080", **live}) as asked:
        done = run("helm", "template", "logs", CHART, "--values", REQUIRED_VALUES, "--is-upgrade", *asked, *values)

    assert ("it would publish every record again" in done.stderr, done.returncode != 0) == (is_refused, is_refused)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"enabled": False}, "enabled: false leaves nothing out here"),
        ({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "every worker would be scraped twice"),
        (
            {"persistence": {"enabled": True, "size": "2Gi"}},
            "persistence.size (2Gi) must be at least 2362232012: config.spool.bytes_max and a tenth.",
        ),
        ({"persistence": {"enabled": True}, "emptyDir": {"medium": "Memory"}}, "there is one volume for the spool"),
        ({"emptyDir": {"medium": "Memory"}}, "resources.limits.memory (1536Mi) must hold the worker and"),
        ({"secret": {"as": "files"}}, "secret.name is not set, and secret.as is files"),
        ({"autoscaling": {"enabled": True}}, "autoscaling.maxReplicas is not set"),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 4, "maxReplicas": 3}},
            "autoscaling.minReplicas (4) is more than autoscaling.maxReplicas (3).",
        ),
        (
            {"autoscaling": {"enabled": True, "maxReplicas": 9}, "topicPartitions": 8},
            "autoscaling.maxReplicas (9) is more than topicPartitions (8)",
        ),
        ({"autoscaling": {"enabled": True, "maxReplicas": 2, "by": "keda"}}, "autoscaling.keda.serverAddress is not"),
        ({"replicaCount": 9, "topicPartitions": 8}, "replicaCount (9) is more than topicPartitions (8)"),
        ({"autoscaling": {"by": "cpu"}}, "at '/autoscaling/by': value must be one of 'hpa', 'keda'"),
        ({"image": {"digest": "latest"}}, "at '/image/digest': 'latest' does not match pattern"),
        ({"secret": "credentials"}, "at '/secret': got string, want object"),
        ({"config": {"kafka": {"source_topics": "logs"}}}, "at '/config/kafka/source_topics': got string, want array"),
        ({"nodeSelectors": {}}, "additional properties 'nodeSelectors' not allowed"),
    ],
)
def test_chart_mistake_is_told_in_a_sentence(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    """It names the value, in one line."""
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))

    done = render(files=[file])

    assert done.returncode != 0
    assert [said in line for line in done.stderr.splitlines()].count(True) == 1


def test_chart_without_values_says_all_that_is_missing_at_once() -> None:
    """Three sentences, each with an example."""
    done = run("helm", "template", "logs", CHART)

    assert done.returncode != 0
    missing = [line for line in done.stderr.splitlines() if " is not set: " in line]
    assert [line.split()[0] for line in missing] == [
        *("config.kafka.bootstrap_servers", "config.kafka.source_topics", "config.s3.bucket")
    ]
