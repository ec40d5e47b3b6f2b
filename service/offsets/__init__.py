"""`log-partitioner offsets show | set | skip | adopt`: committed offsets, read and set by hand.

    survey.py     what is committed, what the flush records say, and what the log holds, by TopicPartition
    setting.py    what `set` makes of it, and how many records are published twice or skipped by that
    skipping.py  what `skip` commits in place of records that nobody can read
    adopting.py   a group of another name goes on where one has stopped
    command.py    arguments, questions, exit codes

Nothing but `command.py` changes anything, and that only where the group has no live member.
"""
