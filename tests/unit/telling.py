"""Tests that tell a user or a secret, and one that does not; run by test_privacy.py in a process of its own."""

from __future__ import annotations

import logging
import sys

import pytest
import structlog
from structlog.testing import capture_logs

from tests import canaries


@pytest.fixture
def told_before() -> None:
    """Tell it before the test begins."""
    sys.stdout.write(canaries.USER)


def test_that_prints() -> None:
    """On standard output."""
    sys.stdout.write(f"logs/user={canaries.USER}/date=2026-01-01")


def test_that_complains() -> None:
    """On standard error."""
    sys.stderr.write(canaries.SECRET)


def test_that_logs() -> None:
    """By the standard library."""
    logging.getLogger("other").warning("of %s", canaries.USER)


def test_that_looks_at_its_lines() -> None:
    """They do not come to any output then."""
    with capture_logs():
        structlog.get_logger().info("told", user=canaries.USER)


@pytest.mark.usefixtures("told_before")
def test_that_is_told_before() -> None:
    """By a fixture."""


def test_that_is_silent() -> None:
    """It says nothing of users."""
    sys.stdout.write("nothing")
