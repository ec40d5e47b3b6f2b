"""Benchmarks: `python -m bench.pipeline` (table and audit), `python -m bench.readers` (ways to read many small files).

Each delivers generated logs through real workers on a real Kafka and S3 first. Wall times of a shared machine are
noise; what is reported beside them are CPU seconds, and ratios within one run.
"""
