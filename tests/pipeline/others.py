"""Statements of other engines on the table, which may do more than its jobs."""

from pyspark.sql import SparkSession


def by_others(session: SparkSession, table: str, statement: str) -> None:
    """Run a statement on a table, also an UPDATE, which Spark refuses on a table that accepts any schema."""
    session.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('write.spark.accept-any-schema')")
    session.sql(statement)
    if session.catalog.tableExists(table):
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')")
