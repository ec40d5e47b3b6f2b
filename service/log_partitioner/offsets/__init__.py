"""`log-partitioner offsets show | set | skip | adopt`: committed offsets, read and set by hand.

    survey.py     committed offsets, flush records and the log, by TopicPartition
    setting.py    the changes of `set`, and the records that they publish twice or skip
    skipping.py   the dead letter that `skip` commits in place of records that nobody can read
    adopting.py   a group of another name goes on where one has stopped
    command.py    arguments, questions, exit codes

Only `command.py` changes anything, and only if the group has no live member.
"""
