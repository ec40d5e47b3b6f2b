"""Real logs through the worker: every entry of every set comes out once, where it belongs, as it went in.

The objects have the default layout, and the small audit is clean. A long set gives a sample from all of the file; the
sweep takes all of it. tests/pipeline/test_real_logs.py does the same on Spark. `real_log` has the expected output;
`readback` reads rows and dead letters. Without the data this file is not collected (tests/conftest.py).
"""

from pathlib import Path

import pytest

from tests.integration.harness import Deploy, Deployment
from tests.integration.one_worker import run_through
from tests.integration.readback import read_objects
from tests.integration.real_log import AS_TEXT, PARTITIONS, RULES, RealLog, lines_of, name_of, real_log_files, texts_of

ENTRIES_MAX = 10_000
STEPS = {file: -(-RULES[name_of(file)].entries // ENTRIES_MAX) for file in real_log_files()}
CASES = [
    *(pytest.param(file, step, id=name_of(file)) for file, step in STEPS.items()),
    *(
        pytest.param(file, 1, id=f"{name_of(file)}-all", marks=pytest.mark.sweep)
        for file, step in STEPS.items()
        if step > 1
    ),
]


@pytest.mark.parametrize(("file", "step"), CASES)
def test_real_logs_come_out_as_they_went_in(file: Path, step: int, deploy: Deploy) -> None:
    """Every entry is in one row of the right user, date and hour, or a dead letter, and equal field by field."""
    rules, lines = RULES[name_of(file)], lines_of(file)
    assert len(lines) == rules.entries
    require_all(RealLog(lines[::step], rules), deploy(partitions=PARTITIONS, settings=rules.settings()))


@pytest.mark.parametrize("file", [file for file in real_log_files() if name_of(file) == "apache_logs"], ids=name_of)
def test_lines_of_text_come_out_as_their_twins_in_json(file: Path, deploy: Deploy) -> None:
    """By a pattern each line is an entry, of the user and the time that the object of its parts has."""
    rules = RULES[name_of(file)]
    settings = rules.settings() | AS_TEXT
    require_all(RealLog(lines_of(file), rules, texts_of(file)), deploy(partitions=PARTITIONS, settings=settings))


def require_all(log: RealLog, deployment: Deployment) -> None:
    """Send a log through a worker, and find all of it."""
    log.note_places(run_through(deployment, log.records(), LOGP_SPOOL__BYTES_MAX=str(4 << 30)))
    for found in read_objects(deployment):
        log.check_reference(found.reference.partition_key, found.reference.entries, found.rows)
    log.check_dead_letters(deployment)
    log.check_nothing_is_missing()
    deployment.require_clean()
