"""Entry -> user, time, PartitionKey; the root of a record. Pure."""
