"""The audit on Spark: is every source entry in exactly one committed reference or dead letter, and in the table?

    options.py windows.py      the command's options; which records are of the window
    scope.py ground.py         which offsets are audited, and which doubts remain
    topics.py                  Kafka -> frames: messages, flush records, references
    executors.py sides.py      source, files, dead letters, table as frames of entries (frames.py)
    object_reader.py statements.py   objects, each read once, and what references say of them
    compare.py findings.py     entries side by side -> findings
    retired.py                 references whose objects are retired: their entries are those of the table
    accounts.py, judged.py     flush records and references against each other and the source
    object_bytes.py            bytes of objects: each of exactly one reference
    backfills.py               run records of backfills, likewise
    collect.py lag.py          the bounded result
    auditor.py                 the order of the steps
    result.py text.py          the result, for programs and for people
    verdicts.py history.py metrics.py   the parts of it that are kept

Judging (what an entry must look like) is `log_partitioner.proof.oracle`'s, which shares formats with the worker and
no rule.
"""
