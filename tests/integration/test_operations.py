"""The commands for the person on call, run as processes after a real worker's run."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource

from tests.integration.flow import some_records
from tests.integration.harness import PROTOCOLS, Deploy
from tests.integration.one_worker import UNHURRIED, run_through
from tests.stack.kafka_helper import KafkaHelper, ToProduce
from tests.stack.names import Names
from tests.stack.providers import REPOSITORY

RECORDS = 40
USERS = ("bob", "ann", "cem")
PAGE = REPOSITORY / "docs" / "READING.md"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_status_says_who_owns_what_and_how_far_it_is(deploy: Deploy, protocol: str) -> None:
    """A live worker with its TopicPartitions; then, when it has left, what it has committed and the lag behind it."""
    deployment = deploy(partitions=2, protocol=protocol)
    deployment.start("w1", **UNHURRIED)
    written = deployment.kafka.produce(deployment.source, some_records(RECORDS, partitions=2))
    deployment.wait_metric("w1", "records_total", len(written))

    code, text = deployment.run("status")
    assert code == 0, text
    assert text.startswith(
        "1 worker, 2 TopicPartitions, lag 0 records, no commit, 2 never committed (not in the lag)\n"
    ), text
    assert len(re.findall(rf"^{deployment.source} +[01]  w1 ", text, re.MULTILINE)) == 2, text

    deployment.wait_metric("w1", "owned_topic_partitions", 2)
    code, page = deployment.get("w1", "/")
    assert code == 200, page
    assert re.search(r"Ready: member of the group.*2 TopicPartitions are owned", page, re.DOTALL), page

    assert deployment.stop_all() == {"w1": 0}
    deployment.kafka.produce(deployment.source, some_records(3, partitions=1))
    code, text = deployment.run("status", "--json")
    assert code == 0, text
    status = json.loads(text)
    assert status["summary"].startswith("0 workers, 2 TopicPartitions, lag 3 records, last commit ")
    (worker,) = status["workers"]
    (record,) = deployment.flush_records()
    assert (worker["worker"], worker["host"], worker["reason"]) == ("w1", None, "stopping")
    assert worker["entries"] == record.totals.entries
    committed = [(one["partition"], one["committed"], one["lag"]) for one in status["topic_partitions"]]
    assert committed == [(0, 20, 3), (1, 20, 0)]


def test_entry_is_found_by_place_and_by_id_and_its_rows_are_printed(deploy: Deploy, tmp_path: Path) -> None:
    """In a pack of several users; the dead entry of the same record by its reason, the bytes of a reference alone.

    The Python lines of docs/READING.md read them, too; run again, these read nothing twice.
    """
    deployment = deploy(partitions=1, settings={"LOGP_ID__PATHS": "id", "LOGP_LAYOUT": "pack"})
    entries = [
        {"user": USERS[n % 3], "time": f"2026-03-04T0{5 + n % 2}:00:00Z", "id": f"i{n}", "a-b": n} for n in range(9)
    ]
    values = [*([one] for one in entries), [{"time": "2026-03-04T00:00:00Z"}, entries[0]]]
    run_through(deployment, [ToProduce(value=json.dumps(one).encode(), partition=0) for one in values])

    code, text = deployment.run("find", deployment.source, "0", "4", "--json")
    row, told = json.loads(text.splitlines()[0]), text.splitlines()[1]
    assert code == 0, text
    assert (row["user"], row["offset"], row["index"], row["id"], row["committed"]) == ("ann", 4, 0, "i4", [0, 10])
    assert re.match(r"1 found; read: [\d,]+ bytes, .* messages of .*, 1 objects$", told)

    code, text = deployment.run("cat", row["reference_id"])
    assert code == 0, text
    rows = [json.loads(line) for line in text.splitlines()]
    assert [one["_meta"]["user"] for one in rows] == ["ann"] * row["rows"]
    assert rows[row["row"]]["entry"] == entries[4]
    code, whole = deployment.run("cat", row["object"])
    assert (code, len(whole.splitlines())) == (0, 10), whole
    assert deployment.run("cat", json.dumps(row)) == (0, text)

    code, text = deployment.run("find", deployment.source, "0", "9", "0")
    assert code == 0, text
    assert re.search(r"^found +dead letter$", text, re.MULTILINE), text
    assert re.search(r"^reason +no_user$", text, re.MULTILINE), text

    times = ["--from", "2026-03-04T05:00Z", "--until", "2026-03-04T05:30Z"]
    code, text = deployment.run("find", "i0", "--user", "bob", *times)
    assert re.findall(r"^offset +(\d+)$", text, re.MULTILINE) == ["0", "9"], text
    code, text = deployment.run("find", "i0", "--user", "ann", *times)
    assert code == 1
    assert re.match(r"rows have an id only if .*\n0 found; read: ", text), text

    program = "\n".join(block for block in re.findall(r"```python\n(.+?)```", PAGE.read_text(), re.DOTALL)[:3])
    for _ in range(2):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, cwd=tmp_path, env=deployment.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == f"4 {dict(sorted(entries[4].items()))}\n_meta.user\nann    1\ndtype: int64\n"
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        found = [json.loads(one)["entry"]["id"] for (one,) in database.execute("SELECT entry FROM entries")]
    assert sorted(found) == sorted([f"i{n}" for n in range(9)] + ["i0"])


def test_command_that_finds_nothing_says_so_and_one_that_cannot_tell_too(deploy: Deploy) -> None:
    """Exit codes 1 and 2, in one line without a trace."""
    deployment = deploy(partitions=1)

    assert deployment.run("cat", "logs/none.avro") == (
        1,
        f"there is no object s3://{deployment.bucket}/logs/none.avro\n",
    )
    code, text = deployment.run("cat", "20260304T050607Z-1f2e3d4c-17-0")
    assert (code, text) == (1, "NotFoundError: no reference has the id 20260304T050607Z-1f2e3d4c-17-0\n")
    code, text = deployment.run("find", "none-such", "0", "1")
    assert (code, text.count("\n")) == (2, 1), text
    code, text = deployment.run("find", "i0")
    assert (code, text) == (2, "settings: i0: to find a unique id, say of which --user, and --from which time on\n")


def test_topics_are_created_once_and_never_changed(deploy: Deploy, kafka: KafkaHelper, names: Names) -> None:
    """A dry run creates nothing, nor does a second run; a topic that brokers refuse, or that is compacted, fails."""
    deployment = deploy(partitions=1)
    made = {role: names.topic(f"new-{role}") for role in ("references", "flushes", "dead_letters", "backfills")}
    settings = {f"LOGP_KAFKA__{role.upper()}_TOPIC": topic for role, topic in made.items()}

    def create(*arguments: str) -> tuple[int, list[tuple[int, str]]]:
        code, text = deployment.run("topics", "create", "--json", *arguments, **settings)
        assert code in (0, 1), text
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert [one["topic"] for one in rows] == list(made.values()), text
        return code, [(one["partitions"], one["state"]) for one in rows]

    assert create("--dry-run", "--partitions", "2") == (0, [(count, "would be created") for count in (2, 1, 2, 1)])
    code, rows = create("--replication-factor", "3")
    assert (code, {state.partition(":")[0] for _, state in rows}) == (1, {"INVALID_REPLICATION_FACTOR"})
    kafka.create_topic(made["dead_letters"], partitions=3, config={"cleanup.policy": "compact"})
    expected = [(2, "created"), (1, "created"), (3, "is there"), (1, "created")]
    assert create("--partitions", "2", "--retention", "90d") == (1, expected)
    code, text = deployment.run("topics", "create", LOGP_KAFKA__SOURCE_TOPICS=made["references"] + "-not", **settings)
    assert code == 1
    assert text.count("-not is not there: it is yours to create") == 1, text
    assert f"topic {made['dead_letters']} (kafka.dead_letters_topic) has cleanup.policy compact" in text, text
    assert text.count("is there") == len(made), text

    asked = [ConfigResource(ConfigResource.Type.TOPIC, made[role]) for role in ("references", "backfills")]
    found = [future.result(20) for future in kafka.admin.describe_configs(asked).values()]
    kept = [{name: one[name].value for name in ("cleanup.policy", "retention.ms")} for one in found]
    assert kept[0] == {"cleanup.policy": "delete", "retention.ms": str(90 * 86_400_000)}
    assert kept[1]["cleanup.policy"] == "compact"
