"""Spark Structured Streaming on two cores: everything that is in the topic, by user, date and hour, Avro, to S3.

Without the repartition each of Spark's tasks writes a file for each key: eight times as many. Some settings of S3A are
changed, to save requests and waiting. The schema of entries that are not flat is inferred first. The sink commits by
`_spark_metadata`, which readers have to use.
"""

import json
import os
import re
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # as PySpark's own documentation writes it
from pyspark.sql import types as T

from bench.peers.task import FIELDS, Task, mark

_CORES = 2
_SHUFFLE_PARTITIONS = 8
_COUNTED = {
    "PUTs": "object_put_request_completed",
    "requests: HEAD": "action_http_head_request",
    "requests: LIST": "object_list_request",
}
_KEY = ("user", "date", "hour")
_TYPES = {"string": T.StringType(), "long": T.LongType(), "double": T.DoubleType()}
_FLAT = T.StructType([T.StructField(name, _TYPES[kind]) for name, kind in FIELDS.items()])
_NO_NAME = re.compile("[^A-Za-z0-9_]")


def run(task: Task) -> None:
    """Deliver the messages in the topic and end."""
    spark = _session(task)
    source = spark.readStream.format("kafka").options(**_topic(task)).load()
    mark("start")
    schema = _FLAT if task.is_flat else _inferred(spark, task)
    user, at = (_first(schema, paths) for paths in (task.user_paths, task.time_paths))
    at = F.when(at.rlike(r"^\d{13}$"), F.from_unixtime(at.cast("long") / 1000, "yyyy-MM-dd HH")).otherwise(at)
    entries = (
        source.select(F.from_json(F.col("value").cast("string"), schema).alias("entry"))
        .select(F.col("entry").cast(_renamed(schema)).alias("row"), user.alias("user"), at.alias("time"))
        .select("row.*", "user", F.substring("time", 1, 10).alias("date"), F.substring("time", 12, 2).alias("hour"))
        .repartition(_SHUFFLE_PARTITIONS, *_KEY)
    )
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


def _topic(task: Task) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": task.bootstrap,
        "subscribe": task.topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }


def _inferred(spark: SparkSession, task: Task) -> T.StructType:
    """Return the schema of all entries, which Spark finds by reading the topic once more."""
    values = spark.read.format("kafka").options(**_topic(task)).load().select(F.col("value").cast("string"))
    jvm, reader = spark._jvm, spark._jsparkSession.read()  # noqa: SLF001  # Python has no reader of JSON in a column
    assert jvm is not None  # noqa: S101  # the session runs
    texts = getattr(values._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING())  # noqa: SLF001
    return T.StructType.fromJson(json.loads(reader.json(texts).schema().json()))


def _first(schema: T.StructType, paths: list[str]) -> Column:
    """Return the first value that a path leads to, as text; paths of which the schema knows nothing lead nowhere."""
    known = [path.split(".") for path in paths if path.split(".")[0] in schema.names]
    return F.coalesce(*(reduce(Column.getField, path, F.col("entry")).cast("string") for path in known))


def _renamed(kind: T.DataType) -> T.DataType:
    """Return the type with names that Avro allows; numbered, as two may differ only in what is replaced."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_renamed(kind.elementType))
    if not isinstance(kind, T.StructType):
        return kind
    fields = enumerate(kind.fields)
    return T.StructType(
        [
            T.StructField(f"_{_NO_NAME.sub('_', field.name)}_{number}", _renamed(field.dataType))
            for number, field in fields
        ]
    )


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
        "spark.sql.caseSensitive": "true",
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
