"""Everything behind the references, on Spark: table, audit, compaction, backfill, activity of users.

    cli.py            python -m log_partitioner_pipeline JOB
    signals.py        ended by SIGTERM within seconds, whatever it does
    config.py         settings of the jobs, beside those of the worker
    metrics.py        gauges of table and audit, on a port or in a file
    session.py        the Spark session; the only place with Spark options
    python_daemon.py  the parent of Spark's Python workers

The way of the data into the table:

    jobs/materialize.py   a loop over what is new in the topics
    topic_log.py          messages of a topic, cut into slices
    announced.py          tables of references, flush records and dead letters
    complete.py           up to which moment the table is complete
    references.py         messages -> references, and the schemas they name
    whose.py              those of one group, and of what it has adopted
    pieces.py             references by object, shared out to tasks
    objects.py            S3: the bytes that references point to
    rows.py               those bytes -> rows of the table, in Arrow; compiled.py: the same, with the wheel
    row_type.py           exact schemas -> types
    columns.py            exact schemas -> columns
    parquet.py            rows -> files of a table
    entries.py table.py   Iceberg: created, widened, appended to by compare-and-swap

Beside it:

    audit/            source against files, dead letters and table         jobs/audit.py
    upkeep.py         small files to large ones, old snapshots             jobs/compact.py
    retire.py         raw objects past their retention, by record          jobs/compact.py, retention.py, retired.py
    erasures.py       users out of tables and snapshots, by record         jobs/erase.py
    acknowledged.py   lost for good, passed over, by record                jobs/acknowledge.py
    backfill/         what no committed reference holds, published         jobs/backfill.py, publisher.py
    activity.py       entries and bytes of users, each counted once        jobs/user_activity.py
    table_check.py    has the table every row of an object                 changes.py: what others did to it since
    archive/          an older system's CSV as another witness             jobs/audit.py
    report/           results of audits as one HTML page                   jobs/report.py
    rebuild.py        the table of entries made anew (in jobs/)            jobs/materialize.py
    reference_rows.py references as frames
    frames.py         types of rows, frames that are kept until a run ends
"""
