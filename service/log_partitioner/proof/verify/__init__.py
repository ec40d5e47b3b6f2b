"""Proof from logs: the lines of all workers of a group, read as one history and held against nine rules.

    command.py   the command: read, judge, write the account
    lines.py     files and standard input -> lines of workers, each with its place
    history.py   the lines of each boot in order (rule 8), then all boots of a group together
    boots.py     one boot, line by line: ownership, flushes, commits (rules 2, 4, 5, 6, 9; parts of 1 and 3)
    holes.py     offsets without a record, and the records that a commit counts (rule 3)
    chains.py    one TopicPartition over all boots, by offsets: commits join, owners go on behind them (rules 1, 3, 7)
    account.py   the judgement as text and as JSON, with the lines that led to the first violation
    rules.py tenures.py   the values that these hand to each other

Clocks of pods differ: order comes from a boot's `seq`, from the group's generations and from offsets, never from `ts`.
It shares the declaration of events with the worker, and no rule.
"""
