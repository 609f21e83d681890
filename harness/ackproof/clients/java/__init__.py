"""Producers and live readers that use Kafka's own Java client. See README.md."""
