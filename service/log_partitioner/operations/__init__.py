"""Commands for the person on call, one module each: they read what workers have written.

    output.py     tables, JSON and notes, the same for all
    rows.py       the bytes of an object -> its entries
    status.py     workers, lag, last flushes
    cat.py        the rows of an object, or of a reference

A module has `add_arguments(parser)` and `main(options, settings)`, whose docstring is its `--help`; `cli` lists them.
"""
