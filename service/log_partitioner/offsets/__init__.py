"""`log-partitioner offsets show | set | skip | adopt`: committed offsets, read and set by hand.

    survey.py     committed offsets, flush records and the log, by TopicPartition
    plans.py      the changes of `set`, the dead letter of `skip`, the offsets of `adopt`, and what they cost
    command.py    arguments, questions, exit codes

Only `command.py` changes anything, and only if the group has no live member.
"""
