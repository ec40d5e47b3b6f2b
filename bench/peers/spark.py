"""Spark Structured Streaming on two cores: everything that is in the topic, by user, date and hour, Avro, to S3.

Without the repartition each of Spark's tasks writes a file for each key: eight times as many. Some settings of S3A are
changed, to save requests and waiting. The sink commits by `_spark_metadata`, which readers have to use.
"""

import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # as PySpark's own documentation writes it

from bench.peers.task import FIELDS, Task, mark

_CORES = 2
_SHUFFLE_PARTITIONS = 8
_COUNTED = {
    "PUTs": "object_put_request_completed",
    "requests: HEAD": "action_http_head_request",
    "requests: LIST": "object_list_request",
}
_KEY = ("user", "date", "hour")


def run(task: Task) -> None:
    """Deliver the messages in the topic and end."""
    spark = _session(task)
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", task.topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    schema = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items())
    entries = (
        source.select(F.from_json(F.col("value").cast("string"), schema).alias("entry"))
        .select("entry.*")
        .withColumn("date", F.substring("time", 1, 10))
        .withColumn("hour", F.substring("time", 12, 2))
        .repartition(_SHUFFLE_PARTITIONS, *_KEY)
    )
    mark("start")
    query = (
        entries.writeStream.format("avro")
        .partitionBy(*_KEY)
        .option("path", f"s3a://{task.bucket}/{task.name}")
        .option("checkpointLocation", f"{task.directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    mark("end", **_requests(spark))
    spark.stop()


def _session(task: Task) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{_CORES}]").appName(task.name)
    s3a = {
        "endpoint": task.endpoint,
        "endpoint.region": task.region,
        "access.key": task.access_key,
        "secret.key": task.secret_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "performance.flags": "*",
        "fast.upload.buffer": "bytebuffer",
        "connection.maximum": "200",
        "threads.max": "64",
    }
    settings = {
        "spark.jars": ",".join(task.jars),
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": f"{task.directory}/local",
        "spark.sql.warehouse.dir": f"{task.directory}/warehouse",
        "spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.avro.compression.codec": "deflate",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _requests(spark: SparkSession) -> dict[str, float]:
    """Return the counters of S3A."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001  # the only way to Hadoop's own figures
    assert jvm is not None  # noqa: S101  # the session runs
    counted = jvm.org.apache.hadoop.fs.FileSystem.getGlobalStorageStatistics().get("S3AStorageStatistics")
    return {name: float(counted.getLong(theirs) or 0) for name, theirs in _COUNTED.items()}


if __name__ == "__main__":
    os.chdir(Path(Task.given().directory))
    run(Task.given())
