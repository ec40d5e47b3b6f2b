"""Proof from logs: what the workers of a group say of themselves, read as one history and held against nine rules.

    command.py   the command: read, judge, write the account
    lines.py     files and standard input -> lines of workers, each with its place
    history.py   the lines of each boot in order (rule 8), then all boots of a group together
    boots.py     one boot, line by line: what it owned, flushed and committed (rules 2, 4, 5, 6, 9; parts of 1 and 3)
    holes.py     offsets without a record: what a commit says of its records (rule 3)
    chains.py    one TopicPartition over all boots, by offsets: what was committed, who went on where (rules 1, 3, 7)
    account.py   what led to the first violation; who owned what; as text and as JSON
    rules.py tenures.py   what these hand to each other

Clocks of pods differ: order comes from a boot's `seq`, from the group's generations and from offsets, never from `ts`.
It shares the declaration of events with the worker, and no rule.
"""
