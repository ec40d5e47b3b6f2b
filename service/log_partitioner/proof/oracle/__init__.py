"""The second opinion: other code computes from DESIGN 3 and docs/INPUTS.md what must become of every record.

    decode.py            record -> entries            (formats/, json_text.py)
    locate.py times.py   entry -> user, event time, id
    judge.py             record -> what each entry must look like downstream
    container.py published_schema.py   bytes of an object -> rows -> values
    expected_schema.py   the schema that entries must have
    equal.py             when two entries are equal

Both audits, user activity and tests ask it. It shares the formats with the worker, and no rule.
"""
