"""The clients of Kafka: a member of the group, a producer for each transaction, an admin, and one that reads topics."""
