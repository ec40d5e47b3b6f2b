"""The independent check: does every source entry stand in exactly one committed reference or dead letter?

    collect.py           Kafka and S3: source, references, flush records, dead letters, objects
    decode.py            record -> entries            (decompress.py, json_text.py, split.py)
    locate.py times.py   entry -> user, event time, id
    judge.py             record -> what each entry must look like downstream
    source_table.py      all of it, compact: one row of numbers per entry
    objects.py           object -> its references -> rows            (container.py, fetch.py)
    rows.py              row -> compared with the table              (published_schema.py, equal.py)
    statements.py        what a reference says of its rows
    schemas.py           the schema of an object, that of each reference, and that of its entries
                         (object_schema.py, expected_schema.py, names.py)
    dead_letters.py flushes.py backfills.py reconcile.py   the rest of the accounts
    report.py run.py     what came out; the command

It shares the formats with the worker (`core.reference`, `core.projection`, `core.flush_record`, `core.dead_letter`,
`core.model`) and no rule: what the worker computes is computed here again, from docs/DESIGN.md, by other code.
"""
