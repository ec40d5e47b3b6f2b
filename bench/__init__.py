"""Benchmarks, each on a real Kafka and S3 of its own; `python -m bench.NAME --help` lists the options of each.

- page: CPU, memory and objects of one worker in both lanes and of others that do the same work, as multiples of reading
  alone; writes docs/PERFORMANCE.md. steady: whether one worker on one core keeps up with a rate.
- scaling: whether an entry costs several workers of one group as much as one.
- profile: which functions take a worker's time. stages: parts of its path in one process, without Kafka and S3.
- memory: what a PartitionKey costs in memory.
- liveness: whether the group goes on under a slow store and with a quarter of a core for each worker.
- pipeline, readers: table and audit, and ways to read many small files; logs go through real workers first.

Wall times of a shared machine are noise; so benchmarks also report CPU seconds, and ratios within one run.
"""
