"""Hypothesis profiles: `quick` for `make test`, `ci` (default), `nightly` looks further; HYPOTHESIS_PROFILE chooses."""

import os

from hypothesis import HealthCheck, settings

_NEVER_FLAKY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("quick", max_examples=20, stateful_step_count=30, derandomize=True, **_NEVER_FLAKY)
settings.register_profile("ci", max_examples=60, stateful_step_count=30, derandomize=True, **_NEVER_FLAKY)
settings.register_profile("nightly", max_examples=3000, stateful_step_count=60, print_blob=True, **_NEVER_FLAKY)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
