"""`log-partitioner offsets show | set | adopt`: committed offsets, read and set by hand, if a worker refuses to start.

    survey.py     what is committed, what the flush records say, and what the log holds, by TopicPartition
    setting.py    what `set` makes of it, and how many records are published twice or skipped by that
    adopting.py   a group of another name goes on where one has stopped
    command.py    arguments, questions, exit codes

Nothing but `command.py` changes anything, and that only where the group has no live member.
"""
