"""Tokens for Amazon MSK: shared, renewed in time, and told in a sentence if there is none."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import NoCredentialsError
from structlog.testing import capture_logs

from log_partitioner import cli
from log_partitioner.adapters.kafka import msk
from log_partitioner.adapters.kafka.msk import Tokens
from log_partitioner.errors import SettingsError
from tests.fakes.clock import FakeClock

SIGNER = Path(__file__).parents[2] / "integration" / "msk_signer"
LIFE_S = 900.0


class Signer:
    """Signs one token after the other, unless it is told to raise."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.error: Exception | None = None
        self._now_s = now_s
        self._signed = 0

    def __call__(self) -> tuple[str, float]:
        """Sign."""
        if self.error is not None:
            raise self.error
        self._signed += 1
        return f"token-{self._signed}", self._now_s() + LIFE_S


@pytest.fixture
def clock() -> FakeClock:
    """Give a clock."""
    return FakeClock()


@pytest.fixture
def signer(clock: FakeClock) -> Signer:
    """Give a signer."""
    return Signer(clock.now_s)


def test_token_is_shared_and_renewed_in_the_second_half_of_its_life(clock: FakeClock, signer: Signer) -> None:
    """A producer of each transaction asks for one; librdkafka asks again after four fifths of what was left."""
    tokens = Tokens(signer, now_s=clock.now_s)
    begun_s = clock.now_s()
    assert tokens() == tokens("config") == ("token-1", begun_s + LIFE_S)
    clock.advance(LIFE_S / 2 - 1)
    assert tokens()[0] == "token-1"
    clock.advance(1)
    assert tokens() == ("token-2", begun_s + 1.5 * LIFE_S)


def test_old_token_serves_until_its_end_if_none_is_given(clock: FakeClock, signer: Signer) -> None:
    """One line says so, not one for each client; afterwards there is no token."""
    tokens = Tokens(signer, now_s=clock.now_s)
    tokens()
    signer.error = NoCredentialsError()
    clock.advance(LIFE_S / 2)
    with capture_logs() as logs:
        assert tokens() == tokens()
    assert [line["message"] for line in logs] == ["NoCredentialsError: Unable to locate credentials"]
    clock.advance(LIFE_S / 2)
    with capture_logs(), pytest.raises(SettingsError, match=r"kafka\.auth \(msk-iam\): no token: NoCredentialsError"):
        tokens()
    signer.error = None
    assert tokens()[0] == "token-2"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Give the settings of a worker that logs in to MSK; whatever signs is imported anew."""
    for name, value in {
        "LOGP_KAFKA__BOOTSTRAP_SERVERS": "broker:9098", "LOGP_KAFKA__SOURCE_TOPICS": "app",
        "LOGP_KAFKA__AUTH": "msk-iam", "LOGP_S3__BUCKET": "logs", "AWS_REGION": "eu-central-1",
        "TOKENS_DIRECTORY": str(tmp_path), "TOKENS_SUBJECT": "worker", "TOKENS_LIFE_S": "900",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(msk, "tokens", Tokens(msk._sign))
    for name in [name for name in sys.modules if name.startswith("aws_msk_iam_sasl_signer")]:
        monkeypatch.delitem(sys.modules, name)
    return monkeypatch


def complaint(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Run a command that is refused; gives what it says."""
    assert cli.main(command) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "check-config", "audit"])
def test_missing_package_and_region_are_named_at_the_start(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Every command that reads the settings says so; a property that `kafka.auth` decides is refused."""
    environment.setattr("log_partitioner.config.checks.find_spec", lambda _name: None)
    environment.delenv("AWS_REGION")
    environment.delenv("AWS_DEFAULT_REGION", raising=False)
    environment.setenv("LOGP_KAFKA__CLIENT_PROPERTIES", '{"security.protocol": "SSL", "fetch.min.bytes": 2}')
    assert complaint(capsys, command).splitlines() == [
        (
            "settings: kafka.auth (msk-iam) needs the optional group msk: pip install 'log-partitioner[msk]', "
            "or an image that is built with REQUIREMENTS=requirements-msk.lock"
        ),
        "settings: kafka.auth (msk-iam) signs for a region: set AWS_REGION",
        "settings: kafka.auth (msk-iam) leaves no choice of security.protocol: leave it out of the properties",
    ]


def test_token_that_is_refused_at_the_start_is_one_sentence(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As other settings that are refused; nothing is asked of a broker."""
    environment.syspath_prepend(str(SIGNER))
    assert cli.main(["check-config"]) == 0
    assert (tmp_path / "signed").read_text() == "eu-central-1\n"
    capsys.readouterr()
    environment.setattr(msk, "tokens", Tokens(msk._sign))
    (tmp_path / "refused").touch()
    for command in ("run", "check-config", "audit"):
        with capture_logs():
            assert complaint(capsys, command) == (
                "settings: kafka.auth (msk-iam): no token: ValueError: AWS Credentials can not be empty\n"
            )


def test_signer_of_the_optional_group_gives_a_token_for_the_region(environment: pytest.MonkeyPatch) -> None:
    """The real one, without a network: an address that is signed for fifteen minutes."""
    environment.setenv("AWS_ACCESS_KEY_ID", "key")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    text, ends_s = Tokens(msk._sign)()
    address = urlsplit(base64.urlsafe_b64decode(text + "==").decode())
    asked = parse_qs(address.query)
    assert address.hostname == "kafka.eu-central-1.amazonaws.com"
    assert (asked["Action"], asked["X-Amz-Expires"]) == (["kafka-cluster:Connect"], ["900"])
    assert 800 < ends_s - time.time() <= 900
