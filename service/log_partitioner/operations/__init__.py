"""Commands for the person on call, one module each: they read what workers have written.

    output.py     tables, JSON and notes, the same for all
    status.py     workers, lag, last flushes
    topics.py     topics that are created
    find.py       an entry -> its reference, object and bytes, or its dead letter
    cat.py        the rows of an object, or of a reference
    letters.py, replay.py, dead_letters.py    dead letters: read by place, put back, and the command
    orphan_rules.py, orphans.py               which objects are orphans, and the command

`find` and `cat` read references and objects by `log_partitioner.reader`. A module has `add_arguments(parser)` and
`main(options, settings)`, whose docstring is its `--help`; `cli` lists them.
"""
