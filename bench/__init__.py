"""Benchmarks, each on a real Kafka and S3 of its own; `python -m bench.NAME --help` says what each can be told.

- worker: CPU, memory, PUTs and references of one worker on the workloads A to D, as multiples of reading alone.
- memory, announce: what a PartitionKey costs in memory, and to be announced.
- liveness: whether the group goes on under a slow store and with a quarter of a core for each worker.
- pipeline, readers: table and audit, and ways to read many small files; logs go through real workers first.

Wall times of a shared machine are noise; what is reported beside them are CPU seconds, and ratios within one run.
"""
