"""The independent check: does every source entry stand in exactly one committed reference or dead letter?

    kafka_topics.py      Kafka: source, references, flush records, dead letters, offsets; what is settled
    s3_reader.py         S3: objects
    whose.py             which group, and which others are its history
    source_table.py      what `oracle` says of each entry, compact: one row of numbers
    objects.py           object -> its references -> rows            (fetch.py)
    rows.py              row -> compared with the table
    statements.py        what a reference says of its rows
    schemas.py           the schema of an object, that of each reference, and that of its entries
    dead_letters.py flushes.py backfills.py reconcile.py   the rest of the accounts
    report.py run.py     what came out; the command

It shares the formats with the worker and no rule: what the worker computes the oracle computes again.
"""
