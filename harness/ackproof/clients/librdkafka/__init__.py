"""The adapter of librdkafka (confluent-kafka): producer, reader and group member processes in Python."""
