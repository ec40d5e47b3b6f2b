"""The cost of an entry on its way has not grown by half since path_cost.json was written.

Costs are CPU in multiples of F, the cost of reading alone in the same round, because machines differ and the same code
varies by 40 % between runs. If a change makes the path cheaper, or dearer with good reason, its author writes the
figures that a failure prints to the file.
"""

import json
import statistics
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from bench.lab import BUCKET, Lab
from bench.stages import LANES, measure_stages
from bench.worker import CPU, discard, fill, measure
from bench.workloads import WORKLOADS, Workload, generate
from tests.stack.kafka_helper import KafkaHelper
from tests.stack.names import Names
from tests.stack.s3_helper import S3Helper
from tools.local.topics import create_bucket

_RECORDED = Path(__file__).with_name("path_cost.json")
_RECORDS = 200_000
_OF_STAGES = 50_000  # the rest of the time is the whole worker's
_ROUNDS = 5
_GROWTH_MAX = 1.5
_TRIES = 2  # what other tests do beside it may cost one of them
_LANE = next(iter(LANES))  # of the whole worker, as it comes: the fast one if it is installed


@pytest.mark.sweep  # what runs beside it costs it a try: on a quiet machine
@pytest.mark.timeout(600)
def test_no_part_of_the_path_costs_half_as_much_again(
    kafka: KafkaHelper, s3: S3Helper, names: Names, tmp_path: Path
) -> None:
    """Medians of five rounds, each with an F of its own: recording and sealing in both lanes, and the whole worker."""
    lab = Lab(tmp_path, kafka.bootstrap_servers, s3.endpoint)
    create_bucket(s3.endpoint, BUCKET)
    workload = replace(WORKLOADS["A"], name=names.topic("path-cost"), records=_RECORDS)
    fill(lab, workload)
    stages = replace(workload, records=_OF_STAGES)
    part = list(generate(stages))
    recorded = json.loads(_RECORDED.read_text())
    for _ in range(_TRIES):
        found = _costs(lab, workload, stages, part)
        grown = [name for name, times in found.items() if times > _GROWTH_MAX * recorded[name]]
        print(f"in multiples of F: {json.dumps(found)}")
        if not grown:
            return
    pytest.fail(f"in multiples of F: {json.dumps(found)}, recorded: {json.dumps(recorded)}; too much: {grown}")


def _costs(lab: Lab, workload: Workload, stages: Workload, part: list[bytes]) -> dict[str, float]:
    """Return the medians."""
    costs: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(_ROUNDS):
        least = discard(lab, workload.name)
        figures = measure(lab, workload, {}, name=f"{workload.name}-{time.monotonic_ns()}")
        costs[f"{_LANE}: worker"].append(figures[CPU] / least)
        for lane in LANES:
            cold = measure_stages(part, lane, stages)["cold"]
            costs[f"{lane}: record"].append(cold["record"] / least)
            costs[f"{lane}: seal"].append((cold["plan"] + cold["seal"]) / least)
    return {name: round(statistics.median(values), 2) for name, values in costs.items()}
