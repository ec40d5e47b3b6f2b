"""Proof from logs: the lines of all workers of a group, read as one history and held against nine rules.

    command.py   the command: files and standard input -> lines of workers, judge, write the account
    history.py   the lines of each boot in order (rule 8), then all boots of a group together
    boots.py     one boot, line by line: ownership, flushes, commits, holes (rules 2 to 6, 9; part of 1)
    chains.py    one TopicPartition over all boots, by offsets: commits join, owners go on behind them (rules 1, 3, 7)
    account.py   the judgement as text and as JSON, with the lines that led to the first violation
    values.py    the rules, and the values that these hand to each other

Clocks of pods differ: order comes from a boot's `seq`, from the group's generations and from offsets, never from `ts`.
It shares the declaration of events with the worker, and no rule.
"""
