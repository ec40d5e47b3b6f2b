"""Real Kafka and real S3 for the tests: where they come from, and how tests talk to them.

providers -> kafka_helper | s3_helper -> fixtures; the test files here are about the stack itself.
"""
