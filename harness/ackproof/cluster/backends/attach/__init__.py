"""Attach backend: a cluster that ackproof did not start, reached only through Kafka's protocol."""
