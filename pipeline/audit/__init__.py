"""The audit on Spark: is every source entry in exactly one committed reference or dead letter, and in the table?

    options.py                 the command's options, the window
    scope.py ground.py         which offsets are audited, and what cannot be told
    topics.py                  Kafka -> frames: messages, flush records, references
    executors.py sides.py      source, files, dead letters, table as frames of entries (frames.py)
    compare.py findings.py     entries side by side -> findings
    accounts.py                flush records and references against each other and the source
    collect.py auditor.py      the bounded result; the order of the steps
    result.py text.py          what came out; for programs, for people
    verdicts.py history.py metrics.py   what is kept of it

Judging (what an entry must look like) is `service.audit`'s, which shares formats with the worker and no rule.
"""
