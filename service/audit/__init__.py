"""The independent check: does every source entry stand in exactly one committed reference or dead letter?

    collect.py           Kafka and S3: source, references, flush records, dead letters, objects
    decode.py            record -> entries            (decompress.py, json_text.py, split.py)
    locate.py times.py   entry -> user, event time, id
    judge.py             record -> what each entry must look like downstream
    source_table.py      all of it, compact: one row of numbers per entry
    objects.py           object -> rows -> compared with the table   (published_schema.py, equal.py)
    expected_schema.py   entries of an object -> the schema it must have
    dead_letters.py flushes.py reconcile.py   the rest of the accounts
    report.py run.py     what came out; the command

It shares the formats with the worker (`core.reference`, `core.dead_letter`, `core.model`) and no rule:
what the worker computes is computed here again, from DESIGN.md, by other code.
"""
