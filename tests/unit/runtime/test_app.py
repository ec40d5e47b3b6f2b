"""The worker as it is put together: what the settings say reaches its rules, and a start wipes the spool alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.config.settings import (
    POLL_MARGIN_S,
    FlushSettings,
    HttpSettings,
    InputSettings,
    KafkaSettings,
    S3Settings,
    SchemaSettings,
    Settings,
    SpoolSettings,
)
from service.control.flush_policy import FlushBounds, Size
from service.control.machine import MachineRules
from service.input.json_text import JsonDecoder
from service.runtime.app import ESTIMATE_SHARE, FIXED_SHARE, SPOOL_SHARE, Process, _rules
from service.runtime.controller import ControlRules
from service.runtime.runloop import LoopRules
from service.runtime.start_positions import StartRules
from service.runtime.stop import StopFlag


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Give settings of which those that the rules are made of are none of the defaults."""
    return Settings(
        kafka=KafkaSettings(
            bootstrap_servers="127.0.0.1:9",
            source_topics=("one", "other"),
            start_at="fail",
            accept_unknown_history=True,
            on_unreadable="hold",
            max_poll_interval_s=200,
            transaction_timeout_s=50,
            message_bytes_max=400_000,
            consume_records_max=70,
        ),
        input=InputSettings(fatal_ends_max=7),
        record_schema=SchemaSettings(inline_bytes_max=5_000),
        flush=FlushSettings(
            interval_s=8,
            bytes_max=9_000,
            entries_max=90,
            upload_deadline_s=60,
            commit_budget_s=20,
            revoke_budget_s=70,
            backoff_max_s=6,
        ),
        spool=SpoolSettings(directory=tmp_path / "spool", bytes_max=1_000_000, memory_bytes_max=30_000),
        s3=S3Settings(
            bucket="bucket",
            endpoint_url="http://127.0.0.1:9",
            prefix="prefix",
            access_key=SecretStr("key"),
            secret_key=SecretStr("secret"),
        ),
        http=HttpSettings(host="127.0.0.1", port=0),
    )


def test_rules_are_those_of_the_settings(settings: Settings) -> None:
    """A rule that no setting reaches would have its default for ever, and nobody would see it."""
    rules = _rules(settings, JsonDecoder(keep_inexact_text=False))
    bounds = FlushBounds(8, 9_000, 90, FIXED_SHARE * 30_000, SPOOL_SHARE * 1_000_000, ESTIMATE_SHARE * (70 - 20))
    machine = MachineRules(6, Size(9_000, 90))
    assert (rules.on_unreadable, rules.fatal_ends_max) == ("hold", 7)
    assert rules.start == StartRules("log-partitioner", "fail", accept_unknown_history=True, topics=("one", "other"))
    assert rules.loop == LoopRules(bounds, 70)
    assert rules.control == ControlRules(200 - POLL_MARGIN_S, settings.settle_s, 60 + 20, 70, machine)
    assert rules.flush[:6] == ("prefix", 60, 20, 400_000, 5_000, 100_000)
    assert rules.recorder.memory_bytes_max == 30_000


def test_journal_outlives_the_next_start(settings: Settings) -> None:
    """It lies beside the spool, which a start empties."""
    for said_before in (b"", b"in hand"):
        with ExitStack() as cleanup:
            journal = Process(settings, "b00t", StopFlag(), cleanup).worker._ports.journal
            assert journal.read() == said_before
            journal.write(b"in hand", is_synced=False)
