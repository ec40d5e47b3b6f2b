"""librdkafka's security in the words of Spark's Kafka client: said, or refused, never left out."""

import pytest
from pydantic import SecretStr

from log_partitioner.config.settings import KafkaSettings
from log_partitioner_pipeline.errors import BrokerError
from log_partitioner_pipeline.kafka import spark_options


def options(properties: dict[str, str]) -> dict[str, str]:
    """Give the options for these properties; the password is a secret of its own."""
    secret = {name: SecretStr(value) for name, value in properties.items() if "password" in name}
    plain = {name: value for name, value in properties.items() if name not in secret}
    settings = KafkaSettings(
        bootstrap_servers="broker:9092", source_topics=("source",), client_properties=plain, secret_properties=secret
    )
    return spark_options(settings, "topic")


def test_a_password_of_any_characters_is_said() -> None:
    r"""JAAS reads `\"` and `\\` in a text as `"` and `\`."""
    said = options({"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": 'a\\b"c'})
    assert said["kafka.sasl.jaas.config"].endswith('required username="me" password="a\\\\b\\"c";')


def test_certificates_are_said() -> None:
    """Of authorities, and of this client in one file."""
    stores = {"ssl.ca.location": "ca.pem", "ssl.keystore.location": "me.p12", "ssl.keystore.password": "p"}
    said = options({"security.protocol": "SSL", **stores})
    assert (
        said.items()
        >= {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "ca.pem",
            "kafka.ssl.keystore.type": "PKCS12",
            "kafka.ssl.keystore.location": "me.p12",
            "kafka.ssl.keystore.password": "p",
        }.items()
    )


@pytest.mark.parametrize("name", ["ssl.key.location", "ssl.certificate.pem", "sasl.oauthbearer.config"])
def test_what_cannot_be_said_is_refused(name: str) -> None:
    """A client without its certificate would be another one."""
    with pytest.raises(BrokerError, match=name):
        options({name: "x"})
