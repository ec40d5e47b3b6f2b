"""A broker with an authorizer, and a listener for each way to log in; who comes in the clear is its administrator."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.contract.endpoint import endpoint
from tests.integration.harness import CLIENT_PROPERTIES, REPOSITORY, Deployment
from tests.integration.msk_signer.aws_msk_iam_sasl_signer.MSKAuthTokenProvider import unsecured
from tests.stack.certificates import Certificates
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.providers import jars
from tools.local.kafka import KafkaCluster

ACLS = REPOSITORY / "deploy" / "kafka"
SIGNER = Path(__file__).parent / "msk_signer"
WORKER, READER = "worker-1", "reader-1"
_ANSWER_S = 20
_KAFKA = "org.apache.kafka"
_LOGIN = f"{_KAFKA}.common.security"
_PROTOCOLS = {"MTLS": "SSL", "SCRAM": "SASL_SSL", "TOKENS": "SASL_SSL"}


class SecuredKafka:
    """The broker, its certificates and its rights."""

    def __init__(self, cluster: KafkaCluster, certificates: Certificates) -> None:
        self.cluster = cluster
        self.certificates = certificates
        self.helper = KafkaHelper(cluster.bootstrap_servers, provider="local process")

    # Ways to log in, as settings.

    def mtls(self, name: str) -> dict[str, str]:
        """Log in with a certificate."""
        certificate, key = self.certificates.sign(name)
        properties = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return self._settings("MTLS", {"security.protocol": "SSL", **properties})

    def scram(self, name: str, password: str = "canary-secret-scram-1") -> dict[str, str]:  # noqa: S107 - it is none
        """Log in with a password, which is set at the broker."""
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, scram, password.encode())
        for answer in self.helper.admin.alter_user_scram_credentials([change]).values():
            answer.result(_ANSWER_S)
        properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": name}
        return self._settings("SCRAM", properties, {"sasl.password": password})

    def oidc(self, name: str, endpoint: str) -> dict[str, str]:
        """Log in with a token that librdkafka gets from an endpoint by client credentials."""
        method = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": endpoint}
        properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **method}
        secret = {"sasl.oauthbearer.client.secret": "canary-secret-oidc-1"}
        return self._settings("TOKENS", {**properties, "sasl.oauthbearer.client.id": name}, secret)

    def msk(self, name: str, directory: Path, *, life_s: float = 900) -> dict[str, str]:
        """Log in as to MSK, with tokens of a signer that stands for AWS's."""
        signer = {"TOKENS_DIRECTORY": str(directory), "TOKENS_SUBJECT": name, "TOKENS_LIFE_S": str(life_s)}
        path = os.pathsep.join([str(SIGNER), os.environ.get("PYTHONPATH", ""), str(REPOSITORY)])
        return (
            self._settings("TOKENS", {})
            | signer
            | {
                "LOGP_KAFKA__AUTH": "msk-iam",
                "AWS_REGION": "eu-central-1",
                "PYTHONPATH": path,
            }
        )

    def _settings(
        self, listener: str, properties: Mapping[str, str], secrets: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        told = {**CLIENT_PROPERTIES, "ssl.ca.location": str(self.certificates.authority), **properties}
        return {
            "LOGP_KAFKA__BOOTSTRAP_SERVERS": self.cluster.servers_of(listener),
            "LOGP_KAFKA__CLIENT_PROPERTIES": json.dumps(told),
            "LOGP_KAFKA__SECRET_PROPERTIES": json.dumps(secrets or {}),
        }

    # Rights.

    def permit(self, name: str, file: str, deployment: Deployment) -> list[AclBinding]:
        """Give a user the rights of a file, under the deployment's names."""
        names = {
            "app-logs": deployment.source,
            "references": deployment.references_topic,
            "flushes": deployment.flushes_topic,
            "dead-letters": deployment.dead_letters_topic,
            "log-partitioner": deployment.group,
        }
        bindings = bindings_of(file, name, names)
        self.allow(*bindings)
        return bindings

    def allow(self, *bindings: AclBinding) -> None:
        """Give rights."""
        for answer in self.helper.admin.create_acls(list(bindings)).values():
            answer.result(_ANSWER_S)

    def forbid(self, binding: AclBinding) -> None:
        """Take a right away."""
        one = AclBindingFilter(
            binding.restype, binding.name, binding.resource_pattern_type, binding.principal, binding.host,
            binding.operation, binding.permission_type,
        )  # fmt: skip
        for answer in self.helper.admin.delete_acls([one]).values():
            assert len(answer.result(_ANSWER_S)) == 1


@contextmanager
def secured_kafka(root: Path) -> Iterator[SecuredKafka]:
    """Start the broker."""
    certificates = Certificates(root)
    certificate, key = certificates.sign("broker")
    store = root / "store.pem"
    store.write_text(key.read_text() + certificate.read_text())
    oauth = f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    properties = {
        "authorizer.class.name": f"{_KAFKA}.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.authority,
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": oauth,
    }
    with KafkaCluster(jars=jars(), root=root / "kafka", protocols=_PROTOCOLS, properties=properties) as cluster:
        yield SecuredKafka(cluster, certificates)


def lines_of(file: str) -> list[list[str]]:
    """Return the lines of a file as arguments of Kafka's tool."""
    return [line.split() for line in (ACLS / file).read_text().splitlines() if not line.startswith("#")]


def bindings_of(file: str, user: str, names: Mapping[str, str]) -> list[AclBinding]:
    """Return the rights of a file as the tool gives them, with other names in the place of these."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--operation", action="append", type=lambda text: AclOperation[_snake(text)])
    for kind in ("topic", "group", "transactional-id"):
        parser.add_argument(f"--{kind}")
    parser.add_argument("--resource-pattern-type", type=lambda text: ResourcePatternType[text.upper()])
    parser.set_defaults(resource_pattern_type=ResourcePatternType.LITERAL)
    found = []
    for line in lines_of(file):
        given = parser.parse_args(line)
        ((kind, name),) = [
            (kind, name)
            for kind, name in (
                (ResourceType.TOPIC, given.topic),
                (ResourceType.GROUP, given.group),
                (ResourceType.TRANSACTIONAL_ID, given.transactional_id),
            )
            if name
        ]
        found += [
            AclBinding(
                kind, names.get(name, name), given.resource_pattern_type, f"User:{user}", "*", operation,
                AclPermissionType.ALLOW,
            )
            for operation in given.operation
        ]  # fmt: skip
    return found


def _snake(text: str) -> str:
    return "".join(f"_{char}" if char.isupper() and at else char for at, char in enumerate(text)).upper()


@contextmanager
def token_server(subject: str, *, life_s: float) -> Iterator[str]:
    """Give the address of an endpoint that answers every request with a token."""

    def answer(_body: bytes) -> bytes:
        token, _ = unsecured(subject, life_s)
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": life_s}).encode()

    with endpoint(answer, content_type="application/json") as address:
        yield f"{address}/token"
