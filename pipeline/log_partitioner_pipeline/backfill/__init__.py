"""A bounded range of the source, partitioned again: what no committed reference or dead letter holds (DESIGN 8).

    jobs/backfill.py        the order of the steps
    ranges.py               which offsets: by time or offset, all of them committed by the group
    held.py                 the entries that committed references and dead letters hold
    split.py                records -> pieces: entries of a record with one PartitionKey, or dead for one reason
    write.py                pieces -> rows -> objects, and the messages that announce them
    memory_spool.py         where the objects of a task lie until they are uploaded
    outbox.py               the list of all messages of a run, written once: parts, and a manifest that names them
    publish.py              from the outbox to the topics, in transactions that also say how far the run has come

Records become rows by the worker's own code (`log_partitioner.batch`); split and write run on the executors. Run
records have a topic of their own: the ranges of flush records must join without overlap, and a backfill's ranges were
flushed once.
"""
