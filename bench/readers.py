"""`python -m bench.readers`: ways to read what many references point to, from one delivery, side by side.

- `mapInArrow`: the product's own: byte ranges from S3, Avro decoded by Python, Arrow to the JVM.
- `JVM`: Spark's Avro source with the aggregated schema of all objects and their paths. It reads them from the local
  disk, since S3A is not among the product's jars, and without the fields that two objects have different types of, at
  which it stops: a lower bound of what it would cost. It reads whole objects: of a pack that two bundles share, twice.

Each reads all references in bundles as large as a commit, in turn, several times; rows go nowhere.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from bench.deliver import delivered
from log_partitioner.avro.schema import schema_of
from log_partitioner.avro.schema_types import ArrayType, MapType, RecordType, Scalar, Type, join_records
from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline.columns import FIXED_FIELDS, plan_of, union_of
from log_partitioner_pipeline.config import JobSettings, load_all
from log_partitioner_pipeline.jars import find_jars
from log_partitioner_pipeline.jobs.materialize import read_rows
from log_partitioner_pipeline.kafka import partition_ends
from log_partitioner_pipeline.objects import Objects
from log_partitioner_pipeline.pieces import projection_text
from log_partitioner_pipeline.reference_log import Bounds, read_slices
from log_partitioner_pipeline.references import SchemaTexts
from log_partitioner_pipeline.row_type import type_of
from log_partitioner_pipeline.session import open_session
from tools.demo.environment import Environment
from tools.local.errors import StackError
from tools.maven import JarSet

_HERE = Path(__file__).parent
SPARK_AVRO = JarSet(_HERE / "pom.xml", _HERE / "jars.lock")
_OBJECT_KEYS_MAX = 1000

Read = Callable[[list[Reference]], None]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = _parse(arguments)
    try:
        avro = SPARK_AVRO.ensure(options.home / "bench-jars")
        with delivered(entries=options.entries, users=options.users, home=options.home) as environment:
            _measure(environment, options, avro)
    except StackError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(environment: Environment, options: argparse.Namespace, avro: Path) -> None:
    jars = find_jars(Path(environment.variables["PIPELINE_SPARK__JARS_DIRECTORY"])) + list(avro.glob("*.jar"))
    properties = {"spark.jars": ",".join(str(jar.absolute()) for jar in jars)}
    os.environ.update(environment.variables)
    os.environ["PIPELINE_SPARK__MASTER"] = f"local[{options.cores}]"
    os.environ["PIPELINE_SPARK__PROPERTIES"] = json.dumps(properties)
    settings = load_all()
    spark = open_session(settings, name="bench")
    try:
        references = _references(settings)
        entries = sum(reference.entries for reference in references)
        count = len({reference.location.object for reference in references})
        print(f"{entries:,} entries, {len(references):,} references, {count:,} objects")
        texts = SchemaTexts(Objects(settings.worker.s3, threads=1)).of(references)
        objects = environment.directory / "s3" / "objects"
        readers: dict[str, Read] = {
            "mapInArrow": partial(_by_map_in_arrow, spark, settings, _columns(texts, references)),
            "JVM": partial(_by_jvm, spark, objects, _aggregated(texts.values())),
        }
        for turn in range(options.turns):
            for name, read in readers.items():
                begun = time.monotonic()
                for bundle in _bundles(references, settings.pipeline.materialize.references_max):
                    read(bundle)
                seconds = time.monotonic() - begun
                print(
                    f"turn {turn + 1}  {name:<10} {seconds:6.1f} s  {entries / seconds:9,.0f} entries/s"
                    f"  {len(references) / seconds:7,.0f} references/s",
                    flush=True,
                )
    finally:
        spark.stop()


def _references(settings: JobSettings) -> list[Reference]:
    kafka = settings.worker.kafka
    everything = Bounds(references_max=sys.maxsize, bytes_max=sys.maxsize)
    ends = partition_ends(kafka, kafka.references_topic)
    (found,) = read_slices(kafka, kafka.references_topic, {}, ends, everything)
    return found.references


def _bundles(references: list[Reference], most: int) -> Iterator[list[Reference]]:
    for begin in range(0, len(references), most):
        yield references[begin : begin + most]


def _columns(texts: dict[str, str], references: list[Reference]) -> T.StructType:
    schemas = {(one.schema.fingerprint, projection_text(one)) for one in references}
    plans = (plan_of(texts[fingerprint], projection) for fingerprint, projection in schemas)
    return T.StructType([*FIXED_FIELDS, *union_of(plan.columns for plan in plans)])


def _aggregated(texts: Iterable[str]) -> str:
    """Give the reader schema of all objects, without fields that two of them have different types of."""
    types = [type_of(json.loads(text)) for text in texts]
    joined = reduce(partial(join_records, object_keys_max=_OBJECT_KEYS_MAX), types)
    alike = {name: kind for name, kind in joined.by_name.items() if not _has_conflict(kind)}
    return json.dumps(schema_of(RecordType(alike)))


def _has_conflict(kind: Type) -> bool:
    if isinstance(kind, RecordType):
        return any(map(_has_conflict, kind.by_name.values()))
    if isinstance(kind, ArrayType):
        return _has_conflict(kind.item)
    return _has_conflict(kind.value) if isinstance(kind, MapType) else kind is Scalar.JSON


def _by_map_in_arrow(
    spark: SparkSession, settings: JobSettings, columns: T.StructType, references: list[Reference]
) -> None:
    frame = read_rows(spark, references, columns, s3=settings.worker.s3, settings=settings.pipeline.materialize)
    frame.write.format("noop").mode("overwrite").save()


def _by_jvm(spark: SparkSession, objects: Path, schema: str, references: list[Reference]) -> None:
    paths = sorted({str(objects / one.location.bucket / one.location.object) for one in references})
    frame = spark.read.format("avro").option("avroSchema", schema).load(paths)
    frame.write.format("noop").mode("overwrite").save()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.readers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--entries", type=int, default=300_000, help="default: %(default)s")
    add("--users", type=int, default=500, help="more users, smaller references; default: %(default)s")
    add("--turns", type=int, default=3, help="default: %(default)s")
    add("--cores", type=int, default=2, help="of Spark; default: %(default)s")
    add("--home", type=Path, default=Path(".local"), help="directory for jars and data; default: %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
