"""Activity of users: entries and bytes per user and hour, per user and day (ADR 7).

The way of the data:

    entries.py    references -> which entries of which user and hour, and how many bytes each has; on the executors
    counted.py    the set of entries that a state has counted, as ranges of offsets; pure
    stages.py     states + entries -> states of the hours -> states of the days
    tables.py     Iceberg: the states, merged by compare-and-swap, and the offsets of the references
"""
