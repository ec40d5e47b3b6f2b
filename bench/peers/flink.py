"""Flink SQL with parallelism 2: the topic by user, date and hour, Avro, exactly once by checkpoints of half a minute.

To a local disk: through Flink's S3 file system, as set up here, it had not finished by far when others had. Runs in a
Python of its own that has only Flink.
"""

from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # not in ours

from bench.peers.task import FIELDS, Task, mark

_SQL_TYPES = {"string": "STRING", "long": "BIGINT", "double": "DOUBLE"}


def run(task: Task) -> None:
    """Deliver the messages in the topic and end."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "30 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.dir": f"file://{task.directory}/checkpoints",
        "table.local-time-zone": "UTC",
        "pipeline.object-reuse": "true",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in task.jars),
    }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    columns = ", ".join(f"`{name}` {_SQL_TYPES[kind]}" for name, kind in FIELDS.items())
    tables.execute_sql(f"""CREATE TABLE source ({columns}) WITH (
        'connector' = 'kafka', 'topic' = '{task.topic}', 'properties.bootstrap.servers' = '{task.bootstrap}',
        'properties.group.id' = '{task.name}', 'properties.isolation.level' = 'read_committed',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json')""")
    tables.execute_sql(f"""CREATE TABLE files ({columns}, `date` STRING, `hour` STRING)
        PARTITIONED BY (`user`, `date`, `hour`) WITH (
        'connector' = 'filesystem', 'path' = '{Path(task.directory, "out")}', 'format' = 'avro',
        'avro.codec' = 'deflate', 'sink.shuffle-by-partition.enable' = 'true')""")
    mark("start")
    tables.execute_sql(
        "INSERT INTO files SELECT *, SUBSTRING(`time`, 1, 10), SUBSTRING(`time`, 12, 2) FROM source"
    ).wait()
    mark("end")


if __name__ == "__main__":
    run(Task.given())
