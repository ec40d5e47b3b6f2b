# ruff: noqa: E501 - a mistake is a line
"""Mistakes in settings that newcomers make: each is told at once, by its name, with the next step.

The numbers are those of docs/MISTAKES.md, which names the tests of the others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from log_partitioner import cli
from log_partitioner.config.checks import ALERT_WINDOW_S
from log_partitioner.config.settings import PREFIX

RULES = Path(__file__).parents[2] / "helm" / "log-partitioner" / "files" / "log-partitioner.rules.yaml"
NEEDED = {
    "LOGP_KAFKA__BOOTSTRAP_SERVERS": "broker:9092",
    "LOGP_KAFKA__SOURCE_TOPICS": "app-logs",
    "LOGP_S3__BUCKET": "my-logs",
}
CANARY = "canary-7f3a"


class Mistake(NamedTuple):
    """Settings beside the needed ones ("": not set at all), and the words that a line of the answer must have."""

    number: int
    variables: dict[str, str]
    said: str


REFUSED = [
    Mistake(1, dict.fromkeys(NEEDED, ""), "LOGP_KAFKA__BOOTSTRAP_SERVERS is not set: Brokers to start from, host:port"),
    Mistake(1, dict.fromkeys(NEEDED, ""), "LOGP_KAFKA__SOURCE_TOPICS is not set: "),
    Mistake(1, dict.fromkeys(NEEDED, ""), "LOGP_S3__BUCKET is not set: "),
    Mistake(1, dict.fromkeys(NEEDED, ""), "this is enough, with your own names:"),
    Mistake(2, {"LOGP_KAFKA__BOOTSTRAP_SERVERS": "", "LOGP_KAFKA__BOOTSTRAP_SERVER": "b:1"}, "did you mean LOGP_KAFKA__BOOTSTRAP_SERVERS?"),
    Mistake(3, {"LOGP_KAFKA_BOOTSTRAP_SERVERS": "b:1"}, "LOGP_KAFKA_BOOTSTRAP_SERVERS names no setting: did you mean LOGP_KAFKA__BOOTSTRAP_SERVERS?"),
    Mistake(4, {"LOGP_S3__BUCKET": "", "LOG_S3__BUCKET": "b"}, "LOGP_S3__BUCKET is not set (LOG_S3__BUCKET is: its prefix must be LOGP_)"),
    Mistake(5, {"LOGP_KAFKA__SOURCE_TOPICS": '["a", "b"'}, '(LOGP_KAFKA__SOURCE_TOPICS) must be a list: a,b or, as JSON, ["a", "b"]'),
    Mistake(5, {"LOGP_USER__PATHS": '["a", 1]'}, "(LOGP_USER__PATHS): element 2 must be text"),
    Mistake(50, {"LOGP_KAFKA__SOURCE_TOPICS": r"a,^app-\d"}, r"(LOGP_KAFKA__SOURCE_TOPICS) has ^app-\d, which is no pattern: ^, then letters, digits, . _ - \. [a-z] ( | ) * + ?"),
    Mistake(7, {"LOGP_FLUSH__INTERVAL_S": "30sec"}, "(LOGP_FLUSH__INTERVAL_S) must be a time such as 500ms, 30s, 5m"),
    Mistake(7, {"LOGP_SPOOL__BYTES_MAX": "2G"}, "(LOGP_SPOOL__BYTES_MAX) must be a size such as 64KiB, 256MiB or 2GiB"),
    Mistake(8, {"LOGP_LAYOUT": "packed"}, "layout (LOGP_LAYOUT) must be 'auto', 'pack' or 'file'"),
    Mistake(9, {"LOGP_FLUSH__BYTES_MAX": "2GiB"}, "spool.bytes_max (2147483648) must be at least twice flush.bytes_max (2147483648)"),
    Mistake(12, {"LOGP_KAFKA__CLIENT_PROPERTIES": '{"security.protokol": "ssl"}'}, "security.protokol may not be set: did you mean security.protocol?"),
    Mistake(13, {"LOGP_KAFKA__CLIENT_PROPERTIES": '{"socket.timeout.ms": [1]}'}, "(LOGP_KAFKA__CLIENT_PROPERTIES): socket.timeout.ms must be text"),
    Mistake(14, {"LOGP_KAFKA__CLIENT_PROPERTIES": f'{{"sasl.password": "{CANARY}"}}'}, "sasl.password belongs in kafka.secret_properties: this place is shown"),
    Mistake(14, {"LOGP_KAFKA__CLIENT_PROPERTIES": f'{{"sasl.jaas.config": "{CANARY}"}}'}, "sasl.jaas.config may not be set: docs/CONFIGURATION.md lists those that may: "),
    Mistake(15, {"LOGP_KAFKA__CLIENT_PROPERTIES": '{"security.protocol": "ssl", "ssl.ca.location": "/no/ca.pem"}'}, "ssl.ca.location names no file that can be read: /no/ca.pem"),
    Mistake(16, {"LOGP_S3__BUCKET": "s3://my-logs"}, "s3.bucket ('s3://my-logs') is no bucket name: letters, digits"),
    Mistake(16, {"LOGP_S3__ENDPOINT_URL": "minio:9000"}, "s3.endpoint_url ('minio:9000') must begin with http:// or https://"),
    Mistake(17, {"LOGP_S3__ACCESS_KEY": "AK"}, "s3.access_key and s3.secret_key belong together: set both or neither"),
    Mistake(18, {"LOGP_USER__PATHS": "envelope:user"}, "user.paths: 'envelope:user' finds nothing without input.entries_path"),
    Mistake(19, {"LOGP_PARTITION__ZONE": "CEST"}, "(LOGP_PARTITION__ZONE) 'CEST' is not a time zone of this machine"),
    Mistake(20, {"LOGP_CONFIG_FILE": "/no/settings.toml"}, "LOGP_CONFIG_FILE names no file that can be read: /no/settings.toml"),
    Mistake(20, {"LOGP_SECRETS_DIR": "/no/secrets"}, "LOGP_SECRETS_DIR names no directory: /no/secrets"),
    Mistake(46, {"LOGP_INPUT__FORMAT": "avro"}, "input.format avro takes its schemas from input.schema_file, or from registry.url: set one"),
    Mistake(46, {"LOGP_INPUT__FORMAT": "avro", "LOGP_REGISTRY__URL": "http://r:8081"}, "registry.url needs input.framing, confluent or apicurio8: it says where records have the ids"),
    Mistake(46, {"LOGP_INPUT__FORMAT": "protobuf", "LOGP_INPUT__FRAMING": "apicurio8", "LOGP_REGISTRY__URL": "http://r:8081"}, "input.format protobuf is not read in input.framing apicurio8: none and confluent are"),
    Mistake(46, {"LOGP_INPUT__SCHEMA_MESSAGE": "a.Log"}, "input.schema_message has no effect: it names a message of input.schema_file"),
    Mistake(46, {"LOGP_INPUT__SCHEMA_FILE": "/no/log.avsc"}, "input.schema_file has no effect: input.format json has no schemas"),
    Mistake(46, {"LOGP_REGISTRY__URL": "http://r:8081"}, "registry.url has no effect: input.format json takes no schema from it"),
    Mistake(46, {"LOGP_INPUT__FORMAT": "avro", "LOGP_INPUT__SCHEMA_FILE": "/no/log.avsc"}, "input.schema_file names no file that can be read: /no/log.avsc"),
    Mistake(26, {"LOGP_KAFKA__BOOTSTRAP_SERVERS": "kafka://broker:9092"}, "kafka.bootstrap_servers: kafka://broker:9092 begins with what is no listener of Kafka: give host:port alone"),
    Mistake(47, {"LOGP_INPUT__FORMAT": "text"}, "input.format text needs an input.pattern with named groups: (?P<time>"),
    Mistake(47, {"LOGP_INPUT__FORMAT": "text", "LOGP_INPUT__PATTERN": "(?P<user>"}, "input.pattern is no pattern of RE2: missing ): (?P<user>"),
    Mistake(47, {"LOGP_INPUT__PATTERN": "(?P<user>.*)"}, "input.pattern has no effect: input.format json has a form of its own"),
    Mistake(49, {"LOGP_TOPICS": '{"web": {"input": {"format": "access-log"}}}'}, "topics.web has no effect: kafka.source_topics has no such topic"),
    Mistake(49, {"LOGP_TOPICS": '{"app-logs": {"input": {"form": "json"}}}'}, "topics (LOGP_TOPICS): app-logs.input.form names no setting"),
    Mistake(49, {"LOGP_TOPICS": '{"app-logs": {"inputs": {}}}'}, "topics (LOGP_TOPICS): app-logs.inputs names no setting"),
    Mistake(49, {"LOGP_TOPICS": '{"app-logs": {"input": {"format": "avro"}}}'}, "topics.app-logs: input.format avro takes its schemas from input.schema_file, or from registry.url: set one"),
    Mistake(49, {"LOGP_TOPICS": '{"app-logs": {"input": {"inexact_numbers": "text"}}}'}, "topics.app-logs: input.inexact_numbers is of all topics, since entries of several share an object"),
    Mistake(48, {"LOGP_TIME__FORMAT": "%H:%M:%S"}, "time.format (LOGP_TIME__FORMAT) must be a day, a month and more, such as %d/%m/%Y %H:%M:%S"),
]  # fmt: skip
ACCEPTED = [
    Mistake(5, {"LOGP_KAFKA__SOURCE_TOPICS": "a,b"}, "reads a, b and writes"),
    Mistake(6, {"LOGP_KAFKA__SOURCE_TOPICS": '"logs"'}, "reads logs and writes"),
    Mistake(7, {"LOGP_FLUSH__INTERVAL_S": "30s", "LOGP_SPOOL__BYTES_MAX": "2GiB"}, "The settings are good"),
    Mistake(10, {"LOGP_FLUSH__INTERVAL_S": "900"}, "note: flush.interval_s (900) is longer than the 600 s in which the alert LogPartitionerNoCommit expects a commit"),
    Mistake(13, {"LOGP_KAFKA__CLIENT_PROPERTIES": '{"socket.timeout.ms": 1000}'}, "The settings are good"),
    Mistake(45, {"LOGP_KAFKA__SESSION_TIMEOUT_S": "3", "LOGP_FLUSH__INTERVAL_S": "0.01", "LOGP_KAFKA__BOOTSTRAP_SERVERS": "broker"}, "The settings are good"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with the needed settings, and no others of ours."""
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def said_of(
    mistake: Mistake, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, command: str
) -> tuple[int, str]:
    """Make a mistake and run a command; gives exit code and everything that it says."""
    for name, value in mistake.variables.items():
        if value:
            environment.setenv(name, value)
        else:
            environment.delenv(name, raising=False)
    code = cli.main([command])
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.parametrize("command", ["check-config", "run"])
@pytest.mark.parametrize("mistake", REFUSED, ids=lambda one: f"{one.number} {one.said[:40]}")
def test_mistake_in_a_setting_is_refused_with_the_next_step(
    mistake: Mistake, command: str, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 before anything is started or asked; no secret, no traceback."""
    code, text = said_of(mistake, environment, capsys, command=command)
    assert code == 2
    assert mistake.said in text
    assert CANARY not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("mistake", ACCEPTED, ids=lambda one: f"{one.number} {one.said[:40]}")
def test_setting_that_only_looks_wrong_is_taken(
    mistake: Mistake, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that can be understood is taken; one with a consequence elsewhere has a note."""
    code, text = said_of(mistake, environment, capsys, command="check-config")
    assert code == 0
    assert mistake.said in text


def test_mistakes_of_two_kinds_are_told_together(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mistake 11: a name and a value, and two conflicts, in one answer."""
    variables = {
        "LOGP_FLUSH__INTERVALL_S": "1",
        "LOGP_LAYOUT": "packed",
        "LOGP_S3__ACCESS_KEY": "AK",
        "LOGP_FLUSH__BYTES_MAX": "2GiB",
    }
    _, text = said_of(Mistake(11, variables, ""), environment, capsys, command="check-config")
    assert len(text.splitlines()) == 4


def test_file_that_is_not_toml_is_told_with_the_place(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Mistake 20, third kind."""
    file = tmp_path / "settings.toml"
    file.write_text("[flush\ninterval_s = 1\n")
    code, text = said_of(Mistake(20, {"LOGP_CONFIG_FILE": str(file)}, ""), environment, capsys, command="check-config")
    assert (code, f"LOGP_CONFIG_FILE is not TOML: {file}: " in text, "line 1" in text) == (2, True, True)


def test_window_that_the_note_names_is_that_of_the_alert() -> None:
    """Mistake 10: a longer interval has no commit in it."""
    assert f'log_partitioner_committed_offset{{job=~".*"}}[{ALERT_WINDOW_S // 60}m]' in RULES.read_text()
