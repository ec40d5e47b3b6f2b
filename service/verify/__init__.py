"""Proof from logs: what the workers of a group say of themselves, read as one history and held against nine rules.

    lines.py     files and standard input -> lines of workers, each with its place
    boots.py     one boot, line by line: what it owned, flushed and committed (rules 2, 4, 5, 6, 9; 3 within the boot)
    holes.py     offsets without a record: what a commit says of its records (rule 3)
    chains.py    one TopicPartition over all boots, by offsets: what was committed, who went on where (rules 1, 3, 7)
    history.py   brings the lines of each boot in order (rule 8), and all boots of a group together
    rules.py     the rules' names, violations and doubts
    account.py   what led to the first violation; who owned what
    command.py   the command

Clocks of pods differ: order comes from a boot's `seq`, from the group's generations and from offsets, never from `ts`.
It shares the declaration of events with the worker, and no rule.
"""
