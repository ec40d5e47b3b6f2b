# ruff: noqa: E501 - a rule is a line
"""Settings: sources, refusals, rules between them, secrets, and what librdkafka is told (DESIGN 4.7, W10)."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import log_partitioner_pipeline.cli
from log_partitioner import cli, version
from log_partitioner.adapters.kafka.options import (
    PINNED_PRODUCER,
)
from log_partitioner.config import settings as config
from log_partitioner.config.checks import load
from log_partitioner.config.flush_settings import (
    ABORT_S,
    ANSWER_MARGIN_S,
    BROKER_TRANSACTION_TIMEOUT_MAX_S,
    BUDGET_MIN_S,
    POLL_MARGIN_S,
    FlushSettings,
)
from log_partitioner.config.kafka_properties import SECRET, why_not
from log_partitioner.config.s3_settings import CONNECT_TIMEOUT_S
from log_partitioner.config.settings import Settings, TimeSettings
from log_partitioner.config.sources import SourcedSettings, read_settings
from log_partitioner.errors import SettingsError
from log_partitioner.input.formats import find_format_problems
from log_partitioner.version import product_version
from log_partitioner_pipeline.config import PipelineSettings
from tools.docs.settings_schema import groups

MINIMAL = {
    "LOGP_KAFKA__BOOTSTRAP_SERVERS": "kafka:9092",
    "LOGP_KAFKA__SOURCE_TOPICS": '["app"]',
    "LOGP_S3__BUCKET": "logs",
}
CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Take every setting of ours out of the environment, and put in what has no default."""
    for name in [name for name in os.environ if name.upper().startswith(config.PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in MINIMAL.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def problems(**overrides: dict[str, Any]) -> list[str]:
    """Load with some sections overridden; returns what is wrong."""
    kafka = {"bootstrap_servers": "kafka:9092", "source_topics": ["app"], **overrides.pop("kafka", {})}
    s3 = {"bucket": "logs", **overrides.pop("s3", {})}
    try:
        load(kafka=kafka, s3=s3, **overrides)
    except SettingsError as error:
        return error.problems
    return []


# Sources.


def test_minimal_environment_is_enough() -> None:
    """Brokers, source topics and bucket have no default; everything else does, and the defaults agree."""
    settings = load()
    assert settings.kafka.source_topics == ("app",)
    assert settings.flush.interval_s == 30


def test_sources_win_in_their_order(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Arguments before environment before file before secret files before defaults."""
    file = tmp_path / "settings.toml"
    file.write_text('[flush]\ninterval_s = 20\nentries_max = 20\nbytes_max = 20\n[log]\nlevel = "debug"\n')
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "logp_flush__bytes_max").write_text("10")
    (secrets / "logp_http__port").write_text("10\n")
    environment.setenv("LOGP_CONFIG_FILE", str(file))
    environment.setenv("LOGP_SECRETS_DIR", str(secrets))
    environment.setenv("LOGP_FLUSH__ENTRIES_MAX", "30")
    environment.setenv("logp_worker", "lower-case-too")
    settings = load(log={"level": "error"})
    assert settings.log.level == "error"
    assert settings.flush.entries_max == 30
    assert (settings.flush.interval_s, settings.flush.bytes_max) == (20, 20)
    assert settings.http.port == 10
    assert settings.worker == "lower-case-too"


def test_topic_has_its_own_settings_and_the_workers_for_the_others(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They come from a file or from a variable; a schema file's text goes along to machines without the file."""
    schema = tmp_path / "log.avsc"
    schema.write_text('{"type": "map", "values": "string"}')
    file = tmp_path / "settings.toml"
    file.write_text(
        f'[topics.web.input]\nformat = "access-log"\n[topics.app.input]\nformat = "avro"\nschema_file = "{schema}"\n'
    )
    environment.setenv("LOGP_KAFKA__SOURCE_TOPICS", "web,app,other")
    environment.setenv("LOGP_INPUT__RECORD_BYTES_MAX", "1MiB")
    environment.setenv("LOGP_TIME__ZONE", "Europe/Berlin")
    environment.setenv("LOGP_CONFIG_FILE", str(file))
    of_file = load(find_format_problems)
    environment.delenv("LOGP_CONFIG_FILE")
    sections = {topic: own.model_dump(mode="json", exclude_unset=True) for topic, own in of_file.topics.items()}
    environment.setenv("LOGP_TOPICS", json.dumps(sections))
    assert load(find_format_problems) == of_file
    schema.unlink()
    elsewhere = pickle.loads(pickle.dumps(of_file))  # noqa: S301 - our own
    assert elsewhere.of_topic("other") is elsewhere
    web, app = elsewhere.of_topic("web"), elsewhere.of_topic("app")
    assert (web.input.format, web.input.record_bytes_max, str(web.time.zone)) == ("access-log", 2**20, "Europe/Berlin")
    assert app.input.schema_content == b'{"type": "map", "values": "string"}'
    assert web.input.schema_content is None


@pytest.mark.parametrize("linked", [False, True])
def test_secret_files_hold_nested_settings(environment: pytest.MonkeyPatch, tmp_path: Path, linked: bool) -> None:  # noqa: FBT001 - a case
    """Each secret has a file, named by its setting; the links of a Kubernetes volume are followed."""
    directory = tmp_path / "..2026_01_01" if linked else tmp_path
    directory.mkdir(exist_ok=True)
    contents = {
        "logp_s3__access_key": "AK",
        "logp_s3__secret_key": f"{CANARY}\n",
        "logp_kafka__secret_properties": f'{{"sasl.password": "{CANARY}"}}',
    }
    for name, text in contents.items():
        (directory / name).write_text(text)
        if linked:
            (tmp_path / "..data").unlink(missing_ok=True)
            (tmp_path / "..data").symlink_to(directory.name)
            (tmp_path / name).symlink_to(f"..data/{name}")
    environment.setenv("LOGP_SECRETS_DIR", str(tmp_path))
    settings = load()
    assert settings.s3.access_key is not None
    assert settings.s3.secret_key is not None
    assert settings.s3.access_key.get_secret_value() == "AK"
    assert settings.s3.secret_key.get_secret_value() == CANARY
    assert settings.kafka.secret_properties["sasl.password"].get_secret_value() == CANARY


def test_file_that_names_no_setting_is_refused(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says where."""
    file = tmp_path / "settings.toml"
    environment.setenv("LOGP_CONFIG_FILE", str(file))
    file.write_text("[flush]\ninterval = 1\n[colour]\nred = 1\n")
    with pytest.raises(SettingsError) as refused:
        load()
    assert refused.value.problems == [
        "LOGP_CONFIG_FILE: flush.interval names no setting: did you mean flush.interval_s?",
        "LOGP_CONFIG_FILE: colour names no setting",
    ]


# Refusals.


@pytest.mark.parametrize(
    ("name", "value", "example"),
    [("LOGP_KAFKA__SOURCE_TOPICS", f"[app,{CANARY}", 'must be a list: a,b or, as JSON, ["a", "b"]'),
     ("LOGP_KAFKA__SECRET_PROPERTIES", f"app,{CANARY}", 'must be a JSON object such as {"name": "value"}'),
     ("LOGP_KAFKA", f"app,{CANARY}", 'must be a JSON object such as {"name": "value"}')],
)  # fmt: skip
def test_list_or_object_that_is_none_is_named_with_an_example(
    environment: pytest.MonkeyPatch, name: str, value: str, example: str
) -> None:
    """Beside all other problems; the value is not repeated, it may be a secret."""
    environment.setenv(name, value)
    environment.setenv("LOGP_TYPO", "1")
    with pytest.raises(SettingsError) as refused:
        load()
    assert len(refused.value.problems) == 2
    assert "LOGP_TYPO names no setting" in refused.value.problems
    assert any(name in problem and problem.endswith(example) for problem in refused.value.problems)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [("logs", ("logs",)), ("a,b", ("a", "b")), (" a , b, ", ("a", "b")), ('"logs"', ("logs",)), ('"a", "b"', ("a", "b")),
     ('["a,b"]', ("a,b",))],
)  # fmt: skip
def test_list_takes_commas_as_well_as_json(environment: pytest.MonkeyPatch, text: str, names: tuple[str, ...]) -> None:
    """Quotes that an env file leaves are taken off; JSON is for names with commas in them."""
    environment.setenv("LOGP_USER__PATHS", text)
    assert load().user.paths == names


@pytest.mark.parametrize(
    ("text", "start_at"),
    [("beginning", "beginning"), ("1970-01-01T01:00:01.5+01:00", 1_500)],
)
def test_start_is_a_policy_or_a_time_in_milliseconds(
    environment: pytest.MonkeyPatch, text: str, start_at: str | int
) -> None:
    """As brokers are asked for it."""
    environment.setenv("LOGP_KAFKA__START_AT", text)
    assert load().kafka.start_at == start_at


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("7.5", 7.5),
        ("1e1", 10),
        ("30s", 30),
        ("500ms", 0.5),
        ("5m", 300),
        ("5 min", 300),
        ("1H", 3600),
        ("1d", 86_400),
    ],
)
def test_time_takes_a_unit_and_is_in_seconds_without(
    environment: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    """As every peer takes it."""
    environment.setenv("LOGP_TIME__FUTURE_MAX_S", text)
    assert load().time.future_max_s == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1kB", 1000),
        ("64KiB", 65_536),
        ("1.5MiB", 1_572_864),
        ("2GiB", 2**31),
        ("2Gi", 2**31),
        ("3 gb", 3 * 10**9),
    ],
)
def test_size_takes_a_unit_and_is_in_bytes_without(environment: pytest.MonkeyPatch, text: str, size: int) -> None:
    """KiB, MiB and GiB by 1,024, kB, MB and GB by 1,000."""
    environment.setenv("LOGP_INPUT__RECORD_BYTES_MAX", text)
    assert load().input.record_bytes_max == size


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("LOGP_FLUSH__INTERVAL_S", "30 seconds", "(LOGP_FLUSH__INTERVAL_S) must be a time such as"),
     ("LOGP_FLUSH__INTERVAL_S", "-1s", "(LOGP_FLUSH__INTERVAL_S) must be more than 0"),
     ("LOGP_FLUSH__INTERVAL_S", "nan", "(LOGP_FLUSH__INTERVAL_S) must be a time such as"),
     ("LOGP_FLUSH__INTERVAL_S", "1e999", "(LOGP_FLUSH__INTERVAL_S) must be a number"),
     ("LOGP_SPOOL__BYTES_MAX", "2G", "(LOGP_SPOOL__BYTES_MAX) must be a size such as"),
     ("LOGP_SPOOL__BYTES_MAX", "1.5", "(LOGP_SPOOL__BYTES_MAX) must be a whole number")],
)  # fmt: skip
def test_quantity_that_is_none_is_refused_with_examples(
    environment: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    """A letter alone could mean either kind of kilo."""
    environment.setenv(name, text)
    with pytest.raises(SettingsError) as refused:
        load()
    (problem,) = refused.value.problems
    assert said in problem


def test_property_takes_numbers_and_booleans(environment: pytest.MonkeyPatch) -> None:
    """A librdkafka property is text; JSON's and TOML's other types are written as the library reads them."""
    environment.setenv("LOGP_KAFKA__CLIENT_PROPERTIES", '{"socket.timeout.ms": 1000, "socket.keepalive.enable": true}')
    assert load().kafka.client_properties == {"socket.timeout.ms": "1000", "socket.keepalive.enable": "true"}


def test_nothing_set_names_what_is_needed_and_an_example_that_works(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first contact: three variables, each with its meaning, and five lines to copy."""
    for name in MINIMAL:
        environment.delenv(name)
    assert cli.main(["check-config"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines[:3]] == sorted(MINIMAL)
    assert all(" is not set: " in line for line in lines[:3])
    example = [line.removeprefix("  export ").partition("  #")[0].split() for line in lines[4:-1]]
    assert len(lines[4:]) == 5
    for name, value in (given.split("=") for line in example for given in line):
        environment.setenv(name, value)
    assert cli.main(["check-config"]) == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [("LOGP_KAFKA__BOOTSTRAP_SERVER", "LOGP_KAFKA__BOOTSTRAP_SERVERS"), ("LOGP_S3__BUKET", "LOGP_S3__BUCKET"),
     ("LOGP_KAFKA_BOOTSTRAP_SERVERS", "LOGP_KAFKA__BOOTSTRAP_SERVERS"), ("LOGP_FLUSCH__INTERVAL_S", "LOGP_FLUSH__INTERVAL_S"),
     ("LOGP_FLUSH__INTERVAL", "LOGP_FLUSH__INTERVAL_S"), ("LOGP_WORKERS", "LOGP_WORKER")],
)  # fmt: skip
def test_typo_is_told_with_the_nearest_setting(environment: pytest.MonkeyPatch, given: str, meant: str) -> None:
    """In a section, of a section, without the second underscore."""
    environment.setenv(given, "1")
    with pytest.raises(SettingsError) as refused:
        load()
    assert f"{given} names no setting: did you mean {meant}?" in refused.value.problems


def test_problems_of_every_kind_are_told_in_one_go(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names, values, conflicts between good values, and what the client library refuses; no rule about a wrong value."""
    environment.setenv("LOGP_TYPO", "1")
    environment.setenv("LOGP_WORKER__NAME", "w")
    environment.setenv("LOGP_FLUSH__BUDGET_S", "soon")
    environment.setenv("LOGP_FLUSH__BYTES_MAX", "2GiB")
    environment.setenv("LOGP_S3__ACCESS_KEY", "AK")
    environment.setenv("LOGP_KAFKA__CLIENT_PROPERTIES", '{"security.protokol": "ssl", "a": [1]}')
    assert cli.main(["check-config"]) == 2
    text = capsys.readouterr().err
    for said in ("LOGP_TYPO names no setting", "LOGP_WORKER__NAME names no setting", "(LOGP_FLUSH__BUDGET_S) must be a time", ": a must be text",
                 "spool.bytes_max (2147483648) must be at least twice", "belong together", "security.protokol may not be set"):  # fmt: skip
        assert said in text
    assert len(text.splitlines()) == 7


def _settings_of(kind: type[SourcedSettings]) -> Iterator[tuple[str, str]]:
    for name, field in kind.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        yield from ((name, setting) for setting in inner) if inner else ((name, ""),)


@pytest.mark.parametrize("kind", [Settings, PipelineSettings])
def test_every_time_size_and_list_is_taken_as_a_text(kind: type[SourcedSettings]) -> None:
    """Every setting has a type of `log_partitioner.config.section`."""
    settings = [setting for group in groups(kind) for setting in group.settings]
    for setting in settings:
        *section, name = setting.path
        if name.endswith("_s"):
            assert setting.unit == "seconds", setting.path
        elif "bytes" in name:
            assert setting.unit == "bytes", setting.path
        elif setting.schema.get("type") == "array":
            given: dict[str, object] = {name: "a,b"}
            problems_of_it = [one for one in read_settings(kind, **{section[0]: given}).problems if name in one]
            assert problems_of_it == []


@pytest.mark.parametrize("kind", [Settings, PipelineSettings])
def test_no_setting_is_refused_in_words_of_the_library_behind(kind: type[SourcedSettings]) -> None:
    """Each setting is given what no setting, or few, can be: every refusal has a sentence of ours."""
    odd: list[Any] = [
        "",
        "x" * 5000,
        "1e999",
        "-1",
        "0",
        "1.5",
        "?",
        "1" * 5000,
        "null",
        "\0",
        [],
        {},
        [1],
        {"a": [1]},
        None,
        object(),
    ]
    said = set()
    for section, name in _settings_of(kind):
        for value in odd:
            reading = read_settings(kind, **{section: {name: value} if name else value})
            said |= {problem for problem in reading.problems if section in problem}
    assert len(said) > len([*_settings_of(kind)])
    for word in ("Field required", "Extra inputs", "Input should", "valid tuple", "unable to parse", "Value error",
                 "no value that it can have", "validation"):  # fmt: skip
        assert [problem for problem in said if word in problem] == []


def test_variables_of_tests_are_nobodys_business(environment: pytest.MonkeyPatch) -> None:
    """LOGP_TEST_ names belong to the test stack."""
    environment.setenv("LOGP_TEST_KAFKA", "x")
    load()


def test_zones_are_known_on_a_machine_that_has_none(environment: pytest.MonkeyPatch) -> None:
    """As slim images: the package tzdata brings them; an unknown name is refused in a sentence."""
    ZoneInfo.clear_cache()
    environment.setattr("zoneinfo._tzpath.TZPATH", ())
    assert problems(partition={"zone": "Europe/Berlin"}) == []

    (problem,) = problems(partition={"zone": "Europe/Nowhere"})
    assert "'Europe/Nowhere' is not a time zone of this machine or of the package tzdata" in problem


# Rules between settings: an accepting and a rejecting case each.

RULES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("dead_letters.share_max",
     {"dead_letters": {"share_max": 0.01}}, {"dead_letters": {"share_max": 0}}),
    ("spool.bytes_max",
     {"flush": {"bytes_max": 10}, "spool": {"bytes_max": 20}}, {"flush": {"bytes_max": 10}, "spool": {"bytes_max": 19}}),
    ("is named for more than one",
     {"kafka": {"flushes_topic": "f", "references_topic": "r"}}, {"kafka": {"flushes_topic": "x", "references_topic": "x"}}),
    ("is read and written",
     {"kafka": {"dead_letters_topic": "other"}}, {"kafka": {"dead_letters_topic": "app"}}),
    ("topic backfills is read (^[a-z]+ matches it) and written",
     {"kafka": {"source_topics": ["_a.b-C9", "a" * 249, "^[a-z]+-logs"]}}, {"kafka": {"source_topics": ["app", "^[a-z]+"]}}),
    ("kafka.source_topics: ^_.*s matches topics of Kafka itself, such as __consumer_offsets",
     {"kafka": {"source_topics": ["^_.*-logs"]}}, {"kafka": {"source_topics": ["^_.*s"]}}),
    ("kafka.references_topic: '^r' is no topic name",
     {"kafka": {"references_topic": "r"}}, {"kafka": {"references_topic": "^r"}}),
    ("kafka.source_topics: 'a b' is no topic name",
     {"kafka": {"source_topics": ["..."]}}, {"kafka": {"source_topics": ["a b"]}}),
    ("kafka.source_topics: '..' is no topic name",
     {"kafka": {"source_topics": ["a..b"]}}, {"kafka": {"source_topics": [".."]}}),
    ("kafka.dead_letters_topic: '' is no topic name",
     {"kafka": {"dead_letters_topic": "d"}}, {"kafka": {"dead_letters_topic": ""}}),
    ("kafka.references_topic: 'aaa",
     {"kafka": {"references_topic": "a" * 249}}, {"kafka": {"references_topic": "a" * 250}}),
    ("kafka.flushes_topic: 'f\\n'",
     {"kafka": {"flushes_topic": "f"}}, {"kafka": {"flushes_topic": "f\n"}}),
    ("kafka.bootstrap_servers names no broker",
     {"kafka": {"bootstrap_servers": "a:1,"}}, {"kafka": {"bootstrap_servers": " , "}}),
    ("kafka.bootstrap_servers: kafka://b:2 begins with what is no listener of Kafka",
     {"kafka": {"bootstrap_servers": "SASL_SSL://a:1, ssl://b:2"}}, {"kafka": {"bootstrap_servers": "a:1, kafka://b:2"}}),
    ("kafka.bootstrap_servers: http://b:2 begins",
     {"kafka": {"bootstrap_servers": "b:2"}}, {"kafka": {"bootstrap_servers": "http://b:2"}}),
    ("s3.bucket ('s3://my-logs/x') is no bucket name",
     {"s3": {"bucket": "my.logs-1"}}, {"s3": {"bucket": "s3://my-logs/x"}}),
    ("s3.bucket ('My_Logs!') is no bucket name",
     {"s3": {"bucket": "My_Logs"}}, {"s3": {"bucket": "My_Logs!"}}),
    ("s3.prefix ('')",
     {"s3": {"prefix": "l"}}, {"s3": {"prefix": ""}}),
    ("s3.prefix ('/logs')",
     {"s3": {"prefix": "team a/logs"}}, {"s3": {"prefix": "/logs"}}),
    ("s3.prefix ('logs/')",
     {"s3": {"prefix": "a/b/c"}}, {"s3": {"prefix": "logs/"}}),
    ("s3.prefix ('a//b')",
     {"s3": {"prefix": "a/.b"}}, {"s3": {"prefix": "a//b"}}),
    ("s3.endpoint_url ('minio:9000') must begin with http:// or https://",
     {"s3": {"endpoint_url": "http://minio:9000"}}, {"s3": {"endpoint_url": "minio:9000"}}),
    ("s3.endpoint_url ('https://')",
     {"s3": {"endpoint_url": "HTTPS://s3.example"}}, {"s3": {"endpoint_url": "https://"}}),
    ("s3.endpoint_url ('http://[::1')",
     {"s3": {"endpoint_url": "http://[::1]:9000"}}, {"s3": {"endpoint_url": "http://[::1"}}),
    ("input.entries_path is of input.format json",
     {"input": {"entries_path": "logs[]"}}, {"input": {"entries_path": "logs[]", "format": "ndjson"}}),
    ("user.paths: 'envelope:a' finds nothing without input.entries_path",
     {"user": {"paths": ["envelope:a"]}, "input": {"entries_path": "logs[]"}}, {"user": {"paths": ["u", "envelope:a"]}}),
    ("time.paths: 'envelope:a' finds nothing without",
     {"time": {"paths": ["envelope"]}}, {"time": {"paths": ["envelope:a"]}}),
    ("user.paths",
     {"user": {"paths": ["a.b", "header:x", "key"]}}, {"user": {"paths": ["a.b", "header:"]}}),
    ("time.paths",
     {"time": {"paths": []}}, {"time": {"paths": [""]}}),
    ("id.paths",
     {"id": {"paths": [r"a\.b"]}}, {"id": {"paths": ["a."]}}),
    ("user.missing_name",
     {"user": {"missing_name": "nobody"}}, {"user": {"missing_name": "-"}}),
    ("sasl.mechanism PLAIN sends the password in the clear",
     {"kafka": {"client_properties": {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}}},
     {"kafka": {"client_properties": {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT"}}}),
    ("sasl.mechanism PLAIN sends",
     {"kafka": {"client_properties": {"sasl.mechanisms": "SCRAM-SHA-512"}}},
     {"kafka": {"secret_properties": {"sasl.mechanisms": "PLAIN"}}}),
    ("belongs in kafka.secret_properties",
     {"kafka": {"secret_properties": {"sasl.password": "x"}}}, {"kafka": {"client_properties": {"sasl.password": "x"}}}),
    ("belong together",
     {"s3": {"access_key": "a", "secret_key": "b"}}, {"s3": {"secret_key": "b"}}),
    ("s3.kms_key_id is of s3.encryption aws:kms, not of AES256",
     {"s3": {"encryption": "aws:kms", "kms_key_id": "k"}}, {"s3": {"encryption": "AES256", "kms_key_id": "k"}}),
    ("s3.bucket_key is of s3.encryption aws:kms, not of bucket",
     {"s3": {"encryption": "aws:kms:dsse", "bucket_key": False}}, {"s3": {"bucket_key": True}}),
    ("s3.tags are 11, an object has at most 10",
     {"s3": {"tags": dict.fromkeys("0123456789", "v")}}, {"s3": {"tags": dict.fromkeys("0123456789a", "v")}}),
    ("s3.endpoint_url",
     {"s3": {"endpoint_url": "https://store:9000/a@b"}}, {"s3": {"endpoint_url": "https://user:pass@store:9000"}}),
    ("registry.url must begin",
     {"registry": {"url": "http://registry:8081"}}, {"registry": {"url": "registry:8081"}}),
    ("registry.url is shown",
     {"registry": {"url": "https://registry/a@b"}}, {"registry": {"url": "https://user:pass@registry"}}),
    ("registry.user and registry.password",
     {"registry": {"url": "https://r", "user": "u", "password": "p"}}, {"registry": {"url": "https://r", "user": "u"}}),
    ("registry.token stands in place",
     {"registry": {"url": "https://r", "token": "t"}},
     {"registry": {"url": "https://r", "user": "u", "password": "p", "token": "t"}}),
    ("registry.certificate_file and registry.key_file",
     {"registry": {"url": "https://r", "certificate_file": "c", "key_file": "k"}},
     {"registry": {"url": "https://r", "certificate_file": "c"}}),
    ("registry.url begins with http://",
     {"registry": {"url": "https://r", "token": "t"}}, {"registry": {"url": "http://r", "token": "t"}}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "accepted", "rejected"), RULES, ids=[rule[0] for rule in RULES])
def test_rule_between_settings_accepts_up_to_its_bound_and_rejects_beyond(
    message: str, accepted: dict[str, Any], rejected: dict[str, Any]
) -> None:
    """W10 and its like: the sentence names the settings, with the numbers in them."""
    assert problems(**accepted) == []
    assert any(message in problem for problem in problems(**rejected))


@pytest.mark.parametrize("budget_s", [BUDGET_MIN_S, 30, 119.5, 120, 600, 2 * BROKER_TRANSACTION_TIMEOUT_MAX_S])
def test_all_time_outs_follow_from_the_budget_of_a_flush(budget_s: float) -> None:
    """W10: under any budget, the time-outs that must be shorter are."""
    flush = FlushSettings(budget_s=budget_s)
    assert flush.upload_deadline_s + flush.commit_budget_s == budget_s
    assert CONNECT_TIMEOUT_S + flush.store_answer_s <= flush.upload_deadline_s, (
        "a try that hangs leaves time for another"
    )
    assert flush.commit_budget_s < flush.revoke_budget_s <= budget_s, "a revoke has time to upload"
    assert flush.commit_budget_s < flush.transaction_timeout_s <= BROKER_TRANSACTION_TIMEOUT_MAX_S
    assert PINNED_PRODUCER["socket.timeout.ms"] <= 1000 * flush.transaction_timeout_s
    assert flush.settle_s == ABORT_S + flush.transaction_timeout_s + ANSWER_MARGIN_S
    assert budget_s + flush.settle_s + POLL_MARGIN_S <= flush.max_poll_interval_s, "a flush fits between two polls"
    assert flush.poll_budget_s == flush.max_poll_interval_s - POLL_MARGIN_S
    assert flush.no_membership_max_s >= 2 * flush.max_poll_interval_s, "a slow flush and a rebalance behind it"
    assert flush.live_max_s > flush.max_poll_interval_s, "a slow flush is not killed"


def test_budget_that_brokers_or_producers_do_not_allow_is_refused() -> None:
    """Half of it is the time-out of transactions."""
    assert problems(flush={"budget_s": BUDGET_MIN_S - 1}) == [
        "flush.budget_s (LOGP_FLUSH__BUDGET_S) must be at least 20.0"
    ]
    assert problems(flush={"budget_s": "31m"}) == ["flush.budget_s (LOGP_FLUSH__BUDGET_S) must be at most 1800.0"]


# Properties of librdkafka that settings may not touch.


@pytest.mark.parametrize("place", ["client_properties", "secret_properties"])
def test_property_that_may_not_be_passed_through_is_refused_in_every_place(place: str) -> None:
    """The sentence says what may be."""
    assert problems(kafka={place: {"isolation.level": "read_uncommitted"}}) == [
        f"kafka.{place}: isolation.level may not be set: {why_not('isolation.level')}"
    ]


@pytest.mark.parametrize("name", sorted(SECRET))
def test_secret_property_is_taken_where_it_is_not_shown_only(name: str) -> None:
    """check-config prints the other places."""
    assert any("secret_properties" in problem for problem in problems(kafka={"client_properties": {name: "x"}}))
    assert problems(kafka={"secret_properties": {name: "x"}}) == []


# The commands.


def test_check_config_says_one_sentence_and_shows_settings_without_secrets(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """I11: a canary in every secret setting is in no output."""
    environment.setenv("LOGP_S3__ACCESS_KEY", CANARY)
    environment.setenv("LOGP_S3__SECRET_KEY", CANARY)
    environment.setenv("LOGP_KAFKA__SECRET_PROPERTIES", json.dumps(dict.fromkeys(SECRET, CANARY)))
    environment.setenv("LOGP_FLUSH__INTERVAL_S", "17")
    assert cli.main(["check-config"]) == 0
    (sentence,) = capsys.readouterr().out.splitlines()
    assert cli.main(["check-config", "--show"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["flush"]["interval_s"] == 17
    assert CANARY not in out + err + sentence


@pytest.mark.parametrize(
    "values",
    [
        {"LOGP_S3__SECRET_KEY": CANARY},
        {"LOGP_KAFKA__SECRET_PROPERTIES": f'{{"sasl.password": {CANARY}'},
        {"LOGP_KAFKA__SECRET_PROPERTIES": f'["{CANARY}"]'},
        {"LOGP_KAFKA__SECRET_PROPERTIES": f'{{"sasl.password": {{"x": "{CANARY}"}}}}'},
        {"LOGP_KAFKA__SECRET_PROPERTIES": f'{{"acks": "{CANARY}"}}'},
        {"LOGP_KAFKA__CLIENT_PROPERTIES": f'{{"sasl.password": "{CANARY}"}}'},
        {"LOGP_S3__ENDPOINT_URL": f"https://user:{CANARY}@store"},
        {"LOGP_S3__ENDPOINT_URL": f"user:{CANARY}@store:9000"},
        {"LOGP_S3__ENDPOINT_URL": f"https://user:{CANARY}@[store"},
        {"LOGP_S3__ACCESS_KEY": CANARY, "LOGP_S3__SECRET_KEYS": CANARY},
    ],
)
def test_check_config_refuses_without_repeating_what_may_be_a_secret(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], values: dict[str, str]
) -> None:
    """I11: one line a problem, exit code 2, and the value in none of them."""
    for name, value in values.items():
        environment.setenv(name, value)
    assert cli.main(["check-config"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(line.startswith("settings: ") for line in err.splitlines())
    assert CANARY not in err


WRONG_PROPERTIES: list[tuple[dict[str, Any], list[str]]] = [
    ({"client_properties": {"compression.type": "lz5", "security.protocol": "SASL_TLS"}},
     ['kafka.client_properties: security.protocol is refused by the client library: Invalid value "SASL_TLS" for configuration property "security.protocol"',
      'kafka.client_properties: compression.type is refused by the client library: Invalid value "lz5" for configuration property "compression.codec"']),
    ({"secret_properties": {"sasl.oauthbearer.method": CANARY}},
     ["kafka.secret_properties: sasl.oauthbearer.method is refused by the client library: its value"]),
    ({"client_properties": {"security.protocol": "ssl", "ssl.ca.location": "/no/such.pem"}},
     ["kafka.client_properties: ssl.ca.location names no file that can be read: /no/such.pem"]),
    ({"client_properties": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}},
     ["kafka: the client library makes no consumer and no producer of these properties: sasl.username and sasl.password must be set"]),
    ({"client_properties": {"fetch.max.bytes": "10"}},
     ["kafka: the client library makes no consumer of these properties: `fetch.max.bytes` must be >= `message.max.bytes`"]),
]  # fmt: skip


@pytest.mark.parametrize("command", ["check-config", "run"])
@pytest.mark.parametrize(("kafka", "sentences"), WRONG_PROPERTIES)
def test_properties_that_the_library_refuses_are_refused_before_anything_starts(
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kafka: dict[str, dict[str, str]],
    sentences: list[str],
    command: str,
) -> None:
    """The library itself is asked, without a broker; all of them, beside what contradicts itself."""
    for place, properties in kafka.items():
        environment.setenv(f"LOGP_KAFKA__{place.upper()}", json.dumps(properties))
    environment.setenv("LOGP_S3__PREFIX", "/")
    assert cli.main([command]) == 2
    out, err = capsys.readouterr()
    rule, *found = [line.removeprefix("settings: ") for line in err.splitlines()]
    assert "s3.prefix" in rule
    assert found == sentences
    assert CANARY not in out + err


def test_secrets_are_hidden_in_every_text_form_of_the_settings() -> None:
    """I11: neither a log line nor a traceback that formats the settings shows a secret."""
    settings = load(
        kafka={"bootstrap_servers": "k", "source_topics": ["app"], "secret_properties": {"sasl.password": CANARY}},
        s3={"bucket": "b", "access_key": CANARY, "secret_key": CANARY},
    )
    for text in (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump())):
        assert CANARY not in text


@pytest.mark.parametrize(
    ("main", "name"), [(cli.main, "log-partitioner"), (log_partitioner_pipeline.cli.main, "log-partitioner pipeline")]
)
def test_version_is_told_without_any_setting(
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[list[str]], int],
    name: str,
) -> None:
    """It is the package's version, as the worker says it at its start; no brokers and no command are needed."""
    for variable in MINIMAL:
        environment.delenv(variable)
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"{name} {product_version()}\n"
    environment.setattr(version, "version", lambda _name: "1.2.3")
    assert product_version() == "1.2.3"


def test_config_schema_describes_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    """Every setting has a sentence, which becomes the chart's comment."""
    assert cli.main(["config-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    for name, section in schema["$defs"].items():
        undescribed = [field for field, spec in section["properties"].items() if "description" not in spec]
        assert undescribed == [], name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2024-05-01T12:00:00", 1_714_564_800),
        ("2024-05-01T12:00:00+02:00", 1_714_557_600),
        ("2024-05-01", 1_714_521_600),
    ],
)
def test_earliest_time_without_a_zone_is_utc_whatever_the_zone_of_texts(given: str, expected: int) -> None:
    """`time.zone` is that of entries."""
    times = TimeSettings.model_validate({"earliest": given, "zone": "Europe/Berlin"})
    assert times.earliest_us == expected * 1_000_000
