"""The independent check: does every source entry stand in exactly one committed reference or dead letter?

    audit.py         all of it: index, flush by flush, ranges
    announced.py     an index of what was announced, by batch id; then what the messages of some batches say
    ranges.py        flush records side by side: do they join, who answers for which offsets
    flush.py         ONE FLUSH JUDGED: its record, and every entry in exactly one place
        source.py    what `oracle` says of each entry of its offsets, compact
        objects.py   object -> its references -> rows -> compared with the source        (schemas.py)
        letters.py   dead letters compared with the source
        context.py   by what it is judged
    whose.py         which group, and which others are its history
    put_away.py      offsets that nobody can read
    report.py        the findings
    store.py         S3 as it is read (Kafka: adapters/kafka/topics.py)
    run.py           the command

It shares the formats with the worker and no rule: what the worker computes the oracle computes again.
"""
