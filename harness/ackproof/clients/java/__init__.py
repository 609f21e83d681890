"""Producers, live readers and group members that use Kafka's own Java client. See README.md."""
