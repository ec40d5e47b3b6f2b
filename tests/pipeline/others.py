"""What others do to the table, who are not bound to what its jobs may."""

from pyspark.sql import SparkSession


def by_others(session: SparkSession, table: str, statement: str) -> None:
    """Run a statement on a table; an UPDATE, too, which other engines can, and Spark not where any schema is taken."""
    session.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('write.spark.accept-any-schema')")
    session.sql(statement)
    if session.catalog.tableExists(table):
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')")
