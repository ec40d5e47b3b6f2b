"""One outside world each: Kafka, S3, disk, clock, logs, metrics, HTTP. Thin; no decisions."""
