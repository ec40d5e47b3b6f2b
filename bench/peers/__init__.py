"""The same work done by others: their needs, and how each is run and measured.

- obvious: the program in Python that one writes first.
- spark: Structured Streaming to S3; flink: Flink SQL to a local disk.

Each is a process that takes a `Task` from its environment and marks the end of its start-up and of its work.
"""
